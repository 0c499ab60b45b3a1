"""JAX: a pair of a function of parameters and inputs, and its parameters."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from encoder_conformance.readers.module_target.calling import in_training, signature_of
from encoder_conformance.readers.module_target.frameworks.jax_framework import JaxFramework, Nested
from encoder_conformance.readers.module_target.frameworks.jax_tree import (
    SEED,
    Functional,
    JaxModule,
    Keep,
    Masks,
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

    def live(self, module: tuple[Callable[..., Any], Any]) -> LiveModule:
        function, parameters = module
        name = getattr(function, "__qualname__", type(function).__name__)
        signature = signature_of(function, name, skipped=1)

        def apply(tree: Any, x: jax.Array, masks: Masks, keep: Keep | None) -> Any:
            """The answer to x [B, S, D] and masks, as the module takes them."""
            return function(tree, x, **{**signature.fixed, **masks})

        def training(tree: Any, x: jax.Array, masks: Masks, _: Keep | None) -> Any:
            """The answer to x [B, S, D] and masks, in training."""
            return function(tree, x, **{**signature.fixed, **in_training(function, jax.random.key(SEED)), **masks})

        type_name = f"{getattr(function, '__module__', '')}.{name}"
        made = Functional(apply, parameters, signature, type_name, shown=False, training=training)
        return JaxModule(batched(made))


FRAMEWORK = _Function()
