"""The life of one worker: started when it is needed, restarted after a loss, stopped at the end."""

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from encoder_conformance.clean import within
from encoder_conformance.impl.interpreter import Ready
from encoder_conformance.impl.manifest import Device
from encoder_conformance.judge.outcome import Outcome
from encoder_conformance.wire.frames import PROTOCOL
from encoder_conformance.wire.messages import Start, Started
from encoder_conformance.worker.failure import Failure, WorkerFailure
from encoder_conformance.worker.launch import Launch
from encoder_conformance.worker.limits import Limits
from encoder_conformance.worker.process import WorkerProcess, one_line
from encoder_conformance.worker.strikes import Strikes

Answered = TypeVar("Answered")
_MOST_OF_VERSIONS, _MOST_OF_SETTINGS = 8_000, 20_000
"""Characters of JSON that a report has of each implementation's."""


class Lifecycle(ABC):
    """One implementation and its worker. `versions` and `settings` come from the adapter's answer to `start`."""

    def __init__(
        self,
        ready: Ready,
        device: Device,
        threads: int,
        log: Path,
        variables: Mapping[str, str] | None = None,
        *,
        limits: Limits | None = None,
        strikes: Strikes | None = None,
        early: WorkerProcess | None = None,
    ) -> None:
        """`variables`: environment variables of the worker, beside those that set its number of threads. `strikes`:
        shared by the sessions of one implementation. `early`: its first worker, if that has been started already."""
        self.ready, self.device, self.threads, self.log = ready, device, threads, log
        self._variables = variables or {}
        self._limits = limits or Limits()
        self._strikes = strikes or Strikes()
        self.versions: dict[str, str] = {}
        self.settings: dict[str, Any] = {}
        self.peak_memory = 0
        """The largest resident bytes of its workers that have ended."""
        self._fault_before: Failure | None = None
        self._worker: WorkerProcess | None = None
        self._early = early
        self._unstartable: Failure | None = None
        self._unbuildable: dict[tuple[object, ...], Failure] = {}
        self._closed = threading.Event()
        self._lost_in_check: Failure | None = None
        self._answered_in_check = False
        self.lost()

    def start(self) -> Failure | None:
        """Start the worker. Returns the failure, or None on success."""
        answer = self._attempt(("start",), lambda worker: None)
        self._answered_in_check = False
        return answer if isinstance(answer, Failure) else None

    @property
    def pid(self) -> int | None:
        """The worker's process id; None if no worker runs."""
        return self._worker.pid if self._worker else None

    @property
    def given_up(self) -> Failure | None:
        """Why no check is to be asked of this implementation any more; None while there is no reason."""
        return self._strikes.given_up

    @contextlib.contextmanager
    def check(self) -> Generator[None]:
        """The requests of one check. What the worker did before the first of them is the fault of an earlier check."""
        self._fault_before = self._lost_in_check = None
        self._answered_in_check = False
        yield
        if self._lost_in_check:
            self._strikes.lost(self._lost_in_check)
        elif self._answered_in_check:
            self._strikes.answered()

    def take_fault(self) -> Failure | None:
        """What the worker did after it had answered the check before the last one, whose fault that is; once."""
        fault, self._fault_before = self._fault_before, None
        return None if self._closed.is_set() else fault  # the harness has ended the worker

    def write_log(self) -> None:
        """Have everything in the log that the worker has written to standard error before its last answer."""
        if self._worker:
            self._worker.write_log()

    @abstractmethod
    def lost(self) -> None:
        """Called at first, and when the worker is gone, and with it the layer that it had built."""

    def close(self) -> None:
        """Stop the worker. `versions` and `settings` stay."""
        if early := self._take_early():
            early.end()
        if self._worker:
            if fault := self._worker.stop():
                self._fault_before = fault.failure
            self._forget_worker()

    def abort(self) -> None:
        """Kill the worker, from any thread. No worker is started after this."""
        self._closed.set()
        for worker in (self._worker, self._early):
            if worker:
                worker.kill()

    def _forget_worker(self) -> None:
        if self._worker:
            self.peak_memory = max(self.peak_memory, self._worker.peak)
            self._worker = None

    def _started(self) -> WorkerProcess:
        if self._worker:
            return self._worker  # earlier answers of a killed worker can still be read
        if self._closed.is_set():
            raise WorkerFailure(Outcome.NOT_RUN, "the run was ended", lost=True)
        implementation = self.ready.implementation
        try:
            self._worker = worker = self._take_early() or self._launch().start()
            if self._closed.is_set():  # aborted while it was started
                worker.kill()
            request = Start(device=self.device, threads=self.threads, choices=implementation.chosen)
            answer = worker.ask(request, None, implementation.timeouts.start)
            started = Started.model_validate(answer.message)
            if (spoken := started.protocol) != PROTOCOL:
                text = f"speaks protocol {spoken}, this harness {PROTOCOL}: bring the adapter up to docs/wire.md"
                raise WorkerFailure(Outcome.ERROR, text, lost=True)
        except (WorkerFailure, ValidationError) as problem:
            self._unstartable = _cannot_start(problem, self.log)
            if self._worker:
                self._worker.end()
            raise WorkerFailure(self._unstartable.outcome, self._unstartable.message, lost=True) from None
        self.versions = within(started.versions, _MOST_OF_VERSIONS)
        self.settings = within(started.settings, _MOST_OF_SETTINGS)
        return worker

    def _launch(self) -> Launch:
        return Launch.of(self.ready, self.threads, self.log, self._limits, self._variables)

    def _take_early(self) -> WorkerProcess | None:
        early, self._early = self._early, None
        return early

    def _attempt(
        self,
        key: tuple[object, ...],
        ask: Callable[[WorkerProcess], Answered],
        again: Callable[[WorkerProcess], Answered] | None = None,
    ) -> Answered | Failure:
        """The result of `ask` with a running worker, or why there is none.

        A worker that ended because of an earlier check is replaced once, and `again`, or else `ask`, is put to the new
        one. A start that failed once and a layer `key` that could not be built are not tried again.
        """
        if self._unstartable:
            return self._unstartable
        if key in self._unbuildable:
            return self._unbuildable[key]
        before: int | None = None
        try:
            worker = self._started()
            before = worker.answers
            answer = ask(worker)
        except WorkerFailure as failure:
            answered = before is not None and worker.answers != before
            self._answered_in_check |= answered or not failure.lost
            if failure.lost:
                self._forget_worker()
                self.lost()
            first = not self._answered_in_check and self._fault_before is None
            if failure.earlier and first and not self._closed.is_set():
                self._fault_before = failure.failure
                self._lost_in_check = failure.failure
                return self._attempt(key, again or ask)
            if failure.lost:
                self._lost_in_check = failure.failure
            return failure.failure
        self._answered_in_check = True
        return answer


def _cannot_start(problem: WorkerFailure | ValidationError, log: Path) -> Failure:
    if isinstance(problem, WorkerFailure):
        outcome, reason = problem.outcome, problem.message
    else:
        outcome, reason = Outcome.ERROR, f"broke the protocol: {one_line(problem)}"
    return Failure(outcome, f"could not be started: {reason} (see {log.name})")
