"""Keeps one worker of an implementation alive: starts it when it is needed, and again where it was lost."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from encoder_conformance.impl.interpreter import Ready
from encoder_conformance.impl.manifest import Device
from encoder_conformance.judge.outcome import Outcome
from encoder_conformance.wire.frames import PROTOCOL
from encoder_conformance.wire.messages import Refusal, Start, Started
from encoder_conformance.worker.process import WorkerFailure, WorkerProcess, one_line

Answered = TypeVar("Answered")


@dataclass(frozen=True)
class Failure:
    """No observation: the outcome that this check gets, and why. `refused`: the category of a refusal (clause X-1)."""

    outcome: Outcome
    message: str
    refused: Refusal | None = None


class Lifecycle(ABC):
    """`versions` and `settings` are what the adapter says of itself, once it has started."""

    def __init__(
        self, ready: Ready, device: Device, threads: int, log: Path, variables: Mapping[str, str] | None = None
    ) -> None:
        """`variables` are set in the worker's environment, beside those that say how many threads it has."""
        self.ready, self.device, self.threads, self.log = ready, device, threads, log
        self._variables = variables or {}
        self.versions: dict[str, str] = {}
        self.settings: dict[str, Any] = {}
        self._worker: WorkerProcess | None = None
        self._unstartable: Failure | None = None
        self._unbuildable: dict[tuple[object, ...], Failure] = {}
        self._closed = threading.Event()

    def start(self) -> Failure | None:
        """Start the worker; why it does not, or None where it does."""
        answer = self._try(("start",), lambda worker: None)
        return answer if isinstance(answer, Failure) else None

    @property
    def pid(self) -> int | None:
        """The worker's process, if there is one."""
        return self._worker.pid if self._worker else None

    @abstractmethod
    def lost(self) -> None:
        """The worker is gone, with the layer that it had built."""

    def close(self) -> None:
        """Let the worker end by itself. The session still says what it was."""
        if self._worker:
            self._worker.stop()
            self._worker = None

    def abort(self) -> None:
        """End the worker now, from another thread; nothing is started again."""
        self._closed.set()
        self._kill()

    def _kill(self) -> None:
        if worker := self._worker:
            worker.kill()

    def _started(self) -> WorkerProcess:
        if self._worker:
            return self._worker  # of one that was ended, what it answered before can still be read
        if self._closed.is_set():
            raise WorkerFailure(Outcome.NOT_RUN, "the run was ended", lost=True)
        try:
            worker = WorkerProcess(self.ready.command, self.ready.folder, self.threads, self.log, self._variables)
            self._worker = worker
            chosen = self.ready.implementation.chosen
            request = Start(device=self.device, threads=self.threads, choices=chosen)
            answer = worker.ask(request, None, self.ready.implementation.timeouts.start)
            said = Started.model_validate(answer.message)
            if said.protocol != PROTOCOL:
                text = f"speaks protocol {said.protocol}, this harness {PROTOCOL}: bring the adapter up to docs/wire.md"
                raise WorkerFailure(Outcome.ERROR, text, lost=True)
        except (WorkerFailure, ValidationError) as problem:
            self._unstartable = _cannot_start(problem, self.log)
            if self._worker:
                self._worker.end()
            raise WorkerFailure(self._unstartable.outcome, self._unstartable.message, lost=True) from None
        self.versions, self.settings = said.versions, said.settings
        return worker

    def _try(self, key: tuple[object, ...], ask: Callable[[WorkerProcess], Answered]) -> Answered | Failure:
        """What a worker says, if there is one and the layer `key` can be built."""
        if self._unstartable:
            return self._unstartable
        if key in self._unbuildable:
            return self._unbuildable[key]
        try:
            return ask(self._started())
        except WorkerFailure as failure:
            if failure.lost:
                self._worker = None
                self.lost()
            return Failure(failure.outcome, failure.message, failure.refused)


def _cannot_start(problem: WorkerFailure | ValidationError, log: Path) -> Failure:
    if isinstance(problem, WorkerFailure):
        outcome, why = problem.outcome, problem.message
    else:
        outcome, why = Outcome.ERROR, f"broke the protocol: {one_line(problem)}"
    return Failure(outcome, f"could not be started: {why} (see {log.name})")
