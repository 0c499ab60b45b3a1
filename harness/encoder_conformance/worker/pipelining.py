"""Pipelining: a session sends requests before earlier ones are answered, so that its worker need not wait."""

from collections import deque
from dataclasses import dataclass

from encoder_conformance.implementation.manifest import Timeouts
from encoder_conformance.implementation.task import Task
from encoder_conformance.protocol.frames import Sendable
from encoder_conformance.protocol.messages import Build
from encoder_conformance.protocol.streamed import Array
from encoder_conformance.worker.marshalling import run_request
from encoder_conformance.worker.process import Pending, WorkerProcess
from encoder_conformance.worker.sizes import size_of_answer

AHEAD = 6
"""The most tasks that are sent ahead. A thread of the harness may wait for the interpreter's lock, and in the meantime
a worker answers several small tasks."""


@dataclass(frozen=True)
class SentTask:
    """A task whose requests were sent before earlier tasks were answered.

    `build`: the build request and its parameters, if the layer had to be built first.
    """

    task: Task
    build: tuple[Pending, Sendable] | None
    run: Pending


class Pipeline:
    """The tasks that were sent ahead to one worker process, in their order."""

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self._sent = deque[SentTask]()

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def last(self) -> Task | None:
        return self._sent[-1].task if self._sent else None

    def take(self, task: Task) -> SentTask | None:
        """The first one, if it is this task."""
        return self._sent.popleft() if self._sent and self._sent[0].task is task else None

    def send(self, worker: WorkerProcess, task: Task, kinked_rows: Array, parameters: Sendable | None) -> bool:
        """Send the next task, and its `parameters` if its layer has to be built. False where it does not fit."""
        run, tensors = run_request(task, kinked_rows)
        if not worker.has_room(tensors, *([] if parameters is None else [parameters])):
            return False
        build = None
        if parameters is not None:
            request = Build(layer=task.case.layer, dtype=task.dtype)
            build = worker.send_ahead(request, parameters, self._timeouts.build), parameters
        pending = worker.send_ahead(run, tensors, self._timeouts.run, answer_bytes=size_of_answer(task))
        self._sent.append(SentTask(task, build, pending))
        return True
