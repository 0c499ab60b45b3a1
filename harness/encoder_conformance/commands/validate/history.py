"""Whether a runtime's answer depends on what it was asked before: a large size, a small one, and the large one again.

The file is loaded anew for each order, so that "before" is known. Where an answer depends on it, the least length that
does is found by bisection.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.difference import difference
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.protocol.description import FileDescription
from encoder_conformance.protocol.onnx_runtimes import Runtime
from encoder_conformance.spec.case import Case
from encoder_conformance.worker.failure import Failure
from encoder_conformance.worker.session import Session

Array = npt.NDArray[Any]
SMALL, LARGE = "size-1x1", "size-2x20"
"""The situations that are asked before and after each other."""
_MUCH = 0.01
"""The share of the first difference from which on a length counts as wrong, in a bisection."""


@dataclass(frozen=True)
class Dependence:
    """An answer at `size` [batch, sequence] that is another after a run at `before` than as the first of all.

    `rms` is in √2 σ. `least`: the least sequence that is wrong after `before`, in the batch of `size`; None where it
    was not looked for. `explains`: how many answers to the cases were wrong, each of which is right as the first of
    all; 0 where one is not, or none was.
    """

    before: tuple[int, int]
    size: tuple[int, int]
    rms: float
    problem: str
    least: int | None = None
    explains: int = 0

    def __str__(self) -> str:
        batch, sequence = self.before
        lengths = f"lengths from {self.least} on are wrong" if self.least else f"length {self.size[1]} is wrong"
        far = self.problem or f"rms {self.rms:.3g} √2 σ at batch {self.size[0]}, sequence {self.size[1]}"
        said = f"after a run at batch {batch}, sequence {sequence}, {lengths}: {far} from the answer of a fresh session"
        wrong = "its wrong answer is" if self.explains == 1 else f"its {self.explains} wrong answers are"
        return f"{said}; {wrong} right in one" if self.explains else said


def ask_history(session: Session, tasks: Mapping[str, Task], expected: Mapping[str, Expected]) -> Dependence | None:
    """`tasks`: the check `output` of the situations SMALL and LARGE, by name. None where no answer depends on another,
    or where one was not given."""
    if not {SMALL, LARGE} <= tasks.keys():
        return None
    small, large = tasks[SMALL], tasks[LARGE]
    first = _answers(session, [large, small, large])
    second = _answers(session, [small, large, small])
    if first is None or second is None:
        return None
    fresh_large, small_after, large_again = first
    fresh_small, large_after, small_again = second
    for before, task, fresh, later in (
        (small, large, fresh_large, large_after),
        (small, large, fresh_large, large_again),
        (large, small, fresh_small, small_after),
        (large, small, fresh_small, small_again),
    ):
        found = _dependence(before, task, fresh, later, expected[task.case.id])
        if found is not None:
            least = _least(session, small, large, fresh, later) if task is large and later is large_after else None
            return replace(found, least=least)
    return None


def _answers(session: Session, tasks: list[Task]) -> list[Array] | None:
    """The outputs of these tasks, in this order, of a file that is loaded for them; None if one of them fails."""
    session.forget()
    found = []
    for task in tasks:
        answer = session.observe(task)
        if isinstance(answer, Failure):
            return None
        found.append(answer["output"])
    return found


def _dependence(before: Task, task: Task, fresh: Array, later: Array, expected: Expected) -> Dependence | None:
    """Bits are not compared: a runtime may choose another order of sums by the size that it saw first."""
    if np.array_equal(fresh, later, equal_nan=True):
        return None
    verdict = difference("output", later, fresh, expected.tensors["output"], task.format)
    if verdict.conforms:
        return None
    problem = verdict.problem.text if verdict.problem else ""
    return Dependence(_size(before.case), _size(task.case), verdict.rms or 0.0, problem)


def _size(case: Case) -> tuple[int, int]:
    return case.situation.batch, case.situation.sequence


def _least(session: Session, small: Task, large: Task, fresh: Array, later: Array) -> int | None:
    """The least sequence that is other after `small` than fresh, by bisection up to that of `large`."""
    threshold = _MUCH * _apart(fresh, later)

    def is_wrong(sequence: int) -> bool:
        task = _at(large, sequence)
        alone, after = _answers(session, [task]), _answers(session, [small, task])
        return alone is not None and after is not None and _apart(alone[0], after[1]) > threshold

    return _bisected(is_wrong, large.case.situation.sequence)


def _bisected(is_wrong: Callable[[int], bool], most: int) -> int:
    """The least n from 2 on that is wrong, where `most` is, and what is longer than a wrong one is wrong, too."""
    low, high = 2, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_wrong(middle) else (middle + 1, high)
    return high


def _at(task: Task, sequence: int) -> Task:
    situation = task.case.situation.model_copy(
        update={"situation": f"size-{task.case.situation.batch}x{sequence}", "sequence": sequence}
    )
    return replace(task, case=replace(task.case, situation=situation))


def _apart(one: Array, two: Array) -> float:
    with np.errstate(invalid="ignore"):
        far = float(np.abs(one.astype(np.float64) - two.astype(np.float64)).max())
    return far if np.isfinite(far) else float("inf")


_OPEN = {"attend": 1, "ignore": 0, "additive": 0}
_LAID_OUT = {"SBD": "x.swapaxes(0, 1)", "SD": "x[0]"}


def history_script(
    model: Path, run: str, runtime: Runtime, level: str, described: FileDescription, dependence: Dependence
) -> str | None:
    """None for what is a part of a whole model: its x is no input of the file."""
    from encoder_conformance.reports.reproduce.script import rendered  # templates, which few validations need

    roles, layer = described.roles, described.layer
    if described.cut is not None or roles is None or layer is None:
        return None
    x = described.port(roles.x)
    place = [port.name for port in described.outputs].index(roles.output)
    masks = [
        (mask.name, mask.axes, _OPEN[mask.meaning or "attend"], described.port(mask.name).dtype) for mask in roles.masks
    ]
    return rendered(
        "history.txt",
        runtime=run,
        dependence=dependence,
        imports=runtime.imports,
        model=str(model),
        masks=masks,
        load=runtime.load.format(word=runtime.levels[level], output=roles.output, place=place),
        x=x,
        width=x.shape[-1] if x.shape else None,
        heads=layer.attention.num_heads,
        laid_out=_LAID_OUT.get(roles.layout or "", "x"),
    )
