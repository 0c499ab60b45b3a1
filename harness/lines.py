"""What waits to be asked of an implementation in a run, and the workers that have come to ask it."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby

from harness.deviations.sighting import Seen
from harness.impl.interpreter import Ready
from harness.plan import Task
from harness.worker.session import Session

LAYERS_WORTH_A_WORKER = 4
"""A worker imports its framework first, which takes as long as a few layers do."""
ACTIVATIONS = 2e5
"""Features of x, times layers, that take as long as all that a small check takes beside them."""


@dataclass(frozen=True)
class Share:
    """One implementation and what it is asked."""

    ready: Ready
    tasks: list[Task]

    def by_layer(self) -> list[list[Task]]:
        """The tasks, in order, of each layer that is built: one worker takes them all. The most work comes first, so
        that no worker is left with it at the end."""
        layers = [list(group) for _, group in groupby(self.tasks, key=lambda task: task.build_key)]
        return sorted(layers, key=lambda tasks: -sum(map(work_of, tasks)))

    @property
    def workers(self) -> int:
        """How many workers it is worth: a layer is built, compiled or exported by one of them alone."""
        return max(1, len(self.by_layer()) // LAYERS_WORTH_A_WORKER)


def work_of(task: Task) -> float:
    """About how much work a check is: the same for each small one, and then as much as it has activations."""
    batch, sequence, d_model = task.case.x_shape
    return 0.0 if task.opt_out else 1 + batch * sequence * d_model * task.case.layer.stack.layers / ACTIVATIONS


class Line:
    """One implementation's. Not locked: who takes from it sees to that."""

    def __init__(self, share: Share, session: Callable[[int], Session]) -> None:
        """`session` makes that of worker number n, from 1."""
        self.waiting = deque(share.by_layer())
        self.seen = Seen()
        self.sessions = [session(1)]
        self.workers = 0
        timeouts = share.ready.implementation.timeouts
        self._longest, self._session = timeouts.build + timeouts.run, session

    @property
    def urgency(self) -> tuple[float, ...]:
        """Which of several comes first: one that nobody has come to, and of these one that may take long, which would
        else end alone; after that, one that has the most left for each worker."""
        return (-self.workers, len(self.waiting)) if self.workers else (1, self._longest)

    @property
    def asks(self) -> bool:
        """Whether any of what waits needs a worker's answer, or is all opted out of."""
        return any(not task.opt_out for tasks in self.waiting for task in tasks)

    @property
    def wants_a_worker(self) -> bool:
        """The first always; one more where it would find enough to do beside those that are there."""
        return bool(self.waiting) and len(self.waiting) >= LAYERS_WORTH_A_WORKER * self.workers

    def join(self) -> Session:
        """The session of one more worker."""
        self.workers += 1
        if self.workers > 1:
            self.sessions.append(self._session(len(self.sessions) + 1))
        return self.sessions[-1]


def most_urgent(lines: Iterable[Line]) -> Line | None:
    return max((line for line in lines if line.wants_a_worker), key=lambda line: line.urgency, default=None)
