"""An invariant, asked and judged, also of an implementation whose declared deviations break it (rules J-7, V-7)."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from encoder_conformance.checks.invariants.follow_ups import asked_follow_ups, base_of
from encoder_conformance.checks.invariants.verdict import judge_invariant
from encoder_conformance.deviations.simulate import simulate
from encoder_conformance.judge.outcome import Outcome
from encoder_conformance.judge.verdict import Judgement, Verdict
from encoder_conformance.spec.constants import constants
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.task import Task
from encoder_conformance.wire.frames import Tensors
from encoder_conformance.worker.lifecycle import Failure
from encoder_conformance.worker.session import Session

_NO_ROWS = np.zeros((0, 2), dtype=np.int64)
"""No gradient is asked, so no row has a kink."""


def observe(session: Session, task: Task) -> list[Tensors] | Failure:
    """The base's answer, then each variant's, in the order of `asked_follow_ups`; or what went wrong first."""
    follow_ups = asked_follow_ups(task.implementation, task.case, task.dtype)
    ways = ["", *(variant.says for variant in follow_ups)]
    cases = [base_of(task.case), *(variant.case for variant in follow_ups)]
    coming = deque(replace(task, case=case, check="output") for case in cases)
    observed = []
    for says in ways:
        session.send_ahead(coming, lambda task: _NO_ROWS)
        answer = session.observe(coming.popleft(), _NO_ROWS)
        if isinstance(answer, Failure):
            said = f"{task.case.situation.invariant}: {says}: {answer.message}" if says else answer.message
            return replace(answer, message=said)
        observed.append(answer)
    return observed


def put(session: Session, task: Task) -> Judgement:
    """Put an invariant to an implementation, in every way that it is asked; the judgement is of the answers by each
    other: `deviates` where it is broken and the oracle breaks it too when it plays what is declared.
    """
    observed = observe(session, task)
    return lambda: _judged(task, observed)


def _judged(task: Task, observed: list[Tensors] | Failure) -> Verdict:
    if isinstance(observed, Failure):
        return Verdict(outcome=observed.outcome, message=observed.message)
    deviations = task.deviations
    asked, dtype = asked_follow_ups(task.implementation, task.case, task.dtype), task.format
    verdict = judge_invariant(task.case, asked, observed, dtype, constants())
    if verdict.outcome is not Outcome.FAIL or not deviations:
        return verdict
    shown = tuple(deviation.deviation for deviation in deviations)
    ids = " and ".join(shown)
    if breaks(task, deviations):
        message = f"as declared: {ids} breaks it; {verdict.message}"
        seen = {"deviations": shown, "distance": verdict.rms}
        return verdict.model_copy(update={"outcome": Outcome.DEVIATES, "message": message, **seen})
    return verdict.model_copy(update={"message": f"{verdict.message}; {ids}, as declared, does not break it"})


def breaks(task: Task, deviations: Sequence[Deviation]) -> bool:
    """Whether the oracle breaks the invariant too when it plays these."""
    asked, dtype = asked_follow_ups(task.implementation, task.case, task.dtype), task.format
    cases = [base_of(task.case), *(variant.case for variant in asked)]
    with np.errstate(over="ignore", invalid="ignore"):
        predicted = [{"output": simulate(case, deviations)["output"].astype(dtype.numpy)} for case in cases]
    return judge_invariant(task.case, asked, predicted, dtype, constants()).outcome is Outcome.FAIL
