"""Per-implementation work queues, and which queue the next free worker takes from."""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from encoder_conformance.diagnosis.observations import Observations
from encoder_conformance.engine.head_start import first_served
from encoder_conformance.implementation.interpreter import Ready
from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.core.order import sharpest_first, work_of
from encoder_conformance.protocol.spool import Spool
from encoder_conformance.worker.session import Session

BUILDS_WORTH_A_WORKER = 4
"""Layers per worker. A worker first imports its framework, which takes as long as a few layers."""
_STARTS_WORTH_A_WORKER = 0.5
"""The time that one more worker has to save, in multiples of its start time."""
_TELLING_TASKS = 4
"""Tasks after which the pace is an estimate."""


class Pace:
    """How long the tasks of a queue take, for their work.

    The longest task does not count: in its first use a framework may import or compile what all the others use.
    """

    def __init__(self) -> None:
        self._tasks = 0
        self._work, self._seconds = 0.0, 0.0
        self._longest = 0.0, 0.0

    def finished(self, work: float, seconds: float) -> None:
        """Count a task."""
        self._tasks += 1
        self._work, self._seconds = self._work + work, self._seconds + seconds
        self._longest = max(self._longest, (seconds, work))

    @property
    def seconds(self) -> float:
        """The seconds of all tasks but the longest."""
        return self._seconds - self._longest[0]

    def seconds_for(self, work: float) -> float:
        """The estimated seconds for more work of one worker; 0 while it is too early to tell."""
        if self._tasks < _TELLING_TASKS:
            return 0.0
        return work * self.seconds / max(self._work - self._longest[1], 1.0)


@dataclass(frozen=True)
class Assignment:
    """One implementation and its tasks."""

    ready: Ready
    tasks: list[Task]

    @property
    def name(self) -> str:
        return self.ready.implementation.name

    @property
    def workers(self) -> int:
        """The number of workers that pay off. Only one worker builds, compiles or exports a given layer."""
        return max(1, len({task.build_key for task in self.tasks}) // BUILDS_WORTH_A_WORKER)


class WorkQueue:
    """The tasks of one implementation, in blocks that one worker runs in a row. Not thread-safe: the caller locks."""

    def __init__(
        self, assignment: Assignment, session: Callable[[int], Session], *, at_once: bool, spool: Spool | None = None
    ) -> None:
        """`session` makes the session of worker n, from 1. `spool`: where the tensors of observations lie.

        `at_once`: further workers start without an estimate of whether the remaining work justifies them.
        """
        self.waiting = deque(sharpest_first(assignment.tasks))
        self._layers = Counter(tasks[0].build_key for tasks in self.waiting)
        self._left = sum(map(work_of, assignment.tasks))
        self.observations = Observations(spool)
        self.sessions = [session(1)]
        self.workers = 0
        self.longest_task, self._session = assignment.ready.implementation.timeouts.longest_task, session
        self._built: dict[Session, tuple[object, ...]] = {}
        self._at_once = at_once
        self.pace = Pace()
        self._begun: float | None = None
        self._start_took = 0.0

    def worker_started(self, start_took: float) -> None:
        """Record that a worker has started, after `start_took` seconds."""
        self._start_took = start_took
        self._begun = self._begun or time.monotonic()

    @property
    def needs_worker(self) -> bool:
        """Whether any waiting task applies; tasks that opted out need no worker."""
        return any(not task.opt_out for tasks in self.waiting for task in tasks)

    def wants_worker(self, speed: float) -> bool:
        """Whether one more worker pays off. The first always does.

        A further worker needs enough layers that no worker has built, and enough remaining work to justify its start.
        `speed`: how fast it would be, in multiples of those that there are.
        """
        if not self.waiting or not self.workers:
            return bool(self.waiting)
        if len(self._layers) < BUILDS_WORTH_A_WORKER * self.workers:
            return False
        return self._at_once or self._saved(speed) > _STARTS_WORTH_A_WORKER * self._start_took

    def _saved(self, speed: float) -> float:
        """The seconds that one more worker would save: it starts as much slower as it works, then takes its part."""
        if not speed:
            return 0.0
        rest = self._seconds_left() - self._start_took / speed
        return rest * speed / (self.workers + speed)

    def _seconds_left(self) -> float:
        """An estimate of the seconds for the waiting tasks, from the pace so far; 0 while it is too early to tell."""
        if self._begun is None or time.monotonic() - self._begun < self._start_took:
            return 0.0
        return self.pace.seconds_for(self._left) / max(self.workers, 1)

    def add_worker(self) -> Session:
        """Count one more worker and return its session."""
        self.workers += 1
        if self.workers > 1:
            self.sessions.append(self._session(len(self.sessions) + 1))
        return self.sessions[-1]

    def take(self, session: Session) -> list[Task]:
        """Remove and return the next block for this worker; [] if none waits.

        It is the first block whose layer no other worker has built last, so that no layer is compiled or exported twice
        at the same time; if there is none, the first block.
        """
        if not self.waiting:
            return []
        built_by_others = {key for other, key in self._built.items() if other is not session}
        keys = (tasks[0].build_key for tasks in self.waiting)
        index = next((index for index, key in enumerate(keys) if key not in built_by_others), 0)
        tasks = self.waiting[index]
        del self.waiting[index]
        self._built[session] = layer = tasks[0].build_key
        self._layers -= Counter([layer])
        self._left -= sum(map(work_of, tasks))
        return tasks


def speed_beside(workers: int, judging: float, processors: int) -> float:
    """How fast one more worker beside so many would be, in multiples of theirs.

    It shares the idle processors with the harness, which judges its answers as it judges those of the others: that
    takes `judging` processors now.
    """
    idle = max(0.0, processors - workers - judging)
    return min(1.0, idle / (1 + judging / max(workers, 1)))


def most_urgent(queues: Iterable[WorkQueue], speed: float) -> WorkQueue | None:
    """The queue that gets the next worker, of this `speed`; None if no queue wants one.

    The first ones by `first_served`. When each queue has a worker, the one with the most blocks per worker.
    """
    wanting = [queue for queue in queues if queue.wants_worker(speed)]
    unserved = [queue for queue in wanting if not queue.workers]
    if unserved and any(queue.workers for queue in queues):
        return min(unserved, key=lambda queue: queue.longest_task)
    if unserved:
        return first_served(unserved, lambda queue: queue.longest_task)[0]
    return max(wanting, key=lambda queue: len(queue.waiting) / queue.workers, default=None)
