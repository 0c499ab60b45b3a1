"""Runs the plan: workers of different implementations in parallel, each answer judged when it arrives."""

import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

from encoder_conformance.diagnosis.observations import Observations
from encoder_conformance.engine.head_start import HeadStart, next_item
from encoder_conformance.engine.judge_thread import Early, JudgeThread, Unconfirmed
from encoder_conformance.engine.run_options import RunOptions
from encoder_conformance.engine.scheduling import Assignment, WorkQueue, most_urgent, speed_beside
from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.asking import UnjudgedAnswer, put, send_ahead
from encoder_conformance.judging.core.order import work_of
from encoder_conformance.judging.records import Record
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.platform.interrupts import deferred_interrupts
from encoder_conformance.platform.pool import ThreadPool
from encoder_conformance.platform.processors import share
from encoder_conformance.protocol.answers import Answers
from encoder_conformance.protocol.spool import Spool
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.outcome import EXPECTED
from encoder_conformance.worker.launch import log_of
from encoder_conformance.worker.session import Session
from encoder_conformance.worker.supervisor import Losses

_REFILL_AT = 2
"""A worker takes its next block when it has at most this many tasks left."""


class SuiteRun:
    """A run of assignments. Take its `records` once; call `abort` from any thread."""

    def __init__(
        self,
        assignments: Sequence[Assignment],
        expected: Callable[[Case], Expected],
        options: RunOptions,
        logs: Path,
        observed: Callable[[Task, Expected, Record, Answers], None] | None = None,
        head_start: HeadStart | None = None,
    ) -> None:
        """`observed`: a callback that gets each judged answer. `head_start`: workers that have been started already."""
        self.options, self.logs = options, logs
        self._at_once = options.jobs is not None
        workers = sum(assignment.workers for assignment in assignments)
        self.jobs = max(1, min(options.jobs or os.cpu_count() or 1, workers))
        self.threads = options.threads or share(self.jobs)
        self._expected, self._head_start = expected, head_start
        made = partial(WorkQueue, at_once=self._at_once, spool=Spool())
        self._queues = {each.name: made(each, partial(self._session, each, Losses())) for each in assignments}
        # A Queue waits in Python: an interrupt while it takes its lock again becomes a RuntimeError.
        self._records: queue.SimpleQueue[Record | Early | BaseException | None] = queue.SimpleQueue()
        self._aborted, self._stopping = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._pool = ThreadPool(self.jobs)
        self._begun = 0.0
        self._working = 0
        self._deadline = threading.Timer(0.0, self.abort)
        self._judging = JudgeThread(self._records, observed)

    def _session(self, assignment: Assignment, losses: Losses, number: int) -> Session:
        ready, limits, log = assignment.ready, self.options.limits, log_of(self.logs, assignment.name, number)
        started = self._head_start.take(ready, self.threads, log, limits) if self._head_start else None
        if started is None:
            log.unlink(missing_ok=True)
        session = Session(ready, self.options.device, self.threads, log, limits=limits)
        session.worker.losses, session.worker.early = losses, started
        return session

    def _add_worker(self) -> None:
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

    def records(
        self, early: Callable[[Record], None] = lambda record: None, meanwhile: Iterable[None] = ()
    ) -> Generator[Record, None, None]:
        """Yield every record once its worker can no more be found at fault for it: when it has answered the next check.

        `early` gets each when it is judged, which may be minutes before; one that is yielded in its place differs.
        `meanwhile`: steps of other work, taken while no worker answers. Leaving the loop early, by exception or break,
        kills all workers.
        """
        self.logs.mkdir(parents=True, exist_ok=True)
        self._begun, steps = time.process_time(), iter(meanwhile)
        with self._judging, self._pool:
            finished = False
            try:
                self._begin()
                while not finished:
                    match next_item(self._records, steps):
                        case None:
                            finished = True
                        case Early(record):
                            early(record)
                        case Record() as record:
                            yield record
                        case BaseException() as error:
                            raise error
            finally:
                with deferred_interrupts():
                    self._deadline.cancel()
                    if not finished:
                        self.abort()

    def _begin(self) -> None:
        """Set the deadline, and start the first workers. An interrupt is handled afterwards: all are there to end."""
        with deferred_interrupts():
            if self.options.until is not None:
                self.end_at(self.options.until)
            with self._lock:  # no worker ends before all are counted
                for _ in range(self.jobs if self._at_once else min(self.jobs, len(self._queues))):
                    self._add_worker()

    def first_tasks(self) -> list[Task]:
        """The tasks of the first implementation that apply, in the order in which they are asked."""
        first = next(iter(self._queues.values()))
        return [task for block in first.waiting for task in block if not task.opt_out]

    def end_at(self, until: float) -> None:
        """Kill all workers at this time, by time.monotonic(). It replaces any earlier deadline."""
        with deferred_interrupts():
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
        return max((session.worker.peak_memory for session in self._queues[name].sessions), default=0) or None

    def observations(self, name: str) -> Observations:
        """The observations of an implementation, for its diagnosis."""
        return self._queues[name].observations

    def left(self) -> Iterator[Record]:
        """Yield the records that were judged but not yet iterated over when the run ended."""
        while not self._records.empty():
            if isinstance(item := self._records.get_nowait(), Record):
                yield item

    def abort(self) -> None:
        """End the run and kill all workers, whatever interrupt arrives meanwhile."""
        with deferred_interrupts():
            with self._lock:  # no session starts after this
                self._aborted.set()
                sessions = [session for each in self._queues.values() for session in each.sessions]
            for session in sessions:
                session.abort()

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
            session.worker.start()
        work.worker_started(time.monotonic() - begun)
        failing: tuple[str, str] | None = None
        upcoming = deque[Task]()
        unconfirmed: Unconfirmed | None = None
        while task := self._next_task(work, session, upcoming):
            of = task.case.id, task.dtype
            if self._stopping.is_set() and of != failing:
                break
            answer = self._run_task(session, task, upcoming)
            if answer and not task.opt_out:
                work.pace.finished(work_of(task), answer.seconds)
            if answer and (self.options.fail_fast or task.opt_out):
                verdict = self._judging.judge(work.observations, answer)
                if self.options.fail_fast and verdict.result() not in {*EXPECTED, None}:
                    failing = failing or of
                    self._stopping.set()
            else:
                self._judging.confirm(work.observations, unconfirmed, session.worker.take_fault())
                unconfirmed = self._judging.judge_early(answer) if answer else None
        if failing:
            self.abort()
        session.close()
        self._judging.confirm(work.observations, unconfirmed, session.worker.take_fault())

    def _next_task(self, work: WorkQueue, session: Session, upcoming: deque[Task]) -> Task | None:
        """The worker's next task. It takes a new block early, so that its first tasks can be sent ahead."""
        while len(upcoming) <= _REFILL_AT:
            with self._lock:
                block = [] if self._ended else work.take(session)
            if not block:
                break
            upcoming.extend(block)
            self._add_useful_worker()
        return upcoming.popleft() if upcoming and not self._aborted.is_set() else None

    def _run_task(self, session: Session, task: Task, upcoming: Iterable[Task]) -> UnjudgedAnswer | None:
        """Run one task. None if the run was ended meanwhile."""
        send_ahead(session, chain([task], upcoming), self._expected)
        answer = put(session, task, self._expected, upcoming=upcoming)
        # An abort ends the run and is not this worker's crash; earlier answers are judged.
        return None if self._aborted.is_set() and not isinstance(answer.result, dict) else answer
