"""Computes a function of JAX without its narrow formats: where a module casts to bfloat16 by itself, its copy in
float32 casts to float32."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Literal

_NARROW = frozenset(map(jnp.dtype, (jnp.bfloat16, jnp.float16)))
_CALLS = ("jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat", "checkpoint")
"""Primitives that call a function of the same arguments, which is then followed."""
_FUNCTIONS = ("jaxpr", "call_jaxpr", "fun_jaxpr")
"""The parameter that has it."""


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
    if isinstance(program, (list, tuple)):
        for each in program:
            yield from narrow_steps(each)
    for step in getattr(getattr(program, "jaxpr", program), "eqns", ()):
        for parameter in step.params.values():
            yield from narrow_steps(parameter)
        formats = {getattr(each.aval, "dtype", None) for each in step.outvars}
        yield from ((str(each), step) for each in formats & _NARROW)


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


class _Wide:
    def __init__(self, format: Any) -> None:
        self._format = format

    def evaluated(self, program: Any, constants: Sequence[Any], given: Sequence[Any]) -> list[Any]:
        """The results of a program for what it is given."""
        return followed(program, [*map(self._cast, (*constants, *given))], self._cast, self._answers)

    def _answers(self, step: Any, given: list[Any]) -> list[Any]:
        if (called := called_program(step)) is not None:
            return self.evaluated(*called, given)
        if next(narrow_steps([*step.params.values()]), None) is not None:
            raise NotImplementedError(f"{step.primitive.name} computes in a narrow format")
        return answers_of(step, given, self._wide)

    def _cast(self, value: Any) -> Any:
        return jnp.asarray(value, self._format) if getattr(value, "dtype", None) in _NARROW else value

    def _wide(self, parameter: Any) -> Any:
        """A parameter of a step: a narrow format is the wide one."""
        is_format = isinstance(parameter, (jnp.dtype, type)) and parameter in _NARROW
        return jnp.dtype(self._format) if is_format else parameter
