"""Puts real numbers in the place of complex ones before a program of JAX is exported: rotary positions are often the
real and the imaginary parts of a table, or of a product with one, and the exporter takes a complex array for one more
axis."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from encoder_conformance.readers.module_target.frameworks.jax_programs import (
    answers_of,
    called_program,
    followed,
)
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError

_MOVING = ("reshape", "transpose", "broadcast_in_dim", "squeeze", "slice", "concatenate", "rev", "copy", "add", "sub")
"""Steps that do with each part of complex numbers what they do with real ones."""


class _Parts(NamedTuple):
    """Complex numbers that depend on x."""

    real: Any
    imaginary: Any


def has_complex(program: Any) -> bool:
    """Whether a step of the traced program takes or gives complex numbers."""
    return any(_is_complex(each) for step in program.eqns for each in _arrays_in(step))


def without_complex(program: Any, constants: Sequence[Any], given: jax.ShapeDtypeStruct) -> Any:
    """The traced program of x, with what is made of complex constants alone in the place of its steps, and two real
    numbers in that of each complex one that depends on x.

    Raises ExecutionError for a step of these that is not known."""
    return jax.make_jaxpr(lambda x: _evaluated(program, constants, [x])[0])(given)


def _evaluated(program: Any, constants: Sequence[Any], given: Sequence[Any]) -> list[Any]:
    """The results of a program for what it is given, step by step."""
    return followed(program, [*constants, *given], lambda number: number, _answers)


def _answers(step: Any, given: list[Any]) -> list[Any]:
    if not any(map(_is_complex, _arrays_in(step))):
        return answers_of(step, given)
    if (called := called_program(step)) is not None:
        return _evaluated(*called, given)
    if any(isinstance(each, (jax.core.Tracer, _Parts)) for each in given):
        return [_of_parts(step, given)]
    with jax.ensure_compile_time_eval():
        return answers_of(step, given)


def _of_parts(step: Any, given: list[Any]) -> Any:
    """What a step gives for complex numbers, some of which depend on x."""
    name, all_parts = step.primitive.name, [*map(_parts_of, given)]
    first, last = all_parts[0], all_parts[-1]
    match name:
        case "complex":
            return _Parts(*given)
        case "real":
            return first.real
        case "imag":
            return first.imaginary
        case "conj":
            return _Parts(first.real, -first.imaginary)
        case "neg":
            return _Parts(-first.real, -first.imaginary)
        case "convert_element_type" if _is_complex(step.outvars[0].aval):
            format = jnp.finfo(step.params["new_dtype"]).dtype
            return _Parts(*(part.astype(format) for part in first))
        case "mul":
            real = first.real * last.real - first.imaginary * last.imaginary
            return _Parts(real, first.real * last.imaginary + first.imaginary * last.real)
    if name not in _MOVING:
        raise ExecutionError(f"{name} of complex numbers that depend on x")
    return _Parts(*(answers_of(step, [each[part] for each in all_parts])[0] for part in range(2)))


def _parts_of(value: Any) -> _Parts:
    """Of a constant both are computed here, and not by steps of the program."""
    if isinstance(value, _Parts):
        return value
    if isinstance(value, jax.core.Tracer):
        return _Parts(value, jnp.zeros_like(value))
    return _Parts(np.asarray(value).real, np.asarray(value).imag)


def _arrays_in(step: Any) -> Iterator[Any]:
    """What it takes and gives, and the steps of what it calls."""
    yield from (each.aval for each in (*step.invars, *step.outvars))
    if (called := called_program(step)) is not None:
        for inner in called[0].eqns:
            yield from _arrays_in(inner)


def _is_complex(array: Any) -> bool:
    return bool(jnp.issubdtype(getattr(array, "dtype", jnp.float32), jnp.complexfloating))
