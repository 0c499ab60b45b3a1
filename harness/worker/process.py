"""One worker process: start it, ask it, end it. Every question ends, with an answer or with a `WorkerFailure`."""

import contextlib
import os
import signal
import subprocess
from collections import deque
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pydantic import ValidationError

from encoder_conformance.judge.outcome import Outcome
from encoder_conformance.threads import blas_threads
from encoder_conformance.wire.frames import EndOfStream, Frame, Sendable, read_frame, write_frame
from encoder_conformance.wire.header import FrameError
from encoder_conformance.wire.messages import Answer, Refusal, Request, Stop
from encoder_conformance.wire.streamed import Receive
from encoder_conformance.worker.pipe import widened
from encoder_conformance.worker.watchdog import Watchdog

_BESIDE_TENSORS = 16384
"""Bytes that a frame has at most beside its tensors: names, shapes and the message."""


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


@dataclass(frozen=True)
class Pending:
    """A request that was written to the worker. `size`: bytes, at most."""

    id: int
    op: str
    size: int


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
        assert self._process.stdin and self._process.stdout
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self._room = widened(self._requests)
        widened(self._answers)
        self._sent = 0
        self._unanswered: deque[Pending] = deque()
        self._watchdog = Watchdog(self.kill)

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, request: Request, tensors: Sendable | None, seconds: float, receive: Receive | None = None) -> Frame:
        """Send one request and read its answer, within so many seconds; `receive` takes tensors of a large answer."""
        with self._ending_what_takes_longer(request.op, seconds):
            sent = self._next(request, tensors)
            try:
                self._write(sent, request, tensors)
            except (OSError, ValueError):  # ValueError: the pipe was closed by `kill`
                raise WorkerFailure(Outcome.CRASH, self._how_it_ended(), lost=True) from None
            return self._answer_to(sent, receive)

    def has_room(self, *requests: Sendable) -> bool:
        """Whether requests with these tensors can be sent before the last is answered, and nobody waits for nobody.

        A worker that writes an answer has read that request; those after it have to fit into the pipe.
        """
        behind = sum(sent.size for sent in list(self._unanswered)[1:])
        return behind + sum(map(_size, requests)) <= self._room

    def send_ahead(self, request: Request, tensors: Sendable, seconds: float) -> Pending:
        """Send a request before the last is answered; only where `has_room` says so. A worker that is gone has perhaps
        answered before it went: that is found out when the answers are read."""
        sent = self._next(request, tensors)
        with contextlib.suppress(OSError, ValueError), self._watchdog.watching(seconds):
            self._write(sent, request, tensors)
        return sent

    def answer(self, sent: Pending, seconds: float, receive: Receive | None = None) -> Frame:
        """The answer to what was sent ahead, within so many seconds. Earlier ones that nobody read are dropped."""
        with self._ending_what_takes_longer(sent.op, seconds):
            return self._answer_to(sent, receive)

    @contextlib.contextmanager
    def _ending_what_takes_longer(self, op: str, seconds: float) -> Generator[None]:
        try:
            with self._watchdog.watching(seconds):
                yield
        except WorkerFailure as failure:
            if failure.lost:
                self.end()
            if self._watchdog.bitten:
                raise WorkerFailure(Outcome.TIMEOUT, f"no answer to {op} in {seconds:g} s", lost=True) from None
            raise

    def _next(self, request: Request, tensors: Sendable | None) -> Pending:
        self._sent += 1
        self._unanswered.append(Pending(self._sent, request.op, _size(tensors or {})))
        return self._unanswered[-1]

    def _write(self, sent: Pending, request: Request, tensors: Sendable | None) -> None:
        write_frame(self._requests, {"id": sent.id, **request.model_dump(mode="json")}, tensors)

    def _answer_to(self, sent: Pending, receive: Receive | None) -> Frame:
        while (earlier := self._unanswered.popleft()) != sent:
            self._read(earlier)
        answer, said = self._read(sent, receive)
        if not said.ok:
            text = f"{sent.op}: {said.error or 'refused without saying why'}"
            raise WorkerFailure(Outcome.ERROR, text, lost=False, refused=said.refused)
        return answer

    def _read(self, sent: Pending, receive: Receive | None = None) -> tuple[Frame, Answer]:
        try:
            answer = read_frame(self._answers, receive)
        except (EndOfStream, OSError, ValueError):
            raise WorkerFailure(Outcome.CRASH, self._how_it_ended(), lost=True) from None
        except FrameError as error:
            to_do = "an adapter prints to standard error, since its standard output is the wire"
            raise WorkerFailure(Outcome.ERROR, f"broke the protocol: sent {error}; {to_do}", lost=True) from None
        try:
            said = Answer.model_validate(answer.message)
        except ValidationError as error:
            raise WorkerFailure(Outcome.ERROR, f"broke the protocol: {one_line(error)}", lost=True) from None
        if said.id != sent.id:
            text = f"broke the protocol: answered request {said.id} when asked {sent.id}"
            raise WorkerFailure(Outcome.ERROR, text, lost=True)
        return answer, said

    def stop(self, seconds: float = 5.0) -> None:
        """Ask it to end, and end it if it does not."""
        with contextlib.suppress(WorkerFailure):
            self.ask(Stop(), None, seconds)
        self.end()

    def end(self) -> None:
        """Kill what is left and let go of its pipes; only from the thread that asks."""
        self._watchdog.end()
        self.kill()
        for pipe in (self._requests, self._answers):
            with contextlib.suppress(OSError):
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


def _size(tensors: Sendable) -> int:
    return _BESIDE_TENSORS + sum(tensor.nbytes for tensor in tensors.values())
