"""Runs the plan: workers of different implementations in parallel, each answer judged when it arrives.

What judges answers is imported once the workers have started: they import their frameworks at the same time.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING

from encoder_conformance.core.order import work_of
from encoder_conformance.idle import IdleQueue
from encoder_conformance.impl.manifest import Device
from encoder_conformance.judge.answers import Answers
from encoder_conformance.judge.expected import Expected
from encoder_conformance.judge.outcome import EXPECTED
from encoder_conformance.judge_thread import Early, Held, JudgeThread
from encoder_conformance.results import Record
from encoder_conformance.scheduling import Assignment, WorkQueue, most_urgent, speed_beside
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import Constants
from encoder_conformance.spool import Spool
from encoder_conformance.task import Task
from encoder_conformance.threads import share
from encoder_conformance.worker.early import EarlyWorkers
from encoder_conformance.worker.limits import Limits
from encoder_conformance.worker.log import log_of
from encoder_conformance.worker.session import Session
from encoder_conformance.worker.strikes import Strikes

if TYPE_CHECKING:
    from encoder_conformance.asking import UnjudgedAnswer
    from encoder_conformance.diagnosis.observations import Observations

_REFILL_AT = 2
"""A worker takes its next block when it has at most this many tasks left."""


class Run:
    """A run in progress. Iterate over it to get its records; call `abort` from any thread."""

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
        limits: Limits | None = None,
        early: EarlyWorkers | None = None,
    ) -> None:
        """`jobs`: the most workers in parallel, first of different implementations, then several of one. None: at most
        one per processor, and a second worker of an implementation only if it pays off.

        `threads`: of each worker's framework; by default the workers share all processors but one. `until`: the time,
        by time.monotonic(), at which all workers are killed. `fail_fast`: the first failing case is finished, and
        nothing runs after it. `observed`: a callback that gets each judged answer. `limits`: of each worker.
        `early`: workers that have been started already.
        """
        self._expected = expected
        self._at_once = jobs is not None
        self.jobs = max(1, min(jobs or os.cpu_count() or 1, sum(assignment.workers for assignment in assignments)))
        self.threads = threads or share(self.jobs)
        self.until, self._fail_fast = until, fail_fast
        self.logs, self.device = logs, device
        self.limits = limits or Limits()
        strikes = {each.name: Strikes() for each in assignments}

        def session(assignment: Assignment, number: int) -> Session:
            ready, name = assignment.ready, assignment.name
            log = log_of(logs, name, number)
            worker = early.take(ready, self.threads, log, self.limits) if early else None
            if worker is None:
                log.unlink(missing_ok=True)
            return Session(ready, device, self.threads, log, limits=self.limits, strikes=strikes[name], early=worker)

        made = partial(WorkQueue, at_once=self._at_once, spool=Spool())
        self._queues = {each.name: made(each, partial(session, each)) for each in assignments}
        self._records: IdleQueue[Record | Early | BaseException | None] = IdleQueue()
        self._aborted = threading.Event()
        self._stopping = threading.Event()
        self._iterating = threading.Event()
        self.waited_for = threading.Event()
        """Set once a worker has started, and waits for the iteration."""
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._begun = 0.0
        self._working = 0
        self._deadline = threading.Timer(0.0, self.abort)
        self._judging = JudgeThread(constants, self._records, observed)

    def begin(self) -> ThreadPoolExecutor:
        """Start the workers, which import their frameworks in the meantime.

        They run no task before the iteration over the records begins. If it never does, `abort` ends them.
        """
        if self._pool is None:
            self.logs.mkdir(parents=True, exist_ok=True)
            self._pool = ThreadPoolExecutor(self.jobs)
            with self._lock:  # no worker ends before all are counted
                for _ in range(self.jobs if self._at_once else min(self.jobs, len(self._queues))):
                    self._add_worker()
            for work in self._queues.values():
                work.prepare()
        return self._pool

    def _add_worker(self) -> None:
        assert self._pool is not None
        self._working += 1
        self._pool.submit(self._work)

    def _add_useful_worker(self) -> None:
        """Add a worker if `jobs` allows it and a queue wants one."""
        with self._lock:
            if self._working == self.jobs or self._ended:
                return
            if most_urgent(self._queues.values(), self._speed_beside(self._working)):
                self._add_worker()

    def _speed_beside(self, workers: int) -> float:
        """How fast one more worker would be, of what this process needs itself for a second of workers' tasks."""
        worked = sum(each.pace.seconds for each in self._queues.values())
        judging = (time.process_time() - self._begun) / worked if worked else 0.0
        return speed_beside(workers, judging * workers, max(self.jobs, os.cpu_count() or 1))

    @property
    def _ended(self) -> bool:
        return self._aborted.is_set() or self._stopping.is_set()

    def __iter__(self) -> Generator[Record, None, None]:
        """`records`, and nothing of them early."""
        return self.records(lambda record: None)

    def records(self, early: Callable[[Record], None]) -> Generator[Record, None, None]:
        """Yield every record once its worker can no more be found at fault for it: when it has answered the next check.

        `early` gets each when it is judged, which may be minutes before; one that is yielded in its place differs.
        Leaving the loop early, by exception or break, kills all workers.
        """
        pool = self.begin()
        if self.until is not None:
            self.end_at(self.until)
        self._begun = time.process_time()
        self._iterating.set()
        with self._judging, pool:
            finished = False
            try:
                while not finished:
                    match self._records.next():
                        case None:
                            finished = True
                        case Early(record):
                            early(record)
                        case Record() as record:
                            yield record
                        case BaseException() as error:
                            raise error
            finally:
                self._deadline.cancel()
                if not finished:
                    self.abort()

    def prepare_while_idle(self, steps: Iterator[None]) -> None:
        """Take steps of this iterator while no worker answers."""
        self._records.steps = steps

    def cases_asked_first(self) -> Iterator[Case]:
        """The cases of the first implementation, in the order of its tasks, without those that need no golden."""
        cases = (task.case for task in self.tasks_asked_first())
        return (case for case, _ in groupby(cases) if not case.needs_no_golden)

    def tasks_asked_first(self) -> Iterator[Task]:
        """The tasks of the first implementation that apply, in their order."""
        first = next(iter(self._queues.values()))
        return (task for block in tuple(first.waiting) for task in block if not task.opt_out)

    def end_at(self, until: float) -> None:
        """Kill all workers at this time, by time.monotonic(). It replaces any earlier deadline."""
        self._deadline.cancel()
        seconds = until - time.monotonic()
        if seconds <= 0:
            self.abort()
            return
        self._deadline = threading.Timer(seconds, self.abort)
        self._deadline.daemon = True
        self._deadline.start()

    def session(self, name: str) -> Session:
        """The first session of an implementation, which has its versions and settings."""
        return self._queues[name].sessions[0]

    def peak_memory(self, name: str) -> int | None:
        """The largest resident bytes of an implementation's workers that have ended; None if there is none."""
        return max((session.peak_memory for session in self._queues[name].sessions), default=0) or None

    def observations(self, name: str) -> "Observations":
        """What was seen of an implementation."""
        return self._queues[name].observations

    def left(self) -> Iterator[Record]:
        """Yield the records that were judged but not yet iterated over when the run ended."""
        while not self._records.empty():
            if isinstance(item := self._records.get_nowait(), Record):
                yield item

    def abort(self) -> None:
        """End the run and kill all workers."""
        with self._lock:  # no session starts after this
            self._aborted.set()
            sessions = [session for each in self._queues.values() for session in each.sessions]
        for session in sessions:
            session.abort()
        self._iterating.set()  # workers that wait for it find the run ended

    def _work(self) -> None:
        """Serve one queue after the other, with a worker for each, until none wants one."""
        try:
            while assigned := self._assign_worker():
                self._serve_queue(*assigned)
        except BaseException as error:  # a fault of the harness: the whole run ends with this exception
            self._records.put(error)
        finally:
            with self._lock:
                self._working -= 1
                if not self._working:
                    self._judging.finish()

    def _assign_worker(self) -> tuple[WorkQueue, Session] | None:
        with self._lock:
            if self._ended:
                return None
            work = most_urgent(self._queues.values(), self._speed_beside(self._working - 1))
            return None if work is None else (work, work.add_worker())

    def _serve_queue(self, work: WorkQueue, session: Session) -> None:
        begun = time.monotonic()
        if work.needs_worker:
            session.start()
        start_took = time.monotonic() - begun
        self.waited_for.set()
        self._iterating.wait()
        work.worker_started(start_took)
        failing: Task | None = None
        coming = deque[Task]()
        held: Held | None = None
        while task := self._next_task(work, session, coming):
            if self._stopping.is_set() and not _same_case(task, failing):
                break
            answer = self._run_task(session, task, coming)
            if answer and not task.opt_out:
                work.pace.finished(work_of(task), answer.seconds)
            if answer and (self._fail_fast or task.opt_out):
                verdict = self._judging.judge(work.observations, answer)
                if self._fail_fast and verdict.result() not in {*EXPECTED, None}:
                    failing = failing or task
                    self._stopping.set()
            else:
                self._judging.settle(work.observations, held, session.take_fault())
                held = self._judging.judge_early(answer) if answer else None
        if failing:
            self.abort()
        session.close()
        self._judging.settle(work.observations, held, session.take_fault())

    def _next_task(self, work: WorkQueue, session: Session, coming: deque[Task]) -> Task | None:
        """The worker's next task. It takes a new block early, so that its first tasks can be sent ahead."""
        while len(coming) <= _REFILL_AT and (block := self._next_block(work, session)):
            coming.extend(block)
            self._add_useful_worker()
        return coming.popleft() if coming and not self._aborted.is_set() else None

    def _run_task(self, session: Session, task: Task, coming: Iterable[Task]) -> "UnjudgedAnswer | None":
        """Run one task. None if the run was ended meanwhile."""
        from encoder_conformance.asking import put, send_ahead

        send_ahead(session, chain([task], coming), self._expected)
        answer = put(session, task, self._expected, coming=coming)
        # An abort ends the run and is not this worker's crash; earlier answers are judged.
        return None if self._aborted.is_set() and not isinstance(answer.result, dict) else answer

    def _next_block(self, work: WorkQueue, session: Session) -> list[Task]:
        with self._lock:
            return [] if self._ended else work.take(session)


def _same_case(task: Task, other: Task | None) -> bool:
    return other is not None and (task.case.id, task.dtype) == (other.case.id, other.dtype)
