"""Judges the answers of a run in a thread of its own, while its workers answer what comes next.

An answer is judged when it comes, and its record is final when its worker has answered the next check, minutes later
perhaps: until then the worker may be found at fault after its answer, whose fault that is then.
"""

import queue
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TypeVar

from encoder_conformance.diagnosis.observations import Observations
from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.asking import UnjudgedAnswer, judged
from encoder_conformance.judging.loop import observe
from encoder_conformance.judging.records import Record
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.platform.pool import ThreadPool
from encoder_conformance.protocol.answers import Answers
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.worker.failure import Failure

_UNJUDGED = 32
"""The most answers that may wait to be judged, and be made final; each occupies memory. With fewer, a worker that
answers several small tasks while a large one is judged has nothing to do."""
_TURN = 5e-4
"""Seconds that a thread may keep the interpreter while another waits for it. In Python's 5 ms a worker answers several
small tasks, and then has nothing to do."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Early:
    """A record that is not final."""

    record: Record


@dataclass(frozen=True)
class Unconfirmed:
    """An answer whose worker has not answered again, and its record; None if judging it raised."""

    answer: UnjudgedAnswer
    record: Future[Record | None]


class JudgeThread:
    """Puts records, or what judging them raised, into a queue. A context: it ends when all is judged."""

    def __init__(
        self,
        records: "queue.SimpleQueue[Record | Early | BaseException | None]",
        observed: Callable[[Task, Expected, Record, Answers], None] | None,
    ) -> None:
        self._records, self._observed = records, observed
        self._thread = ThreadPool(1)
        self._unjudged = threading.Semaphore(_UNJUDGED)
        self._turn_before = sys.getswitchinterval()

    def __enter__(self) -> None:
        sys.setswitchinterval(_TURN)

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()
        sys.setswitchinterval(self._turn_before)

    def finish(self) -> None:
        """Put None after the records of all answers so far."""
        self._thread.submit(self._records.put, None)

    def judge_early(self, answer: UnjudgedAnswer) -> Unconfirmed:
        """Judge an answer, which `confirm` makes final."""

        def judge() -> Record:
            record = judged(answer)
            self._records.put(Early(record))
            return record

        return Unconfirmed(answer, self._submit(judge))

    def confirm(self, observations: Observations, unconfirmed: Unconfirmed | None, fault: Failure | None) -> None:
        """Make a record final. `fault`: what the worker did after its answer, and before the next."""
        if unconfirmed and fault:
            failure = replace(fault, message=f"after its answer: {fault.message}")
            self.judge(observations, replace(unconfirmed.answer, result=failure, kind=None))
        elif unconfirmed:
            self.judge(observations, unconfirmed.answer, unconfirmed.record)

    def judge(
        self, observations: Observations, answer: UnjudgedAnswer, early: Future[Record | None] | None = None
    ) -> Future[Outcome | None]:
        """Judge an answer for good, unless it was judged `early`, and keep what `observations` take of it."""

        def judge() -> Outcome | None:
            record = early.result() if early else judged(answer)
            if record is None:
                return None
            observe(observations, answer, record)
            if self._observed and isinstance(answer.result, dict):
                self._observed(answer.task, answer.expected, record, answer.result)
            self._records.put(record)
            return record.outcome

        return self._submit(judge)

    def _submit(self, judge: Callable[[], Result | None]) -> Future[Result | None]:
        """Call `judge` in the thread. What it raises is put among the records."""
        self._unjudged.acquire()

        def guarded() -> Result | None:
            try:
                return judge()
            except BaseException as error:
                self._records.put(error)
                return None
            finally:
                self._unjudged.release()

        return self._thread.submit(guarded)
