"""What a session sends before earlier requests are answered, so that its worker need not wait."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from encoder_conformance.task import Task
from encoder_conformance.worker.process import Pending
from encoder_conformance.worker.sent import Sent

AHEAD = 6
"""The most tasks that are sent ahead. A thread of the harness may wait for the interpreter's lock, and in the meantime
a worker answers several small tasks."""


@dataclass(frozen=True)
class SentTask:
    """A task whose requests were sent before earlier tasks were answered.

    `build`: the build request and its parameters, if the layer had to be built first.
    """

    task: Task
    build: tuple[Pending, Sent] | None
    run: Pending


class Requests:
    """The requests of checks that consist of several, each with a description.

    They are made once, since a request that has been sent ahead is known by its identity.
    """

    def __init__(self) -> None:
        self._made = deque[tuple[Task, Sequence[tuple[str, Task]]]](maxlen=AHEAD)

    def of(self, task: Task, make: Callable[[Task], Sequence[tuple[str, Task]]]) -> Sequence[tuple[str, Task]]:
        for known, requests in self._made:
            if known is task:
                return requests
        self._made.append((task, make(task)))
        return self._made[-1][1]
