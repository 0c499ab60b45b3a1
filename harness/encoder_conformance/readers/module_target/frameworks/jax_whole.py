"""A whole module on JAX as a function of named inputs: what Linen, NNX, Equinox and plain functions have in common."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from encoder_conformance.protocol.steps import TracedStep
from encoder_conformance.readers.module_target.errors import last_frames
from encoder_conformance.readers.module_target.frameworks.jax_compiled import Compiled
from encoder_conformance.readers.module_target.frameworks.jax_trace import traced
from encoder_conformance.readers.module_target.frameworks.jax_tree import Functional, Tree, wide
from encoder_conformance.readers.module_target.frameworks.jax_widened import narrow_steps, widened
from encoder_conformance.readers.module_target.given_as import arguments_of, converted, tensors_in
from encoder_conformance.readers.module_target.whole import WholeModule
from encoder_conformance.spec.axes import Array

_WIDE = ("float32", "float64")


class WholeJax(WholeModule):
    """`forward`: what has the signature of its call, after `skipped` arguments."""

    def __init__(self, of: Functional, forward: Callable[..., Any], skipped: int = 0) -> None:
        self._of, self._tree, self._precision = of, of.parameters, "own"
        self._told = dict(of.signature.fixed)
        taken, self.free = arguments_of(forward, skipped=skipped)
        self.taken = [each for each in taken if self._told.get(each.name) is None]
        self._told = {name: value for name, value in self._told.items() if value is not None}
        self._programs: dict[object, Any] = {}
        self._items: list[bool] = []

    def _disturbed(self, precision: str, seed: int | None, roundoff: float) -> "WholeJax":
        made: WholeJax = object.__new__(type(self))
        made.__dict__ |= self.__dict__  # its programs, too, which are compiled
        draw = None if seed is None else np.random.default_rng(seed)
        made._precision, made._last = precision, None
        with wide(precision):
            made._tree = jax.tree.map(lambda leaf: _held(leaf, precision, draw, roundoff), self._tree)
        return made

    def outputs(self, given: Mapping[str, Any]) -> dict[str, Array]:
        """Raises RuntimeError, with the last frames of the module's own traceback."""
        with wide(self._precision):
            fed = converted(given, self._array)
            try:
                answer = self._answer(fed)
            except Exception as error:
                raise RuntimeError(last_frames(error)) from None
            return {name: np.asarray(value) for name, value in answer.items()}

    def steps(self, given: Mapping[str, Any]) -> tuple[list[TracedStep], dict[str, Array]]:
        """Of its program, evaluated step by step. Raises RuntimeError as `outputs` does."""
        with wide(self._precision):
            fed = converted(given, self._array)
            try:
                self._answer(fed)  # which settles whether it takes one item at a time
                return traced(self._program(fed, by_item=True in self._items), self._tree, fed)
            except Exception as error:
                raise RuntimeError(last_frames(error)) from None

    def _answer(self, fed: Mapping[str, Any]) -> dict[str, jax.Array]:
        """Of the batch; or of each item, where it takes one at a time."""
        try:
            return self._called(fed, by_item=True in self._items)
        except Exception:  # whatever a module of one item does with a batch
            if self._items:
                raise
            with suppress(Exception):
                return self._called(fed, by_item=True)
            raise

    def _called(self, fed: Mapping[str, Any], *, by_item: bool) -> dict[str, jax.Array]:
        key = by_item, self._precision
        if key not in self._programs:
            self._programs[key] = Compiled(self._program(fed, by_item=by_item))
        found: dict[str, jax.Array] = self._programs[key](self._tree, dict(fed))
        self._items[:] = [by_item]
        return found

    def _program(self, fed: Mapping[str, Any], *, by_item: bool) -> Callable[[Tree, Any], Any]:
        def function(tree: Tree, fed: Mapping[str, Any]) -> dict[str, jax.Array]:
            answer = self._of.bind(tree, None)(**fed, **self._told)
            return dict(tensors_in(answer, lambda value: isinstance(value, jax.Array)))

        def mapped(tree: Tree, fed: Any) -> Any:
            return jax.vmap(lambda item: function(tree, item))(fed)

        made = mapped if by_item else function
        if self._precision in _WIDE and _has_narrow(made, self._tree, dict(fed)):
            return widened(made)
        return made

    def _array(self, value: Array) -> jax.Array:
        """[*shape], in the format of the parameters what is of floating-point numbers."""
        formats = (leaf.dtype for leaf in jax.tree.leaves(self._tree) if jnp.issubdtype(leaf.dtype, jnp.floating))
        format = next(formats, np.dtype("float32"))
        return jnp.asarray(value, None if value.dtype.kind in "iub" else format)


def _has_narrow(function: Callable[..., Any], tree: Tree, fed: Any) -> bool:
    try:
        traced = jax.make_jaxpr(function)(tree, fed)
    except jax.errors.JAXTypeError:  # where numbers decide, which are not known
        return False
    return next(narrow_steps(traced.jaxpr), None) is not None


def _held(leaf: Any, precision: str, draw: np.random.Generator | None, roundoff: float) -> jax.Array:
    """A leaf in this format, another by up to `roundoff` of itself; one of integers stays."""
    value = np.asarray(leaf)
    if not jnp.issubdtype(value.dtype, jnp.floating):
        return jnp.asarray(value)
    held = value.dtype if precision == "own" else np.dtype(precision) if precision in _WIDE else jnp.dtype(precision)
    wide = value.astype(np.float64)
    if draw is not None:
        wide = wide * (1.0 + roundoff * draw.uniform(-1.0, 1.0, wide.shape))
    return jnp.asarray(wide.astype(held))
