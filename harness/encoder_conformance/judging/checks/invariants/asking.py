"""Runs and judges an invariant, also for an implementation whose declared deviations break it (rules J-7, V-7)."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.checks.invariants.verdict import judge_dependence, judge_invariant
from encoder_conformance.judging.simulate import simulate
from encoder_conformance.judging.verdict import Judgement, Verdict
from encoder_conformance.protocol.frames import Tensors
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.follow_ups import base_of, with_x_anew
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.subjects.plan import supported_follow_ups
from encoder_conformance.worker.failure import Failure
from encoder_conformance.worker.session import Session

SendAhead = Callable[[Iterable[Task]], None]
"""Sends these requests, which are left of a check, and what is asked after it."""


@lru_cache(maxsize=1024)
def requests_of(task: Task) -> list[tuple[str, Task]]:
    """The requests of an invariant with descriptions: its base case, with none, each of `supported_follow_ups`, and the
    base case with x anew. They are made once: a request that was sent ahead is known by being the same."""
    follow_ups = (*supported_follow_ups(task.implementation, task.case, task.dtype), with_x_anew(task.case))
    described = [("", base_of(task.case)), *((follow_up.description, follow_up.case) for follow_up in follow_ups)]
    return [(description, replace(task, case=case, check="output")) for description, case in described]


def put(session: Session, task: Task, send_ahead: SendAhead) -> Judgement | Failure:
    """Run the base case and its follow-up cases, up to the first failure. The judgement compares their answers.

    The outcome is `deviates` if the invariant is broken and the oracle, with the declared deviations, breaks it too.
    """
    pending = deque(requests_of(task))
    observed = list[Tensors]()
    while pending:
        send_ahead([request for _, request in pending])
        description, request = pending.popleft()
        answer = session.observe(request)
        if isinstance(answer, Failure):
            where = f"{task.case.situation.invariant}: {description}: " if description else ""
            return replace(answer, message=f"{where}{answer.message}")
        observed.append(answer)
    return lambda: _judge_answers(task, observed)


def _judge_answers(task: Task, observed: list[Tensors]) -> Verdict:
    deviations = task.deviations
    follow_ups, dtype = supported_follow_ups(task.implementation, task.case, task.dtype), task.format
    *asked, anew = observed
    verdict = judge_invariant(task.case, follow_ups, asked, dtype)
    if verdict.outcome is Outcome.PASS:
        return judge_dependence(task.case, verdict, asked[0], anew, dtype)
    if verdict.outcome is not Outcome.FAIL or not deviations:
        return verdict
    names = tuple(deviation.deviation for deviation in deviations)
    ids = " and ".join(names)
    if breaks(task, deviations):
        message = f"as declared: {ids} breaks it; {verdict.message}"
        fields = {"deviations": names, "distance": verdict.rms}
        return verdict.model_copy(update={"outcome": Outcome.DEVIATES, "message": message, **fields})
    return verdict.model_copy(update={"message": f"{verdict.message}; {ids}, as declared, does not break it"})


def breaks(task: Task, deviations: Sequence[Deviation]) -> bool:
    """Whether the oracle, with these deviations, breaks the task's invariant too."""
    follow_ups, dtype = supported_follow_ups(task.implementation, task.case, task.dtype), task.format
    cases = [base_of(task.case), *(follow_up.case for follow_up in follow_ups)]
    with np.errstate(over="ignore", invalid="ignore"):
        predicted = [{"output": simulate(case, deviations)["output"].astype(dtype.numpy)} for case in cases]
    return judge_invariant(task.case, follow_ups, predicted, dtype).outcome is Outcome.FAIL
