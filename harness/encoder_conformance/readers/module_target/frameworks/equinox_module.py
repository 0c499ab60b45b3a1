"""Equinox: eqx.Module, of one item or of a batch."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
from jax.tree_util import keystr, tree_flatten_with_path

from encoder_conformance.protocol.findings import Finding, noted
from encoder_conformance.readers.module_target.calling import refuse_uncalled, signature_of
from encoder_conformance.readers.module_target.frameworks.jax_framework import JaxFramework, Nested
from encoder_conformance.readers.module_target.frameworks.jax_tables import is_table
from encoder_conformance.readers.module_target.frameworks.jax_tree import JaxModule, batched, functional_of
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.parts import Tree
from encoder_conformance.spec.words import listed


class _Equinox(JaxFramework):
    name = "Equinox"
    packages = ("equinox", "jax")
    tree: Tree = Nested(eqx.Module)

    def owns(self, found: object) -> bool:
        return isinstance(found, eqx.Module)

    def arrays(self, module: eqx.Module) -> Any:
        return eqx.filter(module, _is_parameter)

    def wrappers(self, module: eqx.Module) -> tuple[str, ...]:
        return ("equinox.filter_jit",) if _inside(module) is not module else ()

    def notes(self, module: eqx.Module) -> tuple[Finding, ...]:
        """Which of its arrays are no parameters, and would be trained as such."""
        held = tree_flatten_with_path(eqx.filter(_inside(module), eqx.is_inexact_array))[0]
        names = [keystr(path).lstrip(".") for path, leaf in held if is_table(leaf)]
        if not names:
            return ()
        said = f"{listed(names)} hold{'' if len(names) > 1 else 's'} numbers by position, as a mask or angles do, and"
        said = f"{said} {'are' if len(names) > 1 else 'is'} kept; what trains all arrays of a module trains them, too"
        return (noted("table-kept", said, names=names),)

    def call_of(self, module: eqx.Module) -> tuple[Callable[..., Any], int]:
        return type(_inside(module)).__call__, 1

    def live(self, module: eqx.Module) -> LiveModule:
        """Of a call that was compiled the module in it: whatever is on JAX is asked compiled."""
        refuse_uncalled(module)
        given_in, module = self.wrappers(module), _inside(module)
        still = eqx.nn.inference_mode(module)
        parameters, static = eqx.partition(still, _is_parameter)
        kind = type(module)
        signature = signature_of(kind.__call__, f"{kind.__name__}.__call__", skipped=1)
        _, trained = eqx.partition(eqx.nn.inference_mode(module, value=False), _is_parameter)
        made, in_training = (partial(_combined, each) for each in (static, trained))
        live = JaxModule(batched(functional_of(still, self.tree, made, parameters, signature, in_training)))
        live.given_in = given_in
        return live


def _inside(module: Any) -> Any:
    """The module that `filter_jit` made a function of; itself, of any other."""
    found = getattr(module, "__wrapped__", module)
    return found if isinstance(found, eqx.Module) else module


def _is_parameter(leaf: Any) -> bool:
    """Whether a leaf is an array, and no table of positions, of which Equinox knows nothing."""
    return bool(eqx.is_inexact_array(leaf)) and not is_table(leaf)


def _combined(static: Any, tree: Any) -> Any:
    return eqx.combine(tree, static)


FRAMEWORK = _Equinox()
