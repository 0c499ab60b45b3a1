"""Keeps one implementation's worker running: started when it is needed, replaced after a loss, stopped at the end."""

import contextlib
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, TypeVar

from encoder_conformance.platform.clean import within
from encoder_conformance.platform.machine import require_machine
from encoder_conformance.protocol.frames import PROTOCOL
from encoder_conformance.protocol.messages import Start, Started
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.worker.failure import Failure, WorkerFailure
from encoder_conformance.worker.launch import Launch
from encoder_conformance.worker.process import WorkerProcess, read_as

Answered = TypeVar("Answered")
Ask = Callable[[WorkerProcess], Answered]
_MOST_OF_VERSIONS, _MOST_OF_SETTINGS = 8_000, 20_000
"""Characters of JSON that a report has of each implementation's."""
LOSSES_IN_A_ROW = 3
"""Checks in a row that lose their worker, after which an implementation is given up: each would cost its limit."""


class Losses:
    """The checks in a row that have lost a worker of one implementation, whichever of its workers that was."""

    def __init__(self) -> None:
        self._count = 0
        self.given_up: Failure | None = None
        """Why no further check is asked, once that is so."""

    def answered(self) -> None:
        """A check has left its worker running."""
        self._count = 0

    def lost(self, failure: Failure) -> None:
        """A check has lost its worker. One that broke the protocol costs no more than its start, and does not count."""
        if failure.outcome not in (Outcome.CRASH, Outcome.TIMEOUT):
            return
        self._count += 1
        if self._count >= LOSSES_IN_A_ROW and self.given_up is None:
            text = f"given up: {LOSSES_IN_A_ROW} checks in a row have lost their worker; the last: {failure.message}"
            self.given_up = Failure(Outcome.NOT_RUN, text, kind="given-up")


class Supervisor:
    """One implementation's worker. `versions` and `settings` come from the adapter's answer to `start`."""

    def __init__(
        self, start: Start, seconds: float, log: Path, launch: Callable[[], Launch], lost: Callable[[], None]
    ) -> None:
        """`start`: the first request to each worker, which has `seconds` for it. `lost` is called when the worker is
        gone, and with it the layer that it had built."""
        self._start, self._seconds, self._log, self._launch, self._lost = start, seconds, log, launch, lost
        self.losses = Losses()
        """Shared by all sessions of one implementation in a run."""
        self.early: WorkerProcess | None = None
        """The first worker, if that has been started already."""
        self.process: WorkerProcess | None = None
        self.versions: dict[str, str] = {}
        self.settings: dict[str, Any] = {}
        self.peak_memory = 0
        """The largest resident bytes of its workers that have ended."""
        self.closed = threading.Event()
        self.unstartable: Failure | None = None
        self._fault_before: Failure | None = None
        self._lost_in_check: Failure | None = None
        self._answered_in_check = False

    def start(self) -> Failure | None:
        """Start the worker. Returns the failure, or None on success."""
        answer = self.attempt(lambda worker: None)
        self._answered_in_check = False
        return answer if isinstance(answer, Failure) else None

    @contextlib.contextmanager
    def check(self) -> Generator[None]:
        """The requests of one check. What the worker did before the first of them is the fault of an earlier check."""
        self._fault_before = self._lost_in_check = None
        self._answered_in_check = False
        yield
        if self._lost_in_check:
            self.losses.lost(self._lost_in_check)
        elif self._answered_in_check:
            self.losses.answered()

    def take_fault(self) -> Failure | None:
        """The failure after the answer to the check before the last one, whose fault that is; once."""
        fault, self._fault_before = self._fault_before, None
        return None if self.closed.is_set() else fault  # the harness has ended the worker

    def write_log(self) -> None:
        """Have everything in the log that the worker has written to standard error before its last answer."""
        if self.process:
            self.process.write_log()

    def close(self) -> None:
        """Stop the worker. `versions` and `settings` stay."""
        if early := self._take_early():
            early.end()
        if self.process:
            if fault := self.process.stop():
                self._fault_before = fault.failure
            self._forget_worker()

    def abort(self) -> None:
        """Kill the worker, from any thread. No worker is started after this."""
        self.closed.set()
        for worker in (self.process, self.early):
            if worker:
                worker.kill()

    def _forget_worker(self) -> None:
        if self.process:
            self.peak_memory = max(self.peak_memory, self.process.peak)
            self.process = None

    def _started(self) -> WorkerProcess:
        if self.process:
            return self.process  # earlier answers of a killed worker can still be read
        if self.closed.is_set():
            raise WorkerFailure(Outcome.NOT_RUN, "the run was ended", lost=True)
        try:
            self.process = worker = self._take_early() or WorkerProcess(self._launch())
            if self.closed.is_set():  # aborted while it was started
                worker.kill()
            started = read_as(Started, worker.ask(self._start, None, self._seconds), lost=True)
            if (spoken := started.protocol) != PROTOCOL:
                text = f"speaks protocol {spoken}, this harness {PROTOCOL}: bring the adapter up to docs/wire.md"
                raise WorkerFailure(Outcome.ERROR, text, lost=True)
        except WorkerFailure as problem:
            if self.process:
                self.process.end()
            see = f" (see {self._log.name})" if self._log.is_file() and self._log.stat().st_size else ""
            self.unstartable = Failure(problem.outcome, f"could not be started: {problem.message}{see}")
            raise WorkerFailure(self.unstartable.outcome, self.unstartable.message, lost=True) from None
        self.versions = within(started.versions, _MOST_OF_VERSIONS)
        self.settings = within(started.settings, _MOST_OF_SETTINGS)
        return worker

    def _take_early(self) -> WorkerProcess | None:
        early, self.early = self.early, None
        return early

    def attempt(self, ask: Ask[Answered], again: Ask[Answered] | None = None) -> Answered | Failure:
        """The result of `ask` with a running worker, or why there is none.

        A worker that ended because of an earlier check is replaced once, and `again`, or else `ask`, is put to the new
        one. A start that failed once is not tried again.
        """
        if self.unstartable:
            return self.unstartable
        before: int | None = None
        try:
            worker = self._started()
            before = worker.answers
            answer = ask(worker)
        except WorkerFailure as failure:
            if failure.outcome in (Outcome.ERROR, Outcome.CRASH):
                require_machine()  # it may have run out of what every worker needs
            answered = before is not None and worker.answers != before
            self._answered_in_check |= answered or not failure.lost
            if failure.lost:
                self._forget_worker()
                self._lost()
            first = not self._answered_in_check and self._fault_before is None
            if failure.earlier and first and not self.closed.is_set():
                self._fault_before = failure.failure
                self._lost_in_check = failure.failure
                return self.attempt(again or ask)
            if failure.lost:
                self._lost_in_check = failure.failure
            return failure.failure
        self._answered_in_check = True
        return answer
