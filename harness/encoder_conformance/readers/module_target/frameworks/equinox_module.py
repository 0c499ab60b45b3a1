"""Equinox: eqx.Module, of one item or of a batch."""

from typing import Any

import equinox as eqx

from encoder_conformance.readers.module_target.calling import signature_of
from encoder_conformance.readers.module_target.frameworks.jax_framework import JaxFramework, Nested
from encoder_conformance.readers.module_target.frameworks.jax_tree import JaxModule, batched, functional_of
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.parts import Tree


class _Equinox(JaxFramework):
    name = "Equinox"
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
        made = functional_of(still, self.tree, lambda tree: eqx.combine(tree, static), parameters, signature)
        return JaxModule(batched(made))


FRAMEWORK = _Equinox()
