"""Walks the program that JAX traces of a function: through each of its steps, or with a value for each."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jax.extend.core import Literal

_CALLS = ("jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat", "checkpoint")
"""Primitives that call a function of the same arguments, which is then followed."""
_FUNCTIONS = ("jaxpr", "call_jaxpr", "fun_jaxpr")
"""The parameter that has it."""


def steps_inside(program: Any, around: Sequence[Any] = ()) -> Iterator[tuple[Any, Sequence[Any]]]:
    """Each step of a program, or of several in a list, and the steps that it is inside of, the outermost first; those
    inside of a step before it. `around`: the steps that this program is inside of."""
    if isinstance(program, (list, tuple)):
        for each in program:
            yield from steps_inside(each, around)
    for step in getattr(getattr(program, "jaxpr", program), "eqns", ()):
        for parameter in step.params.values():
            yield from steps_inside(parameter, (*around, step))
        yield step, around


def called_program(step: Any) -> tuple[Any, Sequence[Any]] | None:
    """The program, and its constants, that a step calls with what it is given; None where it is no call."""
    called = next((step.params[name] for name in _FUNCTIONS if name in step.params), None)
    if step.primitive.name not in _CALLS or called is None:
        return None
    return getattr(called, "jaxpr", called), getattr(called, "consts", ())


def answers_of(step: Any, given: list[Any], changed: Callable[[Any], Any] = lambda parameter: parameter) -> list[Any]:
    """What a step that is no call gives. `changed`: its parameters, each in place of its own."""
    bound = step.primitive.get_bind_params(step.params)
    functions, parameters = bound if isinstance(bound, tuple) else ((), bound)  # as versions of JAX have it
    own = {name: changed(each) for name, each in parameters.items()}
    answer = step.primitive.bind(*functions, *given, **own)
    return list(answer) if step.primitive.multiple_results else [answer]


def followed(
    program: Any,
    given: Sequence[Any],
    number: Callable[[Any], Any],
    answers: Callable[[Any, list[Any]], Sequence[Any]],
) -> list[Any]:
    """The results of a program, step by step. `given`: its constants, and what it is called with; `number`: what one
    that stands in it is; `answers`: what a step gives for what it takes."""
    held = dict(zip((*program.constvars, *program.invars), given, strict=True))

    def value(of: Any) -> Any:
        return number(of.val) if isinstance(of, Literal) else held[of]

    for step in program.eqns:
        held.update(zip(step.outvars, answers(step, [value(each) for each in step.invars]), strict=True))
    return [value(each) for each in program.outvars]
