"""Takes out of a program of JAX, before it is exported, what JAX alone has: steps that say where an array lies, keys of
random numbers, products of whole numbers with others, as of positions with frequencies in
`einsum("i,j->ij", positions, frequencies)`, products of element with element, as in
`einsum("bhsd,bsd->bhsd", heads, cosines)`, and of some elements in their place, as in `x.at[..., 0].multiply(-1)`,
what is written part by part, as in `y.at[..., ::2].set(even)`, and axes that are turned by what gives another shape, as
in `hstack(heads)` of one array."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from encoder_conformance.readers.module_target.frameworks.jax_programs import (
    answers_of,
    called_program,
    followed,
    steps_inside,
)
from encoder_conformance.readers.module_target.frameworks.jax_written import Written, written

_PRODUCT = "dot_general"
_SHAPE = "reshape"
_TIMES_SOME = "scatter-mul", "scatter_mul"
_WRITES = "scatter"
_COUNTS = "iota"
_SAYING_WHERE = ("reshard", "mesh_cast", "sharding_constraint", "optimization_barrier", "pvary")
"""Steps that give what they take."""
_OF_KEYS = (
    "random_seed",
    "random_wrap",
    "random_unwrap",
    "random_split",
    "random_fold_in",
    "random_bits",
    "threefry2x32",
)
"""Steps that draw, or make keys of which is drawn."""


class _Known(NamedTuple):
    """A number that stands in the program, or what is `drawn` and made of such alone: computed here."""

    value: Any
    drawn: bool


def may_be_plainer(program: Any) -> bool:
    """Whether a step of the traced program, or of what it calls, is one of these."""
    odd = (*_SAYING_WHERE, *_OF_KEYS, *_TIMES_SOME, _WRITES)
    steps = (step for step, _ in steps_inside(program))
    return any(
        _is_mixed(step) or _is_by_element(step) or _turns_axes(step) or step.primitive.name in odd for step in steps
    )


def plainer(program: Any, constants: Sequence[Any], given: jax.ShapeDtypeStruct) -> Any:
    """The traced program of x, with the numbers that are drawn in the place of their keys, each side of a product of
    two formats first brought to that of the result, and products of elements as those."""
    return jax.make_jaxpr(lambda x: _plain(_evaluated(program, constants, [x])[0]))(given)


def _is_mixed(step: Any) -> bool:
    return step.primitive.name == _PRODUCT and len({each.aval.dtype for each in step.invars}) > 1


def _is_by_element(step: Any) -> bool:
    """Whether it is a product that sums over nothing, of arrays that share axes."""
    if step.primitive.name != _PRODUCT:
        return False
    (summed, _), (shared, _) = step.params["dimension_numbers"]
    return not summed and bool(shared)


def _turns_axes(step: Any) -> bool:
    """Whether it gives another shape to what it turns first, of which an exporter may leave out the turn."""
    return step.primitive.name == _SHAPE and step.params["dimensions"] is not None


def _by_element(step: Any, one: Any, other: Any) -> jax.Array:
    """The same product, of arrays that are brought to [*shared, *own of one, *own of other]."""
    _, shared = step.params["dimension_numbers"]
    own = [[axis for axis in range(each.ndim) if axis not in of] for each, of in zip((one, other), shared, strict=True)]
    first, second = (
        jnp.transpose(each, (*of, *left)) for each, of, left in zip((one, other), shared, own, strict=True)
    )
    first = first.reshape(*first.shape, *[1] * len(own[1]))
    count = len(shared[1])
    second = second.reshape(*second.shape[:count], *[1] * len(own[0]), *second.shape[count:])
    return first * second


def _factors(step: Any, x: Any, places: Any, by: Any) -> jax.Array:
    """What each element of x is multiplied with where some are, in their places; once along an axis where it is the
    same all along."""
    with jax.ensure_compile_time_eval():
        [factors] = answers_of(step, [jnp.ones(x.shape, x.dtype), places, by])
        for axis in range(factors.ndim):
            first = jax.lax.slice_in_dim(factors, 0, 1, axis=axis)
            factors = first if bool((factors == first).all()) else factors
    return factors


def _evaluated(program: Any, constants: Sequence[Any], given: Sequence[Any]) -> list[Any]:
    return followed(program, [*constants, *given], lambda number: _Known(number, drawn=False), _answers)


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, _Known | Written) else value


def _answers(step: Any, given: list[Any]) -> list[Any]:
    name, drawn = step.primitive.name, any(isinstance(each, _Known) and each.drawn for each in given)
    if name in _SAYING_WHERE:
        return given
    if (called := called_program(step)) is not None and (drawn or may_be_plainer(called[0])):
        return _evaluated(*called, given)
    plain = [*map(_plain, given)]
    if name in (*_OF_KEYS, _COUNTS) or (given and all(isinstance(each, _Known) for each in given)):
        with jax.ensure_compile_time_eval():
            return [_Known(each, drawn or name in _OF_KEYS) for each in answers_of(step, plain)]
    if name == "mul" and (kept := [each for each in given if not _keeps_all(each)]) and len(kept) < len(given):
        return kept
    if _is_mixed(step):
        plain = [jax.lax.convert_element_type(each, step.outvars[0].aval.dtype) for each in plain]
    if name in _TIMES_SOME and all(isinstance(each, _Known) for each in given[1:]):
        return [plain[0] * _factors(step, *plain)]
    if name == _WRITES and isinstance(given[1], _Known):
        [value] = answers_of(step, plain)
        return [written(given[0], value, plain[2], lambda into, by: answers_of(step, [into, plain[1], by])[0])]
    if _turns_axes(step):
        return [jnp.transpose(plain[0], step.params["dimensions"]).reshape(step.params["new_sizes"])]
    if _is_by_element(step):
        return [_by_element(step, *plain).astype(step.outvars[0].aval.dtype)]
    return answers_of(step, plain)


def _keeps_all(value: Any) -> bool:
    """Whether it is what is kept where nothing is dropped."""
    return (
        isinstance(value, _Known)
        and value.drawn
        and value.value.ndim > 0
        and bool((np.asarray(value.value) == 1).all())
    )
