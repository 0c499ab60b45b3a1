"""Computes what a program of JAX makes of complex constants before it is exported: rotary positions are often the real
and the imaginary parts of a table, and the exporter takes a complex array for one more axis."""

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from encoder_conformance.readers.module_target.frameworks.jax_programs import answers_of, called_program, followed


def without_complex_constants(program: Any, constants: Sequence[Any], given: jax.ShapeDtypeStruct) -> Any:
    """The traced program of x, with what is made of complex constants alone in the place of its steps."""
    return jax.make_jaxpr(lambda x: _evaluated(program, constants, [x])[0])(given)


def _evaluated(program: Any, constants: Sequence[Any], given: Sequence[Any]) -> list[Any]:
    """The results of a program for what it is given, step by step."""
    return followed(program, [*constants, *given], lambda number: number, _answers)


def _answers(step: Any, given: list[Any]) -> list[Any]:
    if not any(map(_is_complex, _arrays_in(step))):
        return answers_of(step, given)
    if (called := called_program(step)) is not None:
        return _evaluated(*called, given)
    if any(isinstance(each, jax.core.Tracer) for each in given):
        return answers_of(step, given)
    with jax.ensure_compile_time_eval():
        return answers_of(step, given)


def _arrays_in(step: Any) -> Iterator[Any]:
    """What it takes and gives, and the steps of what it calls."""
    yield from (each.aval for each in (*step.invars, *step.outvars))
    if (called := called_program(step)) is not None:
        for inner in called[0].eqns:
            yield from _arrays_in(inner)


def _is_complex(array: Any) -> bool:
    return bool(jnp.issubdtype(getattr(array, "dtype", jnp.float32), jnp.complexfloating))
