"""What a program of JAX computes inside: each step of it, of which others it is made, and its values."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from encoder_conformance.protocol.steps import TracedStep
from encoder_conformance.readers.module_target.frameworks.jax_programs import answers_of, called_program, followed
from encoder_conformance.readers.module_target.frameworks.jax_tree import Tree
from encoder_conformance.readers.module_target.noted_steps import NotedSteps
from encoder_conformance.spec.axes import Array


class _Known(NamedTuple):
    """A value of a program, and the step that made it; "" for a number that stands in the program."""

    value: Any
    step: str


class _Steps(NotedSteps):
    """Evaluates a program step by step, and notes what each gives."""

    def give(self, value: Any, name: str, kind: Literal["input", "parameter"]) -> _Known:
        """A value that is there before the first step."""
        return self._known(value, TracedStep(value="", made_by=f"{kind} {name!r}", takes=(), given=kind))

    def follow(self, program: Any, constants: Sequence[Any], given: Sequence[_Known]) -> list[_Known]:
        """The results of a program, or of one that it calls, for what it is given."""
        own = [self.give(each, "constant", "parameter") for each in constants]
        return followed(program, [*own, *given], lambda number: _Known(number, ""), self._answers)

    def _answers(self, step: Any, taken: Sequence[_Known]) -> list[_Known]:
        if (called := called_program(step)) is not None:
            return self.follow(*called, taken)
        operator, takes = step.primitive.name, tuple(each.step for each in taken if each.step)
        made = TracedStep(value="", made_by=operator, takes=takes, operator=operator)
        return [self._known(each, made) for each in answers_of(step, [each.value for each in taken])]

    def _known(self, value: Any, made: TracedStep) -> _Known:
        return _Known(value, self.note(made, np.size(value), lambda: _numbers(value)))


def _numbers(value: Any) -> Array | None:
    return np.asarray(value) if jnp.issubdtype(jnp.asarray(value).dtype, jnp.floating) else None


def traced(
    function: Callable[[Tree, Any], Any], parameters: Tree, fed: Mapping[str, Any]
) -> tuple[list[TracedStep], dict[str, Array]]:
    """The steps of a call of a function of parameters and inputs by name, and the values [*shape] of floating-point
    numbers by the number of their step."""
    program = jax.make_jaxpr(function)(parameters, dict(fed))
    own, inputs = (jax.tree_util.tree_leaves_with_path(each) for each in (parameters, dict(fed)))
    steps = _Steps(np.size(leaf) for _, leaf in own)
    given = [steps.give(leaf, jax.tree_util.keystr(path), "parameter") for path, leaf in own]
    given += [steps.give(leaf, jax.tree_util.keystr(path), "input") for path, leaf in inputs]
    steps.follow(program.jaxpr, program.consts, given)
    return steps.steps, steps.values
