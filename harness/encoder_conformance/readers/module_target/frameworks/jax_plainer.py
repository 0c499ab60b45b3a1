"""Takes out of a program of JAX, before it is exported, what JAX alone has: steps that say where an array lies, and
products of whole numbers with others, as of positions with frequencies in `einsum("i,j->ij", positions, frequencies)`.
"""

from collections.abc import Sequence
from typing import Any

import jax

from encoder_conformance.readers.module_target.frameworks.jax_programs import (
    answers_of,
    called_program,
    followed,
    steps_inside,
)

_PRODUCT = "dot_general"
_SAYING_WHERE = ("reshard", "mesh_cast", "sharding_constraint", "optimization_barrier", "pvary")
"""Steps that give what they take."""


def may_be_plainer(program: Any) -> bool:
    """Whether a step of the traced program, or of what it calls, is one of these."""
    return any(_is_mixed(step) or step.primitive.name in _SAYING_WHERE for step, _ in steps_inside(program))


def plainer(program: Any, constants: Sequence[Any], given: jax.ShapeDtypeStruct) -> Any:
    """The traced program of x, in which each side of such a product is first brought to the format of the result."""
    return jax.make_jaxpr(lambda x: _evaluated(program, constants, [x])[0])(given)


def _is_mixed(step: Any) -> bool:
    return step.primitive.name == _PRODUCT and len({each.aval.dtype for each in step.invars}) > 1


def _evaluated(program: Any, constants: Sequence[Any], given: Sequence[Any]) -> list[Any]:
    return followed(program, [*constants, *given], lambda number: number, _answers)


def _answers(step: Any, given: list[Any]) -> list[Any]:
    if step.primitive.name in _SAYING_WHERE:
        return given
    if _is_mixed(step):
        given = [jax.lax.convert_element_type(each, step.outvars[0].aval.dtype) for each in given]
    elif (called := called_program(step)) is not None and may_be_plainer(called[0]):
        return _evaluated(*called, given)
    return answers_of(step, given)
