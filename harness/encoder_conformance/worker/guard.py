"""The guard of one worker: a small process between the harness and the adapter. Run as a script, never imported.

    python -I -S guard.py REQUESTS ANSWERS CONTROL LOG ROOM MEMORY SCRATCH COMMAND…

It starts COMMAND, stays beside it, and ends everything that COMMAND has started: when COMMAND ends, when the harness
says so, and when the harness itself is gone. As its child subreaper (prctl(2), PR_SET_CHILD_SUBREAPER) it inherits
every descendant whose own parent has ended, so that neither setsid() nor a double fork leaves one behind. It copies the
adapter's standard error into the log, up to ROOM bytes and the last few, and ends a worker that holds more than MEMORY
bytes. SCRATCH: the folders of its sandbox that lie in memory, with colons between them, or "".

REQUESTS, ANSWERS: the adapter's ends of the wire. CONTROL: a socket to the harness. Lines to the harness:
`started PID`, or `cannot TEXT` of the command, or `unprepared TEXT` of all before it; `written`, in answer to an `s`;
`ended STATUS PEAK HELD`, the last one, where STATUS is an exit status or a negative signal, PEAK the largest resident
bytes, and HELD those for which it was ended, or 0. From the harness: `s`, write what has arrived of the log; `k`, or
the end of the socket, end everything.

It uses the standard library alone, and little of that: it starts in 15 ms.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import select
import signal
import sys
import time

WIRE = (3, 4)
"""The adapter's descriptors of requests and answers, which CONFORM_WIRE names."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LAST = 1 << 14
"""Bytes of the end of standard error that are kept beyond the room in the log."""
_SECONDS_BETWEEN_LOOKS = 0.1
_LOOKS_BETWEEN_WALKS = 10
"""The worker's own memory is read at every look; which descendants it has, at every tenth."""
_MOST_DESCRIPTORS = 4096
"""Descriptors of a process at which a look stops."""
_SECONDS_TO_END = 3.0
_BEYOND_THE_WIRE = 10
"""The lowest descriptor that is none of the worker's."""
_PAGE = os.sysconf("SC_PAGE_SIZE")
_LINUX = sys.platform == "linux"


class Log:
    """Copies standard error into the log: the first `room` bytes as they come, the last ones at the end."""

    def __init__(self, source: int, target: int, room: int) -> None:
        self._source, self._target, self._room = source, target, room
        self._last, self._left_out = b"", 0
        os.set_blocking(source, False)

    def copy(self) -> bool:
        """Copy what has arrived, a megabyte at most. False at the end of the stream."""
        for _ in range(16):
            try:
                data = os.read(self._source, 1 << 16)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._take(data)
        return True

    def _take(self, data: bytes) -> None:
        fits, rest = data[: self._room], data[self._room :]
        self._room -= len(fits)
        self._write(fits)
        self._left_out += len(rest)
        self._last = (self._last + rest)[-_LAST:]

    def close(self) -> None:
        """Copy the rest, and write the last bytes of what did not fit."""
        for _ in range(64):  # a process that nothing could end may still write
            if not self.copy():
                break
        if self._left_out:
            self._write(f"\n[… {self._left_out - len(self._last)} bytes of standard error are left out …]\n".encode())
            self._write(self._last)

    def _write(self, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(self._target, data) :]
        except OSError:  # a full disk costs the log, and no check
            return


class ResidentMemory:
    """The memory of a worker and its descendants, read from /proc. `scratch`: the folders of a sandbox that lie in
    memory; without a sandbox, others may have put there what is there."""

    def __init__(self, worker: int, limit: int, scratch: list[str]) -> None:
        self._worker, self._limit, self._looks, self._scratch = worker, limit, 0, scratch
        self._descendants: list[int] = []
        self._unnamed = self._mapped = 0
        self.peak = self.held_at_end = 0

    def is_too_much(self) -> bool:
        if not self._looks % _LOOKS_BETWEEN_WALKS:
            self._descendants = [pid for pid in descendants(os.getpid()) if pid != self._worker]
            if self._scratch:
                self._unnamed, self._mapped = _unnamed(self._descendants), sum(map(_mapped, self._descendants))
        self._looks += 1
        # Pages that a descendant shares with its parent are counted once.
        held = _pages(self._worker, shared=True) + sum(_pages(pid, shared=False) for pid in self._descendants)
        # Of what is shared by being a file in memory, the larger of what lies there and of what is mapped: it may be
        # both, and is never counted twice.
        held = held * _PAGE + max(self._unnamed + self._lying(), self._mapped)
        self.peak = max(self.peak, held)
        if held > self._limit:
            self.held_at_end = held
        return bool(self.held_at_end)

    def _lying(self) -> int:
        """The bytes in the sandbox's folders. A process that is still on its way into it sees those of the machine."""
        for pid in self._descendants if self._scratch else ():
            held = [_held_by_files(f"/proc/{pid}/root{place}", place) for place in self._scratch]
            if any(held):
                return sum(held)
        return 0


def _held_by_files(seen: str, place: str) -> int:
    """The bytes in a file system in memory, as a process sees it; 0 where that is the machine's own."""
    try:
        if os.stat(seen).st_dev == _device(place):  # noqa: PTH116
            return 0
        found = os.statvfs(seen)
    except OSError:  # it has ended, or has no such place yet
        return 0
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def _device(place: str) -> int | None:
    try:
        return os.stat(place).st_dev  # noqa: PTH116
    except OSError:
        return None


def _unnamed(pids: list[int]) -> int:
    """The bytes of files in memory that have no name (memfd_create(2)), each once."""
    sizes = {}
    for pid in pids:
        for path in _descriptors(pid):
            with contextlib.suppress(OSError):
                if os.readlink(path).startswith("/memfd:"):  # noqa: PTH115
                    found = os.stat(path)  # noqa: PTH116
                    sizes[found.st_ino] = found.st_blocks * 512
    return sum(sizes.values())


def _descriptors(pid: int) -> list[str]:
    with contextlib.suppress(OSError):  # it has ended
        return [f"/proc/{pid}/fd/{each}" for each in os.listdir(f"/proc/{pid}/fd")[:_MOST_DESCRIPTORS]]  # noqa: PTH208
    return []


def _mapped(pid: int) -> int:
    """The bytes of files in memory that a process has mapped, of those that several have its part."""
    lines = _read(pid, "smaps_rollup").splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Pss_Shmem:"))


def _read(pid: int, file: str) -> bytes:
    """A file of /proc; nothing of a process that has ended."""
    try:
        with open(f"/proc/{pid}/{file}", "rb") as content:  # noqa: PTH123  # pathlib takes as long to import as the rest
            return content.read()
    except OSError:
        return b""


def _pages(pid: int, *, shared: bool) -> int:
    numbers = [int(each) for each in _read(pid, "statm").split()]
    return numbers[1] - (0 if shared else numbers[2]) if numbers else 0


def _high_water(pid: int) -> int:
    """The largest resident bytes that a process has had."""
    lines = _read(pid, "status").splitlines()
    return max((int(line.split()[1]) * 1024 for line in lines if line.startswith(b"VmHWM:")), default=0)


def descendants(ancestor: int) -> list[int]:
    """Every process below `ancestor`, by /proc; [] where there is none (proc_pid_task(5))."""
    found, left = [], [ancestor]
    while left:
        children = _children(left.pop())
        found += children
        left += children
    return found


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):  # it has ended
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
        return [int(child) for thread in threads for child in _read(pid, f"task/{thread}/children").split()]
    return []


class Guard:
    """The worker, what it leaves behind, and how it ended."""

    def __init__(self, worker: int) -> None:
        self.worker = worker
        self.status: int | None = None
        self.peak = 0

    def reap(self) -> bool:
        """Collect the children that have ended. False if there are none left at all."""
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            if pid == self.worker:
                self.status = os.waitstatus_to_exitcode(status)
                self.peak = max(self.peak, used.ru_maxrss * (1024 if _LINUX else 1))

    def end(self) -> None:
        """Kill the worker and all its descendants, until there are none or the time for it is over."""
        until = time.monotonic() + _SECONDS_TO_END
        if self.status is None:
            self.peak = max(map(_high_water, [self.worker, *descendants(self.worker)]))
            _kill(-self.worker)
            _kill(self.worker)
        pause = 1e-3
        while self.reap() and time.monotonic() < until:
            time.sleep(pause)  # the worker itself ends in less, and then no walk through all processes is needed
            if self.reap():
                for pid in descendants(os.getpid()):
                    _kill(pid)
            pause = min(2 * pause, 0.05)


def _kill(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    if _LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


class CommandError(Exception):
    """The command cannot be executed."""


def _start(command: list[str], requests: int, answers: int) -> tuple[int, int]:
    """Fork and execute the command. Its process id, and the other end of its standard error.

    Raises CommandError, or OSError where something before it failed.
    """
    errors, written_errors = os.pipe()
    failed, written_failure = os.pipe()
    guard = os.getpid()
    pid = os.fork()
    if not pid:
        _become(command, {requests: (0, WIRE[0]), answers: (1, WIRE[1]), written_errors: (2,)}, written_failure, guard)
    for descriptor in (written_errors, written_failure, requests, answers):
        os.close(descriptor)
    said = b""
    while part := os.read(failed, 16):
        said += part
    os.close(failed)
    if code := said.lstrip(b"x"):
        os.waitpid(pid, 0)
        error = OSError(int(code), os.strerror(int(code)))
        raise CommandError(error.strerror) if said.startswith(b"x") else error
    return pid, errors


def _become(command: list[str], descriptors: dict[int, tuple[int, ...]], failure: int, guard: int) -> None:
    """Become the command, in a session of its own. Never returns; an error's number is written to `failure`."""
    try:
        failure = _place(descriptors, failure)
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # for a guard that is killed itself
        if os.getppid() != guard:
            os._exit(1)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.write(failure, b"x")
        os.execvp(command[0], command)
    except OSError as error:
        os.write(failure, str(error.errno or errno.EIO).encode())
    finally:
        os._exit(127)


def _place(targets: dict[int, tuple[int, ...]], failure: int) -> int:
    """Duplicate each descriptor to its targets, and `failure` to the next, which an exec closes; close all others.

    The wire is standard input and output too, for languages that can open no other descriptor (docs/wire.md).
    """
    beyond = _BEYOND_THE_WIRE
    out_of_the_way = {fcntl.fcntl(source, fcntl.F_DUPFD, beyond): places for source, places in targets.items()}
    failure = fcntl.fcntl(failure, fcntl.F_DUPFD, beyond)
    for source, places in out_of_the_way.items():
        for place in places:
            os.dup2(source, place)
    last = WIRE[-1] + 1
    os.dup2(failure, last, inheritable=False)
    os.closerange(last + 1, 1 << 16)
    return last


def _watch(guard: Guard, log: Log, errors: int, control: int, memory: ResidentMemory) -> None:
    """Copy the log until the worker ends, or must end."""
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    readers = [errors, woken, control]
    guard.reap()  # it may have ended before the handler was there
    while guard.status is None:
        ready, _, _ = select.select(readers, [], [], _SECONDS_BETWEEN_LOOKS if _LINUX else None)
        if errors in ready and not log.copy():
            readers.remove(errors)
        if woken in ready:
            os.read(woken, 512)
            guard.reap()
        if control in ready:
            if os.read(control, 1) != b"s":
                return
            log.copy()
            _say(control, "written")
        if _LINUX and guard.status is None and memory.is_too_much():
            return


def _say(control: int, line: str) -> None:
    with contextlib.suppress(OSError):  # where the harness is gone, the next look finds that
        os.write(control, f"{line}\n".encode())


def main(arguments: list[str]) -> None:
    requests, answers, control, log_at, room, limit = map(int, arguments[:6])
    scratch, *command = arguments[6:]
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        worker, errors = _start(command, requests, answers)
    except CommandError as error:
        _say(control, f"cannot {error}")
        return
    except OSError as error:
        _say(control, f"unprepared {error.strerror}")
        return
    guard, log = Guard(worker), Log(errors, log_at, room)
    memory = ResidentMemory(worker, limit, [place for place in scratch.split(os.pathsep) if place])
    _say(control, f"started {worker}")
    try:
        _watch(guard, log, errors, control, memory)
    finally:  # whatever happens to the guard, nothing outlives it
        guard.end()
        log.close()
        status = -signal.SIGKILL if guard.status is None else guard.status
        _say(control, f"ended {status:d} {max(guard.peak, memory.peak)} {memory.held_at_end}")


if __name__ == "__main__":
    main(sys.argv[1:])
    os._exit(0)  # the harness waits for this end, and nothing is left to tidy up
