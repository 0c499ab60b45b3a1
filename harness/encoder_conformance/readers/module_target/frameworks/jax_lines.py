"""The lines of the user's source that make the values of an export by JAX, which has names of its own.

The program that JAX traces knows the line of each of its steps. A value of the export is of the step that gives the
same numbers for the same x, however they are laid out; where several lines give them, it is of none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from traceback import FrameSummary, extract_tb
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx

from encoder_conformance import Tensors
from encoder_conformance.readers.module_target.calling_lines import code_in
from encoder_conformance.readers.module_target.frameworks.jax_compiled import Compiled
from encoder_conformance.readers.module_target.frameworks.jax_programs import answers_of, called_program, followed
from encoder_conformance.readers.onnx_file.graph.execution import ModelRunner
from encoder_conformance.spec.axes import Array, P

LIBRARIES = ("jax", "flax", "equinox", "haiku", "keras", "einops", "jaxtyping")
"""Packages whose lines are not the user's."""
_FEWEST = 3
"""Numbers of a value that is known by them, as one of each item of a batch."""
_SAME = 2e-5
"""The largest difference of two equal values, of their largest number: roundoff of float32, by XLA and another."""
_MOVES = frozenset((
    "reshape", "transpose", "broadcast_in_dim", "squeeze", "expand_dims", "convert_element_type", "copy", "copy_p",
    "stop_gradient", "rev", "split", "slice", "concatenate",
))  # fmt: skip
"""Primitives that give the numbers that they take."""


@dataclass(frozen=True)
class _Step:
    """A step of the program: the value that it gives, the line that calls it, and whether it only moves numbers."""

    value: Array
    line: str
    moves: bool


class LinesByValue:
    """Is given a value of an export, and finds its line. `function`: what was exported, of x."""

    def __init__(
        self, function: Callable[[jax.Array], jax.Array], model: onnx.ModelProto, x_shape: tuple[int, ...]
    ) -> None:
        self._function, self._model, self._shape = function, model, x_shape

    def __call__(self, name: str, moved: bool = False) -> str:
        """`model.py:12: x = x + self.attend(x)`; "" for a value that no line gives, or several do. `moved`: the line of
        the last step that only moves its numbers, if any does.

        What no step gives is inside of what a step was exported as: it is of the line of what is made of it, where all
        steps since what it is made of are of that line.
        """
        made = name
        while made and not self._giving(made):
            made = self._made_of(made)
        if not made:
            return ""
        steps = [self._steps[number] for number in self._giving(made)]
        if moved and (moves := [step.line for step in steps if step.moves and step.line]):
            return moves[-1]
        lines = {step.line for step in steps if not step.moves} or {steps[0].line}
        if made != name:
            lines |= {step.line for step in self._steps[self._last_before(name) + 1 : self._giving(made)[0] + 1]}
        return lines.pop() if len(lines) == 1 else ""

    def _giving(self, name: str) -> list[int]:
        """The numbers of the steps that give the same as a value."""
        value = _in_order(self._values[name]) if name in self._values else None
        return [] if value is None else [n for n, step in enumerate(self._steps) if _same(value, step.value)]

    def _made_of(self, name: str) -> str:
        """The one value that is made of this one; "" where several are, or none."""
        readers = [node for node in self._model.graph.node if name in node.input]
        return readers[0].output[0] if len(readers) == 1 else ""

    def _last_before(self, name: str) -> int:
        """The number of the last step that gives what a value is made of; −1 where that is x alone."""
        before = [each for each in self._producers[name].input if each in self._producers]
        found = (self._giving(each) for each in before)
        return max(
            (given[0] if given else self._last_before(each) for each, given in zip(before, found, strict=True)),
            default=-1,
        )

    @cached_property
    def _producers(self) -> dict[str, onnx.NodeProto]:
        return {name: node for node in self._model.graph.node for name in node.output}

    @cached_property
    def _x(self) -> Array:
        return np.random.default_rng(6).normal(size=self._shape).astype(np.float32)

    @cached_property
    def _values(self) -> Tensors:
        """The export's."""
        return ModelRunner(self._model).trace({self._model.graph.input[0].name: self._x})

    @cached_property
    def _steps(self) -> list[_Step]:
        traced, known = jax.make_jaxpr(self._function)(self._x), list[tuple[str, bool]]()

        def values(x: jax.Array) -> list[jax.Array]:
            found = list[tuple[jax.Array, str, bool]]()
            _evaluated(traced.jaxpr, [*traced.consts, x], (), lambda *each: found.append(each))
            known[:] = [(line, moves) for _, line, moves in found]
            return [value for value, _, _ in found]

        answers = Compiled(values)(self._x)
        pairs = zip(answers, known, strict=True)
        return [_Step(_in_order(np.asarray(value)), line, moves) for value, (line, moves) in pairs]


def _evaluated(
    program: Any, given: Sequence[Any], around: Sequence[FrameSummary], note: Callable[[jax.Array, str, bool], None]
) -> list[Any]:
    """The results of a program for its constants and what it is given. `note` takes the value of each step, its line,
    and whether it moves numbers; of a function that it calls, those of its steps. `around`: the frames of that call."""

    def answers(step: Any, taken: list[Any]) -> Sequence[Any]:
        frames = frames_of(step, around)
        if (called := called_program(step)) is not None:
            inner, constants = called
            return _evaluated(inner, [*constants, *taken], frames, note)
        found, line = answers_of(step, taken), code_in(frames, LIBRARIES)
        for each in found:
            if jnp.issubdtype(each.dtype, jnp.floating) and each.size >= _FEWEST:
                note(each, line, step.primitive.name in _MOVES)
        return found

    return followed(program, given, lambda number: number, answers)


def frames_of(step: Any, around: Sequence[FrameSummary] = ()) -> list[FrameSummary]:
    """The frames of a step, the outermost first. `around`: those of the call that it is a step of. What is called twice
    is traced once: where its frames are not its own alone, but from those of the first call on, the call's are told."""
    trace = step.source_info.traceback
    own = [] if trace is None else list(extract_tb(trace.as_python_traceback()))
    if around and own and (own[0].filename, own[0].name) == (around[0].filename, around[0].name):
        return list(around)
    return [*around, *own]


def _in_order(value: Array) -> P:
    """Its numbers [n] by size, whatever its shape."""
    return np.sort(value.astype(np.float64), axis=None)


def _same(one: P, other: P) -> bool:
    """Whether these numbers, in order, are equal up to roundoff, and are more than one number again and again. Where
    scores are hidden some are infinite, in both."""
    if one.size != other.size or one.size < _FEWEST:
        return False
    known = np.isfinite(one)
    if known.sum() < _FEWEST or not np.array_equal(one[~known], other[~known]) or not np.isfinite(other[known]).all():
        return False
    one, other = one[known], other[known]
    return bool(one[0] < one[-1] and np.abs(one - other).max() <= _SAME * np.abs(one).max())
