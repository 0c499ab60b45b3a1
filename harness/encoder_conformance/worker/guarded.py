"""A worker's process as the harness sees it: started under its guard, and ended with all that it has started."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from encoder_conformance.platform.files import writable
from encoder_conformance.worker.launch import Launch

_GUARD = Path(__file__).with_name("guard.py")
_LOG_ROOM = 8 << 20
"""Bytes of a log that is written by several workers in turn. The guard of each adds the last few of its own."""
_WIRE = "3,4"
"""The descriptors of requests and answers in an adapter's process (docs/wire.md)."""
_SECONDS_TO_END = 5.0
"""The guard gives itself three."""
_SECONDS_TO_REAP = 0.1


@dataclass(frozen=True)
class Ending:
    """How a worker ended: its exit status or minus a signal's number, and its largest resident bytes.

    `held`: the bytes for which its guard ended it, or 0. `cannot_start`: why its command could not be executed, or "".
    """

    status: int | None
    peak: int = 0
    held: int = 0
    cannot_start: str = ""
    unprepared: bool = False
    """It could not be started because of the machine, before its command had any part in it."""

    @property
    def text(self) -> str:
        """The end in words, without the worker as their subject."""
        if self.held:
            return f"held {self.held / 2**20:,.0f} MiB, more than its limit (--memory), and was ended"
        if self.status is None:
            return "was ended with its guard"
        return f"was ended by {_signal_name(-self.status)}" if self.status < 0 else f"exited with status {self.status}"


class GuardedProcess:
    """A command under a guard. `requests` and `answers` are the harness's ends of the wire."""

    def __init__(self, launch: Launch) -> None:
        """Start the command. Raises OSError."""
        its_requests, self.requests = os.pipe()
        self.answers, its_answers = os.pipe()
        self._control, its_control = socket.socketpair()
        self._heard = b""
        self._pid: int | None = None
        self._ending: Ending | None = None
        with contextlib.ExitStack() as given, contextlib.ExitStack() as kept:
            for descriptor in (its_requests, its_answers):
                given.callback(os.close, descriptor)
            given.callback(its_control.close)
            kept.callback(self.close)
            with writable(str(launch.log)):
                log_file = given.enter_context(launch.log.open("ab"))
            room = max(_LOG_ROOM - log_file.tell(), 0)
            descriptors = (its_requests, its_answers, its_control.fileno(), log_file.fileno())
            guard = [sys.executable, "-I", "-S", str(_GUARD), *map(str, (*descriptors, room, launch.memory))]
            guard.append(os.pathsep.join(launch.scratch))
            self._guard = subprocess.Popen(
                [*guard, *launch.command],
                cwd=launch.folder,
                env={**launch.environment, "CONFORM_WIRE": _WIRE},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log_file,
                pass_fds=descriptors,
                start_new_session=True,
            )
            kept.pop_all()

    @property
    def pid(self) -> int | None:
        """The worker's process id, which is not the guard's; None if it could not be started."""
        if self._pid is None:
            self._listen("started", seconds=_SECONDS_TO_END)
        return self._pid

    def ending(self, seconds: float) -> Ending | None:
        """How the worker ended; None if it has not within `seconds`."""
        self._listen("ended", seconds=seconds)
        return self._ending

    def write_log(self) -> None:
        """Have the guard write what has arrived for the log, which it does by itself when the worker ends."""
        with contextlib.suppress(OSError):
            self._control.sendall(b"s")
            self._listen("written", seconds=_SECONDS_TO_END)

    def kill(self) -> None:
        """End the worker and all that it has started. Safe to call twice and from another thread."""
        with contextlib.suppress(OSError):
            self._control.sendall(b"k")
        try:
            _wait(self._guard, _SECONDS_TO_END)
        except subprocess.TimeoutExpired:  # somebody has stopped it
            self._guard.kill()  # and the worker with it: PR_SET_PDEATHSIG
            self._guard.wait()
            with contextlib.suppress(OSError):
                if self._pid is not None:
                    os.killpg(self._pid, signal.SIGKILL)

    def close(self) -> None:
        """Close the harness's ends. Call it only from the thread that uses them, after `kill`."""
        for descriptor in (self.requests, self.answers):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self.requests = self.answers = -1
        self._control.close()

    def _listen(self, kind: str, seconds: float) -> None:
        """Take the guard's lines until one of this kind, the last one, or the time is over."""
        until = time.monotonic() + seconds
        while self._ending is None:
            line, newline, rest = self._heard.partition(b"\n")
            if newline:
                self._heard = rest
                if self._take(*line.decode().split(" ", 1)) == kind:
                    return
            elif not self._hear(until):
                return

    def _hear(self, until: float) -> bool:
        """Wait for more of the guard's lines. False once the time is over, or the socket closed."""
        waiting = select.poll()  # select() takes no descriptor above 1023
        waiting.register(self._control, select.POLLIN)
        if not waiting.poll(max(until - time.monotonic(), 0.0) * 1000):
            return False
        try:
            data = self._control.recv(4096)
        except ConnectionResetError:  # it was killed before it had read all that it was told
            data = b""
        self._heard += data
        if not data:
            self._ending = Ending(None)  # the guard was killed, and the worker with it
        return bool(data)

    def _take(self, kind: str, rest: str = "") -> str:
        match kind:
            case "started":
                self._pid = int(rest)
            case "cannot" | "unprepared":
                self._ending = Ending(None, cannot_start=rest, unprepared=kind == "unprepared")
            case "ended":
                status, peak, held = map(int, rest.split())
                self._ending = Ending(status, peak, held)
        return kind


def _wait(process: "subprocess.Popen[bytes]", seconds: float) -> None:
    """`Popen.wait`, which looks every 50 ms, where the system tells when a process ends (pidfd_open(2)).

    Raises TimeoutExpired.
    """
    with contextlib.suppress(AttributeError, OSError):  # another system; or it has ended and another thread has seen it
        descriptor = os.pidfd_open(process.pid)
        try:
            waiting = select.poll()
            waiting.register(descriptor, select.POLLIN)
            waiting.poll(seconds * 1000)
            seconds = _SECONDS_TO_REAP  # it has ended by now, or somebody has stopped it
        finally:
            os.close(descriptor)
    process.wait(seconds)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
