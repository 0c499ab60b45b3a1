"""Per-implementation work queues, and which queue the next free worker takes from."""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from encoder_conformance.core.order import sharpest_first, work_of
from encoder_conformance.diagnosis.observations import Observations
from encoder_conformance.impl.interpreter import Ready
from encoder_conformance.task import Task
from encoder_conformance.worker.session import Session

BUILDS_WORTH_A_WORKER = 4
"""A worker imports its framework first, which takes as long as a few layers do."""
_STARTS_WORTH_A_WORKER = 2
"""How many times the start of a worker what is left has to take, for one more to be worth its own."""


@dataclass(frozen=True)
class Assignment:
    """One implementation and what it is asked."""

    ready: Ready
    tasks: list[Task]

    @property
    def name(self) -> str:
        return self.ready.implementation.name

    @property
    def workers(self) -> int:
        """How many workers it is worth: a layer is built, compiled or exported by one of them alone."""
        return max(1, len({task.build_key for task in self.tasks}) // BUILDS_WORTH_A_WORKER)


class WorkQueue:
    """Tasks of one implementation, in blocks that one worker asks in a row. Not locked: the caller holds a lock."""

    def __init__(self, assignment: Assignment, session: Callable[[int], Session], *, at_once: bool) -> None:
        """`session` makes that of worker number n, from 1. `at_once`: a second worker does not wait until it is known
        whether what is left outweighs its start."""
        self.waiting = deque(sharpest_first(assignment.tasks))
        self._layers = Counter(tasks[0].build_key for tasks in self.waiting)
        self._left = sum(map(work_of, assignment.tasks))
        self.seen = Observations()
        self.sessions = [session(1)]
        self.workers = 0
        timeouts = assignment.ready.implementation.timeouts
        self.longest, self._session = timeouts.build + timeouts.run, session
        self._built: dict[Session, tuple[object, ...]] = {}
        self._at_once = at_once
        self._begun: float | None = None
        self._start_took = 0.0
        self._taken = 0.0

    def begins(self, start_took: float) -> None:
        """A worker is there, after so many seconds."""
        self._start_took = start_took
        self._begun = self._begun or time.monotonic()

    @property
    def asks(self) -> bool:
        """Whether any of what waits needs a worker's answer, or is all opted out of."""
        return any(not task.opt_out for tasks in self.waiting for task in tasks)

    @property
    def wants_a_worker(self) -> bool:
        """The first always; one more where it would find enough to do beside those that are there: enough layers, and
        enough to outweigh its start, by what those took until now."""
        if not self.waiting or not self.workers:
            return bool(self.waiting)
        if len(self._layers) < BUILDS_WORTH_A_WORKER * self.workers:
            return False
        return self._at_once or self._seconds_left() >= _STARTS_WORTH_A_WORKER * self._start_took

    def _seconds_left(self) -> float:
        """What waits will take about, by the time that what was taken took; 0 while too little was taken to tell."""
        if self._begun is None or (past := time.monotonic() - self._begun) < self._start_took:
            return 0.0
        return past * self._left / max(self._taken, 1.0)

    def join(self) -> Session:
        """The session of one more worker."""
        self.workers += 1
        if self.workers > 1:
            self.sessions.append(self._session(len(self.sessions) + 1))
        return self.sessions[-1]

    def take(self, session: Session) -> list[Task]:
        """The next block for this worker, [] if none waits: the first of a layer that no other worker has built, so
        that no layer is compiled or exported twice at the same time; or the first of all."""
        if not self.waiting:
            return []
        others = {key for other, key in self._built.items() if other is not session}
        at = next((at for at, tasks in enumerate(self.waiting) if tasks[0].build_key not in others), 0)
        tasks = self.waiting[at]
        del self.waiting[at]
        self._built[session] = layer = tasks[0].build_key
        self._layers -= Counter([layer])
        work = sum(map(work_of, tasks))
        self._taken, self._left = self._taken + work, self._left - work
        return tasks


def most_urgent(queues: Iterable[WorkQueue]) -> WorkQueue | None:
    """The queue for one more worker. First one that may take long, which would else end alone; beside it the one that
    is done first, so that a first result comes soon; when each has a worker, the one with the most left for each."""
    wanting = [queue for queue in queues if queue.wants_a_worker]
    alone = [queue for queue in wanting if not queue.workers]
    if len(alone) == len(wanting) and len(alone) > 1 and not any(queue.workers for queue in queues):
        return max(alone, key=lambda queue: queue.longest)
    if alone:
        return min(alone, key=lambda queue: queue.longest)
    return max(wanting, key=lambda queue: len(queue.waiting) / queue.workers, default=None)
