"""One worker process. Every request ends within its time limit, with an answer or with a `WorkerFailure`."""

import contextlib
import os
import signal
import subprocess
from collections import deque
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

from pydantic import ValidationError

from encoder_conformance.judge.outcome import Outcome
from encoder_conformance.threads import blas_threads
from encoder_conformance.wire.frames import EndOfStream, Frame, Sendable, Tensors, read_frame, write_frame
from encoder_conformance.wire.header import FrameError
from encoder_conformance.wire.messages import Answer, Refusal, Request, Stop
from encoder_conformance.wire.streamed import Receive
from encoder_conformance.worker.pipe import enlarge_pipe
from encoder_conformance.worker.watchdog import Watchdog

_BESIDE_TENSORS = 16384
"""Upper bound, in bytes, for the rest of a frame: names, shapes and the message."""


def one_line(error: ValidationError) -> str:
    """The first problem of a validation error, in one line."""
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'message'}: {first['msg']}"


Replied = TypeVar("Replied", bound=Answer)


class WorkerFailure(Exception):
    """A request without a good answer: the outcome of its check, and a message.

    `lost`: the process is gone. `refused`: the category, if the worker refused the request (clause X-1).
    """

    def __init__(self, outcome: Outcome, message: str, *, lost: bool, refused: Refusal | None = None) -> None:
        super().__init__(message)
        self.outcome, self.message, self.lost, self.refused = outcome, message, lost, refused


@dataclass(frozen=True)
class Pending:
    """A request that was sent and not answered yet. `size`: upper bound of its bytes."""

    id: int
    op: str
    size: int


class WorkerProcess:
    """An adapter's process, in its own process group. Its stderr is appended to `log`."""

    def __init__(
        self, command: tuple[str, ...], folder: Path, threads: int, log: Path, variables: Mapping[str, str]
    ) -> None:
        """Start `command` in `folder`, with `variables` in its environment. Raises WorkerFailure if it cannot start."""
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
        self._capacity = enlarge_pipe(self._requests)
        enlarge_pipe(self._answers)
        self._last_id = 0
        self._unanswered: deque[Pending] = deque()
        self._watchdog = Watchdog(self.kill)

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, request: Request, tensors: Sendable | None, seconds: float, receive: Receive | None = None) -> Frame:
        """Send one request and read its answer within `seconds`. Tensors that `receive` takes are not in the frame."""
        with self._time_limit(request.op, seconds):
            pending = self._enqueue(request, tensors)
            try:
                self._write(pending, request, tensors)
            except (OSError, ValueError):  # ValueError: the pipe was closed by `kill`
                raise WorkerFailure(Outcome.CRASH, self._exit_message(), lost=True) from None
            return self._answer_to(pending, receive)

    def ask_for(
        self,
        kind: type[Replied],
        request: Request,
        tensors: Sendable | None,
        seconds: float,
        receive: Receive | None = None,
    ) -> tuple[Replied, Tensors]:
        """`ask`, with the answer's message read as this `kind`."""
        frame = self.ask(request, tensors, seconds, receive)
        try:
            return kind.model_validate(frame.message), frame.tensors
        except ValidationError as error:
            raise WorkerFailure(Outcome.ERROR, f"broke the protocol: {one_line(error)}", lost=False) from None

    def has_room(self, *requests: Sendable) -> bool:
        """Whether requests with these tensors can be sent ahead without a deadlock.

        A worker that writes an answer has read that request. All later requests must fit into the pipe.
        """
        waiting = sum(pending.size for pending in list(self._unanswered)[1:])
        return waiting + sum(map(_size_bound, requests)) <= self._capacity

    def send_ahead(self, request: Request, tensors: Sendable, seconds: float) -> Pending:
        """Send a request before the previous ones are answered; call it only if `has_room`.

        A failed write raises nothing: the worker may have answered earlier requests, and reading answers reports it.
        """
        pending = self._enqueue(request, tensors)
        with contextlib.suppress(OSError, ValueError), self._watchdog.watching(seconds):
            self._write(pending, request, tensors)
        return pending

    def answer(self, pending: Pending, seconds: float, receive: Receive | None = None) -> Frame:
        """The answer to a request that was sent ahead, within `seconds`. Unread earlier answers are dropped."""
        with self._time_limit(pending.op, seconds):
            return self._answer_to(pending, receive)

    @contextlib.contextmanager
    def _time_limit(self, op: str, seconds: float) -> Generator[None]:
        try:
            with self._watchdog.watching(seconds):
                yield
        except WorkerFailure as failure:
            if failure.lost:
                self.end()
            if self._watchdog.timed_out:
                raise WorkerFailure(Outcome.TIMEOUT, f"no answer to {op} in {seconds:g} s", lost=True) from None
            raise

    def _enqueue(self, request: Request, tensors: Sendable | None) -> Pending:
        self._last_id += 1
        self._unanswered.append(Pending(self._last_id, request.op, _size_bound(tensors or {})))
        return self._unanswered[-1]

    def _write(self, pending: Pending, request: Request, tensors: Sendable | None) -> None:
        write_frame(self._requests, {"id": pending.id, **request.model_dump(mode="json")}, tensors)

    def _answer_to(self, pending: Pending, receive: Receive | None) -> Frame:
        while (earlier := self._unanswered.popleft()) != pending:
            self._read(earlier)
        frame, answer = self._read(pending, receive)
        if not answer.ok:
            text = f"{pending.op}: {answer.error or 'refused without saying why'}"
            raise WorkerFailure(Outcome.ERROR, text, lost=False, refused=answer.refused)
        return frame

    def _read(self, pending: Pending, receive: Receive | None = None) -> tuple[Frame, Answer]:
        try:
            frame = read_frame(self._answers, receive)
        except (EndOfStream, OSError, ValueError):
            raise WorkerFailure(Outcome.CRASH, self._exit_message(), lost=True) from None
        except FrameError as error:
            hint = "an adapter prints to standard error, since its standard output is the wire"
            raise WorkerFailure(Outcome.ERROR, f"broke the protocol: sent {error}; {hint}", lost=True) from None
        try:
            answer = Answer.model_validate(frame.message)
        except ValidationError as error:
            raise WorkerFailure(Outcome.ERROR, f"broke the protocol: {one_line(error)}", lost=True) from None
        if answer.id != pending.id:
            text = f"broke the protocol: answered request {answer.id} when asked {pending.id}"
            raise WorkerFailure(Outcome.ERROR, text, lost=True)
        return frame, answer

    def stop(self, seconds: float = 5.0) -> None:
        """Send `stop`, and kill the process if it does not end within `seconds`."""
        with contextlib.suppress(WorkerFailure):
            self.ask(Stop(), None, seconds)
        self.end()

    def end(self) -> None:
        """Kill the process group and close the pipes. Call it only from the thread that sends requests."""
        self._watchdog.end()
        self.kill()
        for pipe in (self._requests, self._answers):
            with contextlib.suppress(OSError):
                pipe.close()

    def kill(self) -> None:
        """Kill the process group. Safe to call twice and from another thread; a request in progress then fails."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()

    def _exit_message(self) -> str:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "closed its stdout but went on running"
        end = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"
        last_line = self._last_log_line()
        return f"the worker {end}" + (f"; its last words: {last_line}" if last_line else "")

    def _last_log_line(self) -> str:
        with self._log_path.open("rb") as log:
            log.seek(self._log_from)
            lines = [line for line in log.read()[-4000:].decode(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip()[:300] if lines else ""


def _size_bound(tensors: Sendable) -> int:
    return _BESIDE_TENSORS + sum(tensor.nbytes for tensor in tensors.values())
