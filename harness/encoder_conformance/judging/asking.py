"""Runs one check on an implementation and judges the answer."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, takewhile
from math import prod
from typing import Any

import numpy as np

from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.checks.declared import judge_declared
from encoder_conformance.judging.checks.invariants.asking import put as put_invariant
from encoder_conformance.judging.checks.invariants.asking import requests_of as invariant_requests
from encoder_conformance.judging.checks.refusals import BEGINS, Refused, refused
from encoder_conformance.judging.checks.training.dropout import put_dropout
from encoder_conformance.judging.checks.training.initialisation import put_initialisation
from encoder_conformance.judging.maximum_of_all import judge_by_specification
from encoder_conformance.judging.records import Record
from encoder_conformance.judging.verdict import Judgement
from encoder_conformance.oracle.expected import NOTHING, Expected, key
from encoder_conformance.oracle.golden.narrow import in_format
from encoder_conformance.protocol.answers import Answers, Sampled, digest_of
from encoder_conformance.protocol.frames import Tensors
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.outcome import EXPECTED, Outcome
from encoder_conformance.spec.reason import Kind
from encoder_conformance.spec.situation import Check
from encoder_conformance.worker.failure import Failure
from encoder_conformance.worker.marshalling import Sampling
from encoder_conformance.worker.session import Session


@dataclass(frozen=True)
class UnjudgedAnswer:
    """The answer to a check, not judged yet.

    `result`: the tensors; or a deferred judgement, for a check of several requests; or a failure; or None if the check
    does not apply. `kind`: that of a failure after a refusal.
    """

    task: Task
    golden: Callable[[Case], Expected]
    result: Answers | Judgement | Failure | None
    seconds: float
    kind: Kind | None = None

    @cached_property
    def expected(self) -> Expected:
        """The golden in the task's format, read on first use."""
        return self.expected_again()

    @property
    def expected_again(self) -> Callable[[], Expected]:
        """Reads the same anew, and keeps no answer in memory for it."""
        case, golden, dtype = self.task.case, self.golden, self.task.format
        return lambda: in_format(case, golden(case), dtype)


@dataclass(frozen=True)
class JudgedAnswer:
    """An answer that was asked for whole, and its record."""

    answer: UnjudgedAnswer
    record: Record

    @property
    def task(self) -> Task:
        """The check that was asked."""
        return self.answer.task

    @cached_property
    def tensors(self) -> Tensors | None:
        """The tensors of the answer, if it has any."""
        result = self.answer.result
        if not isinstance(result, Mapping):
            return None
        return {name: tensor for name, tensor in result.items() if not isinstance(tensor, Sampled)}


def put(
    session: Session,
    task: Task,
    golden: Callable[[Case], Expected],
    *,
    whole: bool = False,
    upcoming: Iterable[Task] = (),
) -> UnjudgedAnswer:
    """Run one check on an implementation, without judging it.

    The golden is read when the answer is judged, or before if the request depends on it: cotangents do (B-2). Only the
    compared values of a large answer are kept, unless it is requested `whole`. `upcoming`: what is asked next, whose
    requests are sent while this check's are answered.
    """
    if task.opt_out:
        return UnjudgedAnswer(task, golden, None, 0.0)
    if given_up := session.worker.losses.given_up:
        return UnjudgedAnswer(task, golden, given_up, 0.0)
    begun = time.monotonic()
    with session.worker.check():
        result = _result(session, task, golden, upcoming, whole=whole)
    seconds = round(time.monotonic() - begun, 4)
    if isinstance(result, Refused):
        return UnjudgedAnswer(task, golden, result.output, seconds, result.kind)
    return UnjudgedAnswer(task, golden, result, seconds)


def _result(
    session: Session, task: Task, golden: Callable[[Case], Expected], upcoming: Iterable[Task], *, whole: bool
) -> Answers | Judgement | Failure | Refused:
    if task.check == "invariant":
        return put_invariant(session, task, lambda left: send_ahead(session, upcoming, golden, left))
    if run_check := _TRAINED.get(task.check):
        return run_check(session, task)
    if task.check == "refusal":
        return refused(session, task)
    if whole or not _may_be_large(task):
        return session.observe(task, _kinked_rows(task, golden))
    return _observe_compared(session, task, golden(task.case))


def send_ahead(
    session: Session, tasks: Iterable[Task], golden: Callable[[Case], Expected], left: Iterable[Task] = ()
) -> None:
    """Send the requests of the next tasks, in this order, so that the worker need not wait.

    Stops at the first check of several requests that are put one by one. `left`: requests that are left of the present
    check, which go before.
    """
    applicable = (task for task in tasks if not task.opt_out)
    independent = takewhile(lambda task: task.check != "refusal" and task.check not in _TRAINED, applicable)
    requests = chain.from_iterable(map(_requests_of, independent))
    session.send_ahead(chain(left, requests), lambda task: _kinked_rows(task, golden))


def _requests_of(task: Task) -> Iterable[Task]:
    return [request for _, request in invariant_requests(task)] if task.check == "invariant" else [task]


def _kinked_rows(task: Task, golden: Callable[[Case], Expected]) -> np.ndarray[Any, Any]:
    return golden(task.case).kinked_rows if task.check == "gradients" else NOTHING.kinked_rows


_SMALL_INPUT = 1 << 12
"""Elements of x up to which only answers with gradients are large."""


def _may_be_large(task: Task) -> bool:
    if task.case.situation.given.layout != "batch_first":  # the golden's positions are batch first
        return False
    return task.check == "gradients" or prod(task.case.x_shape) > _SMALL_INPUT


def _observe_compared(session: Session, task: Task, expected: Expected) -> Answers | Failure:
    compared = {name: expected.tensors[key(task.check, name)] for name in task.tensors}
    sampling = Sampling({name: (tensor.shape, tensor.positions) for name, tensor in compared.items()})
    answer = session.observe(task, expected.kinked_rows, sampling)
    return answer if isinstance(answer, Failure) else {**answer, **sampling.samples}


def judged(answer: UnjudgedAnswer) -> Record:
    """Judge an answer and make its record."""
    task, result = answer.task, answer.result
    if result is None:
        assert task.opt_out
        return _record(task, Outcome.UNSUPPORTED, message=task.opt_out.text, kind=task.opt_out.kind)
    if isinstance(result, Failure):
        return _record(task, result.outcome, message=result.message, kind=result.kind, seconds=answer.seconds)
    if callable(result):
        return _record(task, **dict(result()), seconds=answer.seconds)
    begun, predicting = time.monotonic(), 0.0
    if task.deviations:
        verdict = judge_declared(task, result, answer.expected)
        predicting = round(time.monotonic() - begun, 4)
    else:
        verdict = judge_by_specification(task, result, answer.expected)
    if answer.kind and verdict.outcome not in EXPECTED:
        message = f"{BEGINS[answer.kind]}{verdict.message}"
        verdict = verdict.model_copy(update={"message": message, "kind": answer.kind})
    judged_as = {**dict(verdict), "seconds": answer.seconds, "predicting": predicting}
    return _record(task, **judged_as, digest=digest_of(result))


_TRAINED: dict[Check, Callable[[Session, Task], Judgement | Failure]] = {
    "dropout": put_dropout,
    "initialisation": put_initialisation,
}
"""Check → the function that runs it, for checks of several requests that are put one by one."""


def _record(task: Task, outcome: Outcome, **fields: object) -> Record:
    return Record.model_validate(
        {
            "implementation": task.implementation.name,
            "case": task.case.id,
            "level": task.case.level,
            "dtype": task.dtype,
            "check": task.check,
            "outcome": outcome,
            **fields,
        }
    )


def not_run(task: Task) -> Record:
    """The record that a planned check has until it is judged."""
    return _record(task, Outcome.NOT_RUN, message="the run ended before this check ran")
