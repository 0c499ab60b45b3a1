"""JAX: a function of parameters and inputs, with its parameters: a pair, a functools.partial, a state of training."""

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import jax
import numpy as np

from encoder_conformance.readers.module_target.calling import in_training, is_random, signature_of
from encoder_conformance.readers.module_target.frameworks.jax_framework import JaxFramework, Nested, pair_of
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

_Pair = tuple[Callable[..., Any], Any]
_Module = _Pair | partial[Any]


def _split(found: object) -> _Pair | None:
    """The function, whose first argument is its parameters, and these; None where it is none such."""
    if isinstance(found, partial) and len(found.args) == 1:
        found = partial(found.func, **found.keywords), found.args[0]
    if (pair := pair_of(found)) is None or not callable(pair[0]):
        return None
    held = jax.tree.leaves(pair[1])
    return pair if held and all(isinstance(leaf, (jax.Array, np.ndarray)) for leaf in held) else None


def _parted(module: _Module) -> _Pair:
    pair = _split(module)
    assert pair is not None
    return pair


class _Function(JaxFramework):
    name = "JAX"
    packages = ("jax",)
    tree: Tree = Nested()
    """A function has no parts."""

    def owns(self, found: object) -> bool:
        return _split(found) is not None

    def arrays(self, module: _Module) -> Any:
        return _parted(module)[1]

    def call_of(self, module: _Module) -> tuple[Callable[..., Any], int]:
        return _parted(module)[0], 1

    def live(self, module: _Module) -> LiveModule:
        given, parameters = _parted(module)
        function, known = _with_its_key_by_name(given), getattr(given, "func", given)
        name = getattr(known, "__qualname__", type(known).__name__)
        signature = signature_of(function, name, skipped=1)

        def bind(tree: Any, _: Keep | None = None) -> Called:
            return partial(function, tree)

        told = in_training(function, jax.random.key(SEED))
        type_name = f"{getattr(known, '__module__', '')}.{name}"
        made = Functional(bind, parameters, signature, type_name, shown=False, training=bind, told_in_training=told)
        return JaxModule(batched(made))


def _with_its_key_by_name(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of parameters, a key of random numbers and whatever stands behind it, as what Haiku makes of a module,
    takes that key by its name: x is the first of what stands behind."""
    given = [*inspect.signature(function).parameters.values()]
    kinds = [each.kind for each in given[:3]]
    if kinds != [inspect.Parameter.POSITIONAL_OR_KEYWORD] * 2 + [inspect.Parameter.VAR_POSITIONAL]:
        return function
    held, key, *others = given
    if not is_random(key.name):
        return function

    @wraps(function)
    def called(tree: Any, *by_place: Any, **by_name: Any) -> Any:
        return function(tree, by_name.pop(key.name, None), *by_place, **by_name)

    by_its_name = key.replace(kind=key.KEYWORD_ONLY)
    called.__signature__ = inspect.Signature([held, others[0], by_its_name, *others[1:]])  # type: ignore[attr-defined]
    return called


FRAMEWORK = _Function()
