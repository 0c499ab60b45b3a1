"""JAX: a pair of a function of parameters and inputs, and its parameters."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from encoder_conformance.readers.module_target.calling import in_training, signature_of
from encoder_conformance.readers.module_target.frameworks.jax_framework import JaxFramework, Nested
from encoder_conformance.readers.module_target.frameworks.jax_tree import (
    SEED,
    Called,
    Functional,
    JaxModule,
    Keep,
    batched,
)
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.parts import Tree


class _Function(JaxFramework):
    name = "JAX"
    packages = ("jax",)
    tree: Tree = Nested()
    """A function has no parts."""

    def owns(self, found: object) -> bool:
        if not (isinstance(found, tuple) and len(found) == 2 and callable(found[0])):
            return False
        held = jax.tree.leaves(found[1])
        return bool(held) and all(isinstance(leaf, (jax.Array, np.ndarray)) for leaf in held)

    def arrays(self, module: tuple[Callable[..., Any], Any]) -> Any:
        return module[1]

    def call_of(self, module: tuple[Callable[..., Any], Any]) -> tuple[Callable[..., Any], int]:
        return module[0], 1

    def live(self, module: tuple[Callable[..., Any], Any]) -> LiveModule:
        function, parameters = module
        name = getattr(function, "__qualname__", type(function).__name__)
        signature = signature_of(function, name, skipped=1)

        def bind(tree: Any, _: Keep | None = None) -> Called:
            return partial(function, tree)

        told = in_training(function, jax.random.key(SEED))
        type_name = f"{getattr(function, '__module__', '')}.{name}"
        made = Functional(bind, parameters, signature, type_name, shown=False, training=bind, told_in_training=told)
        return JaxModule(batched(made))


FRAMEWORK = _Function()
