"""Equinox: eqx.Module, of one item or of a batch."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax

from encoder_conformance.impls.module_target.calling import signature_of
from encoder_conformance.impls.module_target.frameworks.jax_framework import JaxFramework, Nested
from encoder_conformance.impls.module_target.frameworks.jax_tree import (
    Functional,
    JaxModule,
    calls,
    over_items,
    takes_a_batch,
)
from encoder_conformance.impls.module_target.live import LiveModule
from encoder_conformance.impls.module_target.parts import Tree, walk


class _Equinox(JaxFramework):
    name = "Equinox"
    homepage = "https://docs.kidger.site/equinox"
    packages = ("equinox", "jax")
    tree: Tree = Nested(eqx.Module)

    def owns(self, found: object) -> bool:
        return isinstance(found, eqx.Module) and callable(found)

    def arrays(self, module: eqx.Module) -> Any:
        return eqx.filter(module, eqx.is_inexact_array)

    def live(self, module: eqx.Module) -> LiveModule:
        still = eqx.nn.inference_mode(module)
        parameters, static = eqx.partition(still, eqx.is_inexact_array)
        kind = type(module)
        signature = signature_of(kind.__call__, f"{kind.__name__}.__call__", skipped=1)

        def apply(tree: Any, x: jax.Array, **masks: jax.Array) -> Any:
            return eqx.combine(tree, static)(x, **{**signature.fixed, **masks})

        def watch(
            tree: Any, x: jax.Array, masks: Mapping[str, jax.Array], keep: Callable[[str, str, Any], None]
        ) -> Any:
            live = eqx.combine(tree, static)
            parts = dict(walk(self.tree, live))
            return calls(parts, keep, lambda: live(x, **{**signature.fixed, **masks}))

        parts = tuple(part for _, part in walk(self.tree, still))
        name = f"{kind.__module__}.{kind.__qualname__}"
        functional = Functional(apply, parameters, signature, name, parts, watch)
        return JaxModule(functional if takes_a_batch(functional) else over_items(functional))


FRAMEWORK = _Equinox()
