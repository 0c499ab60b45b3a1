"""The life of one worker: started when it is needed, restarted after a loss, stopped at the end."""

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
    """A check without an observation: its outcome and the reason. `refused`: the category of a refusal (clause X-1)."""

    outcome: Outcome
    message: str
    refused: Refusal | None = None


class Lifecycle(ABC):
    """One implementation and its worker. `versions` and `settings` come from the adapter's answer to `start`."""

    def __init__(
        self, ready: Ready, device: Device, threads: int, log: Path, variables: Mapping[str, str] | None = None
    ) -> None:
        """`variables`: environment variables of the worker, beside those that set its number of threads."""
        self.ready, self.device, self.threads, self.log = ready, device, threads, log
        self._variables = variables or {}
        self.versions: dict[str, str] = {}
        self.settings: dict[str, Any] = {}
        self._worker: WorkerProcess | None = None
        self._unstartable: Failure | None = None
        self._unbuildable: dict[tuple[object, ...], Failure] = {}
        self._closed = threading.Event()

    def start(self) -> Failure | None:
        """Start the worker. Returns the failure, or None on success."""
        answer = self._attempt(("start",), lambda worker: None)
        return answer if isinstance(answer, Failure) else None

    @property
    def pid(self) -> int | None:
        """The worker's process id; None if no worker runs."""
        return self._worker.pid if self._worker else None

    @abstractmethod
    def lost(self) -> None:
        """Called when the worker is gone, and with it the layer that it had built."""

    def close(self) -> None:
        """Stop the worker. `versions` and `settings` stay."""
        if self._worker:
            self._worker.stop()
            self._worker = None

    def abort(self) -> None:
        """Kill the worker, from any thread. No worker is started after this."""
        self._closed.set()
        self._kill()

    def _kill(self) -> None:
        if worker := self._worker:
            worker.kill()

    def _started(self) -> WorkerProcess:
        if self._worker:
            return self._worker  # earlier answers of a killed worker can still be read
        if self._closed.is_set():
            raise WorkerFailure(Outcome.NOT_RUN, "the run was ended", lost=True)
        try:
            worker = WorkerProcess(self.ready.command, self.ready.folder, self.threads, self.log, self._variables)
            self._worker = worker
            choices = self.ready.implementation.chosen
            request = Start(device=self.device, threads=self.threads, choices=choices)
            answer = worker.ask(request, None, self.ready.implementation.timeouts.start)
            started = Started.model_validate(answer.message)
            if (spoken := started.protocol) != PROTOCOL:
                text = f"speaks protocol {spoken}, this harness {PROTOCOL}: bring the adapter up to docs/wire.md"
                raise WorkerFailure(Outcome.ERROR, text, lost=True)
        except (WorkerFailure, ValidationError) as problem:
            self._unstartable = _cannot_start(problem, self.log)
            if self._worker:
                self._worker.end()
            raise WorkerFailure(self._unstartable.outcome, self._unstartable.message, lost=True) from None
        self.versions, self.settings = started.versions, started.settings
        return worker

    def _attempt(self, key: tuple[object, ...], ask: Callable[[WorkerProcess], Answered]) -> Answered | Failure:
        """The result of `ask` with a running worker, or why there is none.

        A start that failed once and a layer `key` that could not be built are not tried again.
        """
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
        outcome, reason = problem.outcome, problem.message
    else:
        outcome, reason = Outcome.ERROR, f"broke the protocol: {one_line(problem)}"
    return Failure(outcome, f"could not be started: {reason} (see {log.name})")
