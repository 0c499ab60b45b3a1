"""Computes a function of JAX without its narrow formats: where a module casts to bfloat16 by itself, its copy in
float32 casts to float32."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from encoder_conformance.readers.module_target.frameworks.jax_programs import (
    answers_of,
    called_program,
    followed,
    steps_inside,
)

_NARROW = frozenset(map(jnp.dtype, (jnp.bfloat16, jnp.float16)))
_OF_FORMULAS = (np.sqrt(2 / np.pi), 0.044715, np.sqrt(0.5), 1.702, *(10.0**-digits for digits in range(3, 13)))
"""Numbers that a program holds rounded to a narrow format: of activations, and epsilons."""


def widened(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same with the widest format of its arguments in place of each narrow one.

    Raises NotImplementedError, once it is called, for a loop or a branch that computes in a narrow one.
    """

    def wide(*given: Any) -> Any:
        values = jax.tree.leaves(given)
        format = jnp.result_type(*(value for value in values if jnp.issubdtype(value.dtype, jnp.floating)))
        traced, shape = jax.make_jaxpr(function, return_shape=True)(*given)
        answers = _Wide(format).evaluated(traced.jaxpr, traced.consts, values)
        return jax.tree.unflatten(jax.tree.structure(shape), answers)

    return wide


def narrow_steps(program: Any) -> Iterator[tuple[str, Any]]:
    """The steps of a program, or of several in a list, that give numbers in a narrow format, each with its name; those
    inside of a step stand before it."""
    for step, _ in steps_inside(program):
        formats = {getattr(each.aval, "dtype", None) for each in step.outvars}
        yield from ((str(each), step) for each in formats & _NARROW)


class _Wide:
    def __init__(self, format: Any) -> None:
        self._format = format

    def evaluated(self, program: Any, constants: Sequence[Any], given: Sequence[Any]) -> list[Any]:
        """The results of a program for what it is given."""
        return followed(program, [*map(self._cast, (*constants, *given))], self._number, self._answers)

    def _answers(self, step: Any, given: list[Any]) -> list[Any]:
        if (called := called_program(step)) is not None:
            return self.evaluated(*called, given)
        if next(narrow_steps([*step.params.values()]), None) is not None:
            raise NotImplementedError(f"{step.primitive.name} computes in a narrow format")
        return answers_of(step, given, self._wide)

    def _cast(self, value: Any) -> Any:
        return jnp.asarray(value, self._format) if getattr(value, "dtype", None) in _NARROW else value

    def _number(self, value: Any) -> Any:
        """A number that stands in the program: of a formula that which was rounded."""
        if getattr(value, "dtype", None) not in _NARROW or np.ndim(value):
            return self._cast(value)
        rounded = (each for each in _OF_FORMULAS if np.asarray(each, value.dtype) == value)
        return jnp.asarray(next(rounded, value), self._format)

    def _wide(self, parameter: Any) -> Any:
        """A parameter of a step: a narrow format is the wide one."""
        is_format = isinstance(parameter, (jnp.dtype, type)) and parameter in _NARROW
        return jnp.dtype(self._format) if is_format else parameter
