"""Flax NNX: nnx.Module, and what nnx.jit makes of one."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
from flax import nnx

from encoder_conformance.readers.module_target.calling import refuse_uncalled, signature_of
from encoder_conformance.readers.module_target.frameworks.jax_framework import JaxFramework, Nested
from encoder_conformance.readers.module_target.frameworks.jax_tree import Called, JaxModule, functional_of
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.parts import PartsOfModule, Tree


class _Nnx(JaxFramework):
    name = "Flax NNX"
    packages = ("flax", "jax")
    tree: Tree = Nested(nnx.Module)

    def owns(self, found: object) -> bool:
        return isinstance(_inside(found), nnx.Module)

    def arrays(self, module: Any) -> Any:
        return nnx.to_pure_dict(nnx.state(_inside(module), nnx.Param))

    def wrappers(self, module: Any) -> tuple[str, ...]:
        return ("nnx.jit",) if hasattr(module, "__wrapped__") else ()

    def parts(self, module: Any) -> PartsOfModule:
        return super().parts(_inside(module))

    def call_of(self, module: Any) -> tuple[Callable[..., Any], int]:
        return _inside(module).__call__, 0

    def live(self, module: Any) -> LiveModule:
        """Of a compiled module the one in it: whatever is on JAX is asked compiled."""
        given_in, module = self.wrappers(module), _inside(module)
        refuse_uncalled(module)
        graph, parameters, rest = nnx.split(module, nnx.Param, ...)
        still = nnx.merge(graph, parameters, rest)
        still.eval()
        graph, parameters, rest = nnx.split(still, nnx.Param, ...)
        signature = signature_of(still.__call__, f"{type(module).__name__}.__call__")
        trained = nnx.merge(graph, parameters, rest)
        trained.train()

        def given(split: tuple[Any, Any], tree: Any) -> Any:
            graph, rest = split
            state, counters = (jax.tree.map(lambda leaf: leaf, each) for each in (parameters, rest))  # of this trace
            nnx.replace_by_pure_dict(state, tree)
            return nnx.merge(graph, state, counters)

        in_training, _, drawn = nnx.split(trained, nnx.Param, ...)
        made, training = partial(given, (graph, rest)), partial(given, (in_training, drawn))
        pure = nnx.to_pure_dict(parameters)
        _, _, drawing, state = nnx.split(still, nnx.Param, nnx.RngState, ...)

        def step(tree: Any, held: Any, call: Callable[[Called], Any]) -> tuple[Any, Any]:
            """What it returns, and what it holds after it, but for its random numbers."""
            own, now = nnx.state(still, nnx.Param), jax.tree.map(lambda leaf: leaf, state)
            nnx.replace_by_pure_dict(own, tree)
            nnx.replace_by_pure_dict(now, held)
            live = nnx.merge(graph, own, drawing, now)
            answer = call(live)
            return answer, nnx.to_pure_dict(nnx.split(live, nnx.Param, nnx.RngState, ...)[3])

        found = functional_of(still, self.tree, made, pure, signature, training)
        live = JaxModule(replace(found, held=nnx.to_pure_dict(state), step=step))
        live.given_in = given_in
        return live


def _inside(found: Any) -> Any:
    """The module that `nnx.jit` compiled, or `nnx.split` made a pair of; itself, of any other."""
    if isinstance(found, tuple) and found and isinstance(found[0], nnx.GraphDef):
        found = nnx.merge(*found)
    held = getattr(found, "__wrapped__", found)
    return held if isinstance(held, nnx.Module) else found


FRAMEWORK = _Nnx()
