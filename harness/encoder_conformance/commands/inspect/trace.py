"""A trace: the stages of a case with their shapes in the live module, judged by a golden if there is one."""

import re
from dataclasses import dataclass, replace
from functools import cache
from math import prod

from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.verdict import judge_tensor
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.paths import SPECS
from encoder_conformance.protocol.frames import Tensors
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.stages import step_of

_SECONDS_PER_PRODUCT = 20e-9
_SECONDS_PER_PARAMETER = 0.7e-6
"""The oracle's time for golden and condition on one core of 2024; measured, right within a factor of two."""
LONGEST_JUDGING = 600.0
_HEADING = "| stage | shape | what it is |"
_NOTES = re.compile(r"^\| (`[a-z0-9_`, ]+`) \| \[B, [A-Za-z, ]+\] \| (.+?) \|$", re.MULTILINE)
"""The table of clause T-1 in `specs/README.md`."""
_DROPPED = "; then dropout of {:g}, in the same shape (A-1)"


@cache
def stage_notes() -> dict[str, str]:
    """Stage → its description in clause T-1."""
    table = (SPECS / "README.md").read_text(encoding="utf-8").partition(_HEADING)[2].partition("\n\n")[0]
    return {name: note for names, note in _NOTES.findall(table) for name in re.findall(r"[a-z0-9_]+", names)}


@dataclass(frozen=True)
class TracedRow:
    """One stage. `shape` is the observed one, None if the stage is missing; `problem` says how it differs from T-1.

    `rms` and `max` are in σ, None if nothing was compared. `conforms` is False if there is a problem or either exceeds
    its limit.
    """

    stage: str
    shape: tuple[int, ...] | None
    note: str
    rms: float | None = None
    max: float | None = None
    conforms: bool = True
    problem: str | None = None


def trace(task: Task, observed: Tensors, expected: Expected | None) -> list[TracedRow]:
    """A row for each expected stage, in the order of computation, then for each unexpected one."""
    expected_shapes = {name: task.case.expected_shapes("stages")[name] for name in task.tensors}
    return [
        *(_make_row(name, shape, observed, task, expected) for name, shape in expected_shapes.items()),
        *(
            TracedRow(name, observed[name].shape, "", conforms=False, problem="is no stage of this layer")
            for name in observed
            if name not in expected_shapes
        ),
    ]


def _make_row(
    name: str, expected_shape: tuple[int, ...], observed: Tensors, task: Task, expected: Expected | None
) -> TracedRow:
    note = stage_notes().get(step_of(name), "")
    if rate := task.case.layer.dropout.rates().get(step_of(name)):
        note += _DROPPED.format(rate)
    if name not in observed:
        return TracedRow(name, None, note, conforms=False, problem=f"is missing; expected {list(expected_shape)}")
    tensor = observed[name]
    row = TracedRow(name, tensor.shape, note)
    if tensor.shape != expected_shape:
        return replace(row, conforms=False, problem=f"instead of {list(expected_shape)}")
    if tensor.dtype != FORMATS[task.dtype].numpy:
        return replace(row, conforms=False, problem=f"{tensor.dtype} instead of {task.dtype}")
    if expected is None:
        return row
    verdict = judge_tensor(name, tensor, expected.tensors[name], FORMATS[task.dtype])
    problem = verdict.problem.text if verdict.problem else None
    return replace(row, rms=verdict.rms, max=verdict.max, conforms=verdict.conforms, problem=problem)


def estimate_judging_seconds(case: Case) -> float:
    """The estimated seconds of the oracle for goldens and conditions. Raises InputError beyond ten minutes."""
    B, S, D = case.x_shape
    parameters = sum(prod(shape) for name, shape in case.expected_shapes("gradients").items() if name != "x")
    products = B * S * (parameters + 2 * S * D)  # each weight once per position, and two products of S × S
    seconds = products * _SECONDS_PER_PRODUCT + parameters * _SECONDS_PER_PARAMETER
    if seconds > LONGEST_JUDGING:
        limit = f"the limit is {LONGEST_JUDGING / 60:.0f}"
        message = f"the oracle would take about {seconds / 60:.0f} minutes to judge this; {limit}"
        hint = "leave --judge out, or take a smaller --batch or --sequence: σ does not depend on the batch"
        raise InputError(message, where="--judge", hint=hint)
    return seconds
