"""Puts one check to an implementation, and judges what it answers."""

import importlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from math import prod
from typing import Any

import numpy as np

from encoder_conformance.checks.declared import judge_declared
from encoder_conformance.checks.invariants.asking import put as put_invariant
from encoder_conformance.checks.refusals import BEGINS, Refused, refused
from encoder_conformance.checks.training.dropout import put_dropout
from encoder_conformance.checks.training.initialisation import put_initialisation
from encoder_conformance.golden.narrow import in_format
from encoder_conformance.judge.answers import Answers, Sampled
from encoder_conformance.judge.expected import NOTHING, Expected, key
from encoder_conformance.judge.outcome import EXPECTED, Outcome
from encoder_conformance.judge.verdict import Judgement, judge
from encoder_conformance.reason import Kind
from encoder_conformance.results import Record
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import Constants
from encoder_conformance.spec.situation import Check
from encoder_conformance.task import Task
from encoder_conformance.wire.frames import Tensors
from encoder_conformance.worker.lifecycle import Failure
from encoder_conformance.worker.sampling import Sampling
from encoder_conformance.worker.session import Session


@dataclass(frozen=True)
class Asked:
    """A check that was put to an implementation: the record of it, and what was observed, if anything was."""

    record: Record
    answers: Tensors | None = None


@dataclass(frozen=True)
class Answer:
    """What came of asking a check: an observation, what judges several answers by each other, why there is no answer,
    or None where it was not asked. `kind` is that of a failure. `expected` is the golden, read now, in
    the format of the task."""

    task: Task
    golden: Callable[[Case], Expected]
    found: Answers | Judgement | Failure | None
    seconds: float
    kind: Kind | None = None

    @cached_property
    def expected(self) -> Expected:
        return in_format(self.task.case, self.golden(self.task.case), self.task.format)


def ask(session: Session, task: Task, golden: Expected, constants: Constants) -> Asked:
    """Put one check to an implementation and judge what it answers."""
    answer = put(session, task, lambda case: golden, whole=True)
    return Asked(judged(answer, constants), _whole(answer.found))


def put(session: Session, task: Task, golden: Callable[[Case], Expected], *, whole: bool = False) -> Answer:
    """Put one check to an implementation. The golden is read when it is judged; but a cotangent depends on it (B-2).

    Of a large answer the values that are compared are kept, unless it is wanted `whole`.
    """
    if task.opt_out:
        return Answer(task, golden, None, 0.0)
    begun = time.monotonic()
    found: Answers | Judgement | Failure | Refused
    if asked_by_itself := _WITHOUT_GOLDEN.get(task.check):
        found = asked_by_itself(session, task)
    elif task.check == "refusal":
        found = refused(session, task, NOTHING.kinked_rows)
    elif whole or not _may_be_large(task):
        found = session.observe(task, _kinked_rows(task, golden))
    else:
        found = _observe_compared(session, task, golden(task.case))
    seconds = round(time.monotonic() - begun, 4)
    if isinstance(found, Refused):
        return Answer(task, golden, found.output, seconds, found.kind)
    return Answer(task, golden, found, seconds)


def prepare_to_judge(cases: Iterable[Case]) -> None:
    """Import what judging these cases needs and takes long to import."""
    if any(check in _WITHOUT_GOLDEN for case in cases for check in case.situation.checks):
        importlib.import_module("scipy.special")


def send_ahead(session: Session, tasks: Iterable[Task], golden: Callable[[Case], Expected]) -> None:
    """Send what will be put next, in this order, so that the worker need not wait for it; up to the first check that
    is more than one request."""
    asked = (task for task in tasks if not task.opt_out)
    in_one = takewhile(lambda task: task.check != "refusal" and task.check not in _WITHOUT_GOLDEN, asked)
    session.send_ahead(in_one, lambda task: _kinked_rows(task, golden))


def _kinked_rows(task: Task, golden: Callable[[Case], Expected]) -> np.ndarray[Any, Any]:
    return golden(task.case).kinked_rows if task.check == "gradients" else NOTHING.kinked_rows


_FEW = 1 << 12
"""Elements of x up to which no answer but one of gradients is large."""


def _may_be_large(task: Task) -> bool:
    if task.case.situation.given.layout != "batch_first":  # the golden's positions are of another layout
        return False
    return task.check == "gradients" or prod(task.case.x_shape) > _FEW


def _observe_compared(session: Session, task: Task, expected: Expected) -> Answers | Failure:
    compared = {name: expected.tensors[key(task.check, name)] for name in task.tensors}
    sampling = Sampling({name: (tensor.shape, tensor.positions) for name, tensor in compared.items()})
    kinked_rows = expected.kinked_rows if task.check == "gradients" else NOTHING.kinked_rows
    answer = session.observe(task, kinked_rows, sampling)
    return answer if isinstance(answer, Failure) else {**answer, **sampling.samples}


def _whole(found: Answers | Judgement | Failure | None) -> Tensors | None:
    """What was observed, where it was wanted whole."""
    if not isinstance(found, Mapping):
        return None
    return {name: tensor for name, tensor in found.items() if not isinstance(tensor, Sampled)}


def judged(answer: Answer, constants: Constants) -> Record:
    """The record of an answer."""
    task, found = answer.task, answer.found
    if found is None:
        assert task.opt_out
        return _record(task, Outcome.UNSUPPORTED, message=task.opt_out.text, kind=task.opt_out.kind)
    if isinstance(found, Failure):
        return _record(task, found.outcome, message=found.message, seconds=answer.seconds)
    if callable(found):
        return _record(task, **dict(found()), seconds=answer.seconds)
    if deviations := task.deviations:
        verdict = judge_declared(task, deviations, found, answer.expected, constants)
    else:
        verdict = judge(task.check, task.tensors, found, answer.expected, task.format, constants)
    if answer.kind and verdict.outcome not in EXPECTED:
        message = f"{BEGINS[answer.kind]}{verdict.message}"
        verdict = verdict.model_copy(update={"message": message, "kind": answer.kind})
    return _record(task, **dict(verdict), seconds=answer.seconds)


_WITHOUT_GOLDEN: dict[Check, Callable[[Session, Task], Judgement]] = {
    "invariant": put_invariant,
    "dropout": put_dropout,
    "initialisation": put_initialisation,
}
"""The checks that ask more than once, and judge the answers by each other or by chance: what they are asked with."""


def _record(task: Task, outcome: Outcome, **found: object) -> Record:
    return Record.model_validate(
        {
            "implementation": task.implementation.name,
            "case": task.case.id,
            "level": task.case.level,
            "dtype": task.dtype,
            "check": task.check,
            "outcome": outcome,
            **found,
        }
    )


def not_run(task: Task) -> Record:
    """The record that a planned check has until it is judged."""
    return _record(task, Outcome.NOT_RUN, message="the run ended before this check was asked")
