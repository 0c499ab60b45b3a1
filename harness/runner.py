"""Runs the plan: workers of different implementations side by side, every observation judged as it comes."""

import os
import queue
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, groupby
from pathlib import Path

from encoder_conformance.asking import Answer, judged, put, send_ahead
from encoder_conformance.impl.manifest import Device
from encoder_conformance.judge.answers import Answers
from encoder_conformance.judge.expected import Expected
from encoder_conformance.judge.outcome import EXPECTED, Outcome
from encoder_conformance.results import Diagnosis, Record
from encoder_conformance.scheduling import Assignment, WorkQueue, most_urgent
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import Constants
from encoder_conformance.task import Task
from encoder_conformance.threads import share
from encoder_conformance.worker.session import Session

_UNJUDGED = 8
"""Answers that may wait to be judged: what is ahead of the judge holds memory."""
_TAKEN = 2
"""Checks that a worker still has when it takes its next block."""
_ENOUGH_OF_ONE = 0.6
"""How much of a processor has to be free for one more worker to be of use."""
_NOT_IN_FILE_NAMES = re.compile(r"[^\w.,=-]+")


class Run:
    """A run in progress. Iterate over it to get its records; `abort` it from anywhere."""

    def __init__(
        self,
        assignments: list[Assignment],
        expected: Callable[[Case], Expected],
        constants: Constants,
        *,
        jobs: int | None,
        device: Device,
        logs: Path,
        threads: int | None = None,
        until: float | None = None,
        fail_fast: bool = False,
        observed: Callable[[Task, Expected, Record, Answers], None] | None = None,
    ) -> None:
        """At most `jobs` workers side by side, of different implementations first, and then more of one. Where it is
        None there is at most one a processor, and a second one of an implementation only when it is worth its start.

        `threads` is what each worker's framework is given; by default the workers share the processors but one. At the
        time `until`, by time.monotonic(), every worker is ended. `fail_fast`: the first case that fails is asked to its
        end, and nothing after it. `observed` is shown each answer that was judged.
        """
        self._expected, self._constants, self._observed = expected, constants, observed
        self._at_once = jobs is not None
        self.jobs = max(1, min(jobs or os.cpu_count() or 1, sum(assignment.workers for assignment in assignments)))
        self.threads = threads or share(self.jobs)
        self.until, self._fail_fast = until, fail_fast
        self._logs = logs

        def session(assignment: Assignment, number: int) -> Session:
            name = _NOT_IN_FILE_NAMES.sub("-", assignment.name)
            log = logs / f"{name}{'' if number == 1 else f'-{number}'}.log"
            log.unlink(missing_ok=True)
            return Session(assignment.ready, device, self.threads, log)

        self._queues = {
            each.name: WorkQueue(each, partial(session, each), at_once=self._at_once) for each in assignments
        }
        self._records: queue.Queue[Record | BaseException | None] = queue.Queue()
        self._aborted = threading.Event()
        self._stopping = threading.Event()
        self._wanted = threading.Event()
        self._taking = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._asked_since = 0.0, 0.0
        self._working = 0
        self._ending = threading.Timer(0.0, self.abort)
        self._judging = ThreadPoolExecutor(1)
        self._unjudged = threading.Semaphore(_UNJUDGED)

    def begin(self) -> ThreadPoolExecutor:
        """Start the workers: they import their frameworks while the caller does something else. Nothing is asked of
        them before the records are wanted; `abort` ends them if they never are."""
        if self._pool is None:
            self._logs.mkdir(parents=True, exist_ok=True)
            self._pool = ThreadPoolExecutor(self.jobs)
            with self._taking:  # none is done before all are counted
                for _ in range(self.jobs if self._at_once else min(self.jobs, len(self._queues))):
                    self._one_more()
        return self._pool

    def _one_more(self) -> None:
        assert self._pool is not None
        self._working += 1
        self._pool.submit(self._work)

    def _reinforce(self) -> None:
        """One more worker, where there may be one, a processor is free, and it is found to be worth its start."""
        with self._taking:
            if self._working == self.jobs or self._ended or not self._processor_is_free():
                return
            if most_urgent(self._queues.values()):
                self._one_more()

    def _processor_is_free(self) -> bool:
        """Beside the workers, and what this process itself has taken since it began to ask."""
        wall, own = time.monotonic() - self._asked_since[0], time.process_time() - self._asked_since[1]
        return max(self.jobs, os.cpu_count() or 1) - self._working - own / max(wall, 1e-3) >= _ENOUGH_OF_ONE

    @property
    def _ended(self) -> bool:
        return self._aborted.is_set() or self._stopping.is_set()

    def __iter__(self) -> Generator[Record, None, None]:
        """Every record, as it is judged. Leaving the loop early, by an exception or a break, ends every worker."""
        pool = self.begin()
        if self.until is not None:
            self.end_at(self.until)
        self._asked_since = time.monotonic(), time.process_time()
        self._wanted.set()
        with self._judging, pool:
            finished = False
            try:
                while not finished:
                    match self._records.get():
                        case None:
                            finished = True
                        case Record() as record:
                            yield record
                        case BaseException() as error:
                            raise error
            finally:
                self._ending.cancel()
                if not finished:
                    self.abort()

    def cases_asked_first(self) -> Iterator[Case]:
        """The cases of the first implementation's checks, in the order in which they are asked."""
        first = next(iter(self._queues.values()))
        asked = (task.case for block in tuple(first.waiting) for task in block if not task.opt_out)
        return (case for case, _ in groupby(asked) if not case.needs_no_golden)

    def end_at(self, until: float) -> None:
        """Every worker is ended at this time, by time.monotonic(): sooner or later than was said before."""
        self._ending.cancel()
        left = until - time.monotonic()
        if left <= 0:
            self.abort()
            return
        self._ending = threading.Timer(left, self.abort)
        self._ending.daemon = True
        self._ending.start()

    def session(self, name: str) -> Session:
        """An implementation's first, which says what it is."""
        return self._queues[name].sessions[0]

    def diagnoses(self, until: float | None = None) -> tuple[Diagnosis, ...]:
        """What explains the failures of each implementation and dtype that has any; cut short at the time `until`."""
        return tuple(said for name, each in self._queues.items() for said in each.seen.diagnoses(name, until))

    def left(self) -> Iterator[Record]:
        """What was judged but not yet taken when the run was ended."""
        while not self._records.empty():
            if isinstance(item := self._records.get_nowait(), Record):
                yield item

    def abort(self) -> None:
        with self._taking:  # no session is begun after this
            self._aborted.set()
            sessions = [session for each in self._queues.values() for session in each.sessions]
        for session in sessions:
            session.abort()
        self._wanted.set()  # who waits for it finds that there is nothing left to do

    def _work(self) -> None:
        """One worker after the other, until nothing is left that another would be worth."""
        try:
            while joined := self._join():
                self._take_through(*joined)
        except BaseException as error:  # a fault of the harness: the whole run ends, and says so
            self._records.put(error)
        finally:
            with self._taking:
                self._working -= 1
                if not self._working:
                    self._judging.submit(self._records.put, None)  # after all that was asked is judged

    def _join(self) -> tuple[WorkQueue, Session] | None:
        with self._taking:
            if self._ended:
                return None
            chosen = most_urgent(self._queues.values())
            return None if chosen is None else (chosen, chosen.join())

    def _take_through(self, work: WorkQueue, session: Session) -> None:
        begun = time.monotonic()
        if work.asks:
            session.start()
        start_took = time.monotonic() - begun
        self._wanted.wait()
        work.begins(start_took)
        failing: Task | None = None
        coming = deque[Task]()
        while task := self._next(work, session, coming):
            if self._stopping.is_set() and not _same_case(task, failing):
                break
            if self._put(work, session, task, coming) not in {*EXPECTED, None}:
                failing = failing or task
                self._stopping.set()
        if failing:
            self.abort()
        session.close()

    def _next(self, work: WorkQueue, session: Session, coming: deque[Task]) -> Task | None:
        """The first of what this worker has taken; it takes more while what it asks last can be sent ahead."""
        while len(coming) <= _TAKEN and (block := self._next_block(work, session)):
            coming.extend(block)
            self._reinforce()
        return coming.popleft() if coming and not self._aborted.is_set() else None

    def _put(self, work: WorkQueue, session: Session, task: Task, coming: Iterable[Task]) -> Outcome | None:
        """Ask one check, and have it judged while the next is asked. Its outcome, where that is waited for."""
        send_ahead(session, chain([task], coming), self._expected)
        answer = put(session, task, self._expected)
        if self._aborted.is_set() and not isinstance(answer.result, dict):
            return None  # an abort is the end of the run, not this worker's crash; what was answered before is judged
        self._unjudged.acquire()
        verdict = self._judging.submit(self._judge, work, answer)
        return verdict.result() if self._fail_fast else None

    def _judge(self, work: WorkQueue, answer: Answer) -> Outcome | None:
        """Judge one answer, and keep what it showed."""
        try:
            record = judged(answer, self._constants)
            work.seen.note(answer.task, record)
            if isinstance(answer.result, dict):
                work.seen.see(answer.task, answer.expected, record, answer.result)
                if self._observed:
                    self._observed(answer.task, answer.expected, record, answer.result)
            self._records.put(record)
        except BaseException as error:
            self._records.put(error)
            return None
        else:
            return record.outcome
        finally:
            self._unjudged.release()

    def _next_block(self, work: WorkQueue, session: Session) -> list[Task]:
        with self._taking:
            return [] if self._ended else work.take(session)


def _same_case(task: Task, other: Task | None) -> bool:
    return other is not None and (task.case.id, task.dtype) == (other.case.id, other.dtype)
