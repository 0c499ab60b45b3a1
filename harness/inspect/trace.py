"""A trace: the stages of a case, each in the shape in which the live module showed it, judged by a golden if any."""

from dataclasses import dataclass, replace
from math import prod

from encoder_conformance.errors import InputError
from encoder_conformance.inspect.stage_docs import stage_notes
from encoder_conformance.judge.expected import Expected
from encoder_conformance.judge.verdict import judge_tensor
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import constants
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.stages import kind_of
from encoder_conformance.task import Task
from encoder_conformance.wire.frames import Tensors

_SECONDS_PER_PRODUCT = 20e-9
_SECONDS_PER_PARAMETER = 0.7e-6
"""What the oracle takes for golden and condition on one core of 2024; measured, and right within a factor of two."""
LONGEST_JUDGING = 600.0
_DROPPED = "; then dropout of {:g}, in the same shape (A-1)"


@dataclass(frozen=True)
class Row:
    """One stage. `shape` is what was observed, or None; `problem` says what of it is not as T-1 has it.

    `rms` and `max` are in σ; None where nothing was compared. `conforms` is False where either limit is passed.
    """

    stage: str
    shape: tuple[int, ...] | None
    note: str
    rms: float | None = None
    max: float | None = None
    conforms: bool = True
    problem: str | None = None


def trace(task: Task, observed: Tensors, expected: Expected | None) -> list[Row]:
    """A row for each stage that was due, in the order of computation, and then for each that was not asked for."""
    due = {name: task.case.expected_shapes("stages")[name] for name in task.tensors}
    rows = (_row(name, shape, observed, task.dtype, expected) for name, shape in due.items())
    dropped = {} if task.case.layer.is_stack else task.case.layer.dropout.rates()
    return [
        *(_with_dropout(row, dropped.get(row.stage, 0.0)) for row in rows),
        *(
            Row(name, observed[name].shape, "", conforms=False, problem="is no stage of this layer")
            for name in observed
            if name not in due
        ),
    ]


def _row(name: str, due: tuple[int, ...], observed: Tensors, dtype: str, expected: Expected | None) -> Row:
    note = stage_notes().get(kind_of(name), "")
    if name not in observed:
        return Row(name, None, note, conforms=False, problem=f"is missing; due in {list(due)}")
    found = observed[name]
    if found.shape != due:
        return Row(name, found.shape, note, conforms=False, problem=f"instead of {list(due)}")
    if found.dtype != FORMATS[dtype].numpy:
        return Row(name, found.shape, note, conforms=False, problem=f"{found.dtype} instead of {dtype}")
    if expected is None:
        return Row(name, found.shape, note)
    verdict = judge_tensor(name, found, expected.tensors[name], FORMATS[dtype], constants())
    return Row(
        name,
        found.shape,
        note,
        verdict.rms,
        verdict.max,
        verdict.conforms,
        verdict.problem.text if verdict.problem else None,
    )


def _with_dropout(row: Row, rate: float) -> Row:
    return replace(row, note=row.note + _DROPPED.format(rate)) if rate else row


def judging_seconds(case: Case) -> float:
    """About how long the oracle takes to say what the stages should be, and how noisy; refused beyond ten minutes."""
    B, S, D = case.x_shape
    parameters = sum(prod(shape) for name, shape in case.expected_shapes("gradients").items() if name != "x")
    products = B * S * (parameters + 2 * S * D)  # each weight once a position, and two products of S × S
    seconds = products * _SECONDS_PER_PRODUCT + parameters * _SECONDS_PER_PARAMETER
    if seconds > LONGEST_JUDGING:
        limit = f"the limit is {LONGEST_JUDGING / 60:.0f}"
        what = f"the oracle would take about {seconds / 60:.0f} minutes to judge this; {limit}"
        hint = "leave --judge out, or take a smaller --batch or --sequence: σ does not depend on the batch"
        raise InputError(what, where="--judge", hint=hint)
    return seconds
