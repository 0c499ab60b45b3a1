"""One worker process. Every request ends within its time limit, with an answer or with a `WorkerFailure`."""

import contextlib
import secrets
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeVar

from pydantic import ValidationError

from encoder_conformance.platform.clean import cleaned, line
from encoder_conformance.platform.errors import MachineError
from encoder_conformance.platform.machine import require_machine, require_time
from encoder_conformance.protocol.frames import CutOff, EndOfStream, Frame, Sendable, read_frame, write_frame
from encoder_conformance.protocol.header import FrameError
from encoder_conformance.protocol.messages import Answer, Request, Stop
from encoder_conformance.protocol.streamed import Receive
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.reason import Kind
from encoder_conformance.worker.channel import Channel, EndedError, OverdueError
from encoder_conformance.worker.failure import WorkerFailure
from encoder_conformance.worker.guarded import GuardedProcess
from encoder_conformance.worker.launch import Launch, end_of_log
from encoder_conformance.worker.sizes import size_of

_BESIDE_TENSORS = 16384
"""Upper bound, in bytes, for the rest of a frame: names, shapes and the message."""
_ROOM_BESIDE_TENSORS = 4 << 20
_ROOM_FOR_TENSORS = 4
"""An answer may be four times as large as it should be, so that one in float64, or of twice too many positions, is
judged by what is wrong with it; a longer one is refused unread."""
_LARGEST_ID = 2**53 - 1
"""The largest integer that every language's JSON keeps exact."""
_SECONDS_FOR_ENDING = 1.0


Replied = TypeVar("Replied", bound=Answer)


def read_as(kind: type[Replied], frame: Frame, *, lost: bool = False) -> Replied:
    """The message of an answer, which has to be of this kind. Raises WorkerFailure where it is not."""
    try:
        return kind.model_validate(frame.message)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        text = f"broke the protocol: {'.'.join(map(str, first['loc'])) or 'message'}: {first['msg']}"
        raise WorkerFailure(Outcome.ERROR, text, lost=lost) from None


@dataclass(frozen=True)
class Pending:
    """A request that was sent and not answered yet. `tensors` and `answer`: the bytes of its tensors, and of those of a
    right answer. `begins`: where it begins among all bytes that were sent."""

    id: int
    op: str
    tensors: int
    answer: int
    begins: int


class WorkerProcess:
    """An adapter's process, in its own session and under its guard. Its stderr is appended to `log`."""

    def __init__(self, launch: Launch) -> None:
        """Start it. Raises MachineError where the machine can start none."""
        self.log = launch.log
        self._log_from = self.log.stat().st_size if self.log.exists() else 0
        self._command = launch.command[0]
        require_machine()
        try:
            self._process = GuardedProcess(launch)
        except OSError as error:  # its command is not executed yet
            place = f": {error.filename}" if error.filename else ""
            raise MachineError(f"no worker can be started: {error.strerror or error}{place}") from None
        self._channel = Channel(self._process.requests, self._process.answers)
        self._unanswered: deque[Pending] = deque()
        self._last_id: int | None = None
        self._overdue: str | None = None
        self.answers = 0
        """The number of answers so far."""
        self.peak = 0
        """The worker's largest resident memory in bytes, once it has ended; 0 if its guard could not say."""

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def ask(
        self,
        request: Request,
        tensors: Sendable | None,
        seconds: float,
        receive: Receive | None = None,
        *,
        answer_bytes: int | None = None,
    ) -> Frame:
        """Send one request and read its answer within `seconds`. Tensors that `receive` takes are not in the frame.

        `answer_bytes`: the size of the tensors of a right answer, by default that of `tensors`. A much longer answer is
        not read.
        """
        with self._time_limit(request.op, seconds):
            if not self._unanswered and self._channel.has_news():
                raise self._unasked()
            pending = self._enqueue(request, tensors, answer_bytes)
            try:
                self._write(pending, request, tensors)
            except OSError:
                raise self._lost(pending) from None
            return self._answer_to(pending, receive)

    def has_room(self, *requests: Sendable) -> bool:
        """Whether requests with these tensors can be sent ahead without a deadlock.

        A worker that writes an answer has read that request. All later requests must fit into the pipe.
        """
        waiting = [pending.tensors for pending in list(self._unanswered)[1:]]
        return sum(_BESIDE_TENSORS + size for size in (*waiting, *map(size_of, requests))) <= self._channel.capacity

    def send_ahead(
        self, request: Request, tensors: Sendable, seconds: float, *, answer_bytes: int | None = None
    ) -> Pending:
        """Send a request before the previous ones are answered; call it only if `has_room`.

        A failed write raises nothing: the worker may have answered earlier requests, and reading answers reports it.
        """
        pending = self._enqueue(request, tensors, answer_bytes)
        self._channel.limit(seconds)
        try:
            with contextlib.suppress(OSError, EndedError):
                self._write(pending, request, tensors)
        except OverdueError:
            self._overdue = f"did not read a request in {seconds:g} s"
            self.kill()
        return pending

    def answer(self, pending: Pending, seconds: float, receive: Receive | None = None) -> Frame:
        """The answer to a request that was sent ahead, within `seconds`. Unread earlier answers are dropped."""
        with self._time_limit(pending.op, seconds):
            return self._answer_to(pending, receive)

    @contextlib.contextmanager
    def _time_limit(self, op: str, seconds: float) -> Generator[None]:
        self._channel.limit(seconds)
        try:
            yield
        except OverdueError:
            self.end()
            raise WorkerFailure(Outcome.TIMEOUT, f"no answer to {op} in {seconds:g} s", lost=True) from None
        except EndedError:
            self.end()
            raise WorkerFailure(Outcome.CRASH, "the worker was ended by the harness", lost=True) from None
        except WorkerFailure as failure:
            if failure.lost:
                self.end()
            raise

    def _enqueue(self, request: Request, tensors: Sendable | None, answer_bytes: int | None) -> Pending:
        """A request's place in the queue. Its id cannot be known before it is sent."""
        sent = size_of(tensors)
        answer = sent if answer_bytes is None else answer_bytes
        pending = Pending(secrets.randbelow(_LARGEST_ID), request.op, sent, answer, self._channel.written)
        self._unanswered.append(pending)
        return pending

    def _write(self, pending: Pending, request: Request, tensors: Sendable | None) -> None:
        write_frame(self._channel, {"id": pending.id, **request.model_dump(mode="json")}, tensors)

    def _answer_to(self, pending: Pending, receive: Receive | None) -> Frame:
        while (earlier := self._unanswered.popleft()) != pending:
            self._read(earlier)
        frame, answer = self._read(pending, receive)
        if not answer.ok:
            text = f"{pending.op}: {answer.error or 'refused without saying why'}"
            raise WorkerFailure(Outcome.ERROR, text, lost=False, refused=answer.refused)
        return frame

    def _read(self, pending: Pending, receive: Receive | None = None) -> tuple[Frame, Answer]:
        largest = _ROOM_FOR_TENSORS * pending.answer + _ROOM_BESIDE_TENSORS
        try:
            frame = read_frame(self._channel, receive, largest)
        except (EndOfStream, OSError):
            raise self._lost(pending) from None
        except CutOff as error:
            raise self._crash(f"; it had sent {error}") from None
        except FrameError as error:
            hint = "only frames belong on the wire: an adapter prints to standard error"
            raise WorkerFailure(Outcome.ERROR, f"broke the protocol: sent {error}; {hint}", lost=True) from None
        frame = Frame(cleaned(frame.message), {line(name): tensor for name, tensor in frame.tensors.items()})
        answer = read_as(Answer, frame, lost=True)
        if answer.id != pending.id:
            twice = answer.id == self._last_id
            text = "answered a request twice" if twice else f"answered request {answer.id} when asked {pending.id}"
            raise WorkerFailure(Outcome.ERROR, f"broke the protocol: {text}", lost=True, earlier=twice)
        self._last_id = answer.id
        self.answers += 1
        return frame, answer

    def _unasked(self) -> WorkerFailure:
        """The failure of a worker of which nothing was asked: it ended, or sent something."""
        with contextlib.suppress(OSError):
            if not self._channel.read(1):
                return self._crash(earlier=True)
        text = "broke the protocol: sent something after its answer that nobody had asked for"
        return WorkerFailure(Outcome.ERROR, text, lost=True, earlier=True)

    def _lost(self, pending: Pending) -> WorkerFailure:
        """The stream ended instead of an answer. A worker that had not read the request ended because of another."""
        if self._overdue:
            return WorkerFailure(Outcome.TIMEOUT, self._overdue, lost=True)
        unread = self._channel.unread()
        sent = self._channel.written - pending.begins
        return self._crash(earlier=unread >= sent)

    def _crash(self, more: str = "", *, earlier: bool = False) -> WorkerFailure:
        """The failure of a worker whose stream has ended: how its process ended, and `more`."""
        ending = self._process.ending(_SECONDS_FOR_ENDING)
        if ending is None:
            text = f"the worker closed its end of the wire but went on running{more}"
            return WorkerFailure(Outcome.CRASH, text, lost=True, earlier=earlier)
        if ending.unprepared:
            raise MachineError(f"no worker can be started: {ending.cannot_start}")
        if ending.cannot_start:
            text = f"cannot be started: {ending.cannot_start}: {self._command}"
            return WorkerFailure(Outcome.ERROR, text, lost=True)
        if not ending.held:
            require_time(ending.status)
        words = [each.strip() for each in end_of_log(self.log, self._log_from).splitlines() if each.strip()]
        last = f"; its last words: {words[-1][:300]}" if words else ""
        kind: Kind | None = "memory" if ending.held else None
        text = f"the worker {ending.text}{last}{more}"
        return WorkerFailure(Outcome.CRASH, text, lost=True, kind=kind, earlier=earlier and kind is None)

    def stop(self, seconds: float = 5.0) -> WorkerFailure | None:
        """Send `stop`, and kill the process if it does not end within `seconds`.

        Returns what the worker did before that without being asked, if it did.
        """
        try:
            self.ask(Stop(), None, seconds)
        except WorkerFailure as failure:
            return failure if failure.earlier else None
        finally:
            self.end()
        return None

    def end(self) -> None:
        """Kill the worker with all that it started, and close the wire. Call it only from the thread that asks."""
        self.kill()
        if ending := self._process.ending(_SECONDS_FOR_ENDING):
            self.peak = ending.peak
        self._process.close()

    def kill(self) -> None:
        """Kill the worker with all that it started. Safe to call twice and from another thread; a request in progress
        then fails."""
        self._channel.interrupt()
        self._process.kill()

    def write_log(self) -> None:
        """Have everything in the log that the worker has written to standard error before its last answer."""
        self._process.write_log()
