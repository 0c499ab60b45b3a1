"""One worker process: start it, ask it, end it. Every question ends, with an answer or with a `WorkerFailure`."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from pydantic import ValidationError

from harness.judge.outcome import Outcome
from harness.threads import blas_threads
from harness.wire.frames import EndOfStream, Frame, Sendable, read_frame, write_frame
from harness.wire.header import FrameError
from harness.wire.messages import Answer, Refusal, Request, Stop
from harness.wire.streamed import Receive
from harness.worker.watchdog import Watchdog


def one_line(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'message'}: {first['msg']}"


class WorkerFailure(Exception):
    """A question that got no good answer: the outcome it deserves, and what to say. `lost`: the process is gone.

    `refused`: the worker says that it is the question's fault (clause X-1).
    """

    def __init__(self, outcome: Outcome, message: str, *, lost: bool, refused: Refusal | None = None) -> None:
        super().__init__(message)
        self.outcome, self.message, self.lost, self.refused = outcome, message, lost, refused


class WorkerProcess:
    """An adapter's process, in a process group of its own, its stderr appended to `log`, with `variables` set in it."""

    def __init__(
        self, command: tuple[str, ...], folder: Path, threads: int, log: Path, variables: Mapping[str, str]
    ) -> None:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **blas_threads(threads), **variables}
        self._log_path = log
        self._log: IO[bytes] = log.open("ab")
        self._log_from = self._log.tell()
        try:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                start_new_session=True,
            )
        except OSError as error:
            self._log.close()
            message = f"cannot be started: {error.strerror}: {command[0]}"
            raise WorkerFailure(Outcome.ERROR, message, lost=True) from None
        self._asked = 0
        self._watchdog = Watchdog(self.kill)

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, request: Request, tensors: Sendable | None, seconds: float, receive: Receive | None = None) -> Frame:
        """Send one request and read its answer, within so many seconds; `receive` takes tensors of a large answer."""
        self._asked += 1
        try:
            with self._watchdog.watching(seconds):
                return self._exchange({"id": self._asked, **request.model_dump(mode="json")}, tensors, receive)
        except WorkerFailure as failure:
            if failure.lost:
                self.end()
            if self._watchdog.bitten:
                raise WorkerFailure(Outcome.TIMEOUT, f"no answer to {request.op} in {seconds:g} s", lost=True) from None
            raise

    def _exchange(self, message: Mapping[str, Any], tensors: Sendable | None, receive: Receive | None) -> Frame:
        assert self._process.stdin and self._process.stdout
        try:
            write_frame(self._process.stdin, message, tensors)
            answer = read_frame(self._process.stdout, receive)
        except (EndOfStream, OSError, ValueError):  # ValueError: the pipe was closed by `kill`
            raise WorkerFailure(Outcome.CRASH, self._how_it_ended(), lost=True) from None
        except FrameError as error:
            to_do = "an adapter prints to standard error, since its standard output is the wire"
            raise WorkerFailure(Outcome.ERROR, f"broke the protocol: sent {error}; {to_do}", lost=True) from None
        try:
            said = Answer.model_validate(answer.message)
        except ValidationError as error:
            raise WorkerFailure(Outcome.ERROR, f"broke the protocol: {one_line(error)}", lost=True) from None
        if said.id != message["id"]:
            text = f"broke the protocol: answered request {said.id} when asked {message['id']}"
            raise WorkerFailure(Outcome.ERROR, text, lost=True)
        if not said.ok:
            text = f"{message['op']}: {said.error or 'refused without saying why'}"
            raise WorkerFailure(Outcome.ERROR, text, lost=False, refused=said.refused)
        return answer

    def stop(self, seconds: float = 5.0) -> None:
        """Ask it to end, and end it if it does not."""
        with contextlib.suppress(WorkerFailure):
            self.ask(Stop(), None, seconds)
        self.end()

    def end(self) -> None:
        """Kill what is left and let go of its pipes; only from the thread that asks."""
        self._watchdog.end()
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if pipe:
                    pipe.close()

    def kill(self) -> None:
        """End the whole process group; safe to call twice and from another thread, whose question then fails."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()

    def _how_it_ended(self) -> str:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "closed its stdout but went on running"
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"
        last = self._last_words()
        return f"the worker {how}" + (f"; its last words: {last}" if last else "")

    def _last_words(self) -> str:
        with self._log_path.open("rb") as log:
            log.seek(self._log_from)
            lines = [line for line in log.read()[-4000:].decode(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip()[:300] if lines else ""
