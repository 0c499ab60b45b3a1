"""What a machine needs to have for a worker's failure to be the worker's own."""

import os
import resource
import signal
import stat
from pathlib import Path

from encoder_conformance.platform.errors import MachineError

_FILES = 256
"""Open files that a process may have: a framework holds up to a hundred, and an importer a dozen more."""
_TEMPORARY_BYTES = 1 << 20
"""What is left of a folder of temporary files that is as good as full."""


def require_machine() -> None:
    """Raises MachineError where a worker could not do its work, whatever it is."""
    _require_files()
    require_null()
    _require_temporary()


def _require_files() -> None:
    """A lower limit that may be raised is, for workers as well."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= _FILES:
        return
    if hard != resource.RLIM_INFINITY and hard < _FILES:
        problem = f"only {hard} files may be open at once here, and a worker needs {_FILES}"
        raise MachineError(f"{problem}: raise the limit (ulimit -n)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES, hard))


def require_time(status: int | None) -> None:
    """Raises MachineError where a process that has ended with this status may have used up its processor time."""
    seconds, _ = resource.getrlimit(resource.RLIMIT_CPU)
    if seconds != resource.RLIM_INFINITY and status in (-signal.SIGXCPU, -signal.SIGKILL):
        problem = (
            f"a worker was ended by {signal.Signals(-status).name}, and a process has {seconds} s of processor time"
        )
        raise MachineError(f"{problem} here: raise the limit (ulimit -t)")


def require_null() -> None:
    """Raises MachineError where /dev/null is not there, or is something else."""
    try:
        descriptor = os.open(os.devnull, os.O_RDWR)
    except OSError as error:
        raise MachineError(f"{os.devnull} cannot be opened: {error.strerror}") from None
    try:
        if not stat.S_ISCHR(os.fstat(descriptor).st_mode):
            raise MachineError(f"{os.devnull} is no device: what is written to it would stay")
    finally:
        os.close(descriptor)


def _require_temporary() -> None:
    """tempfile looks in the same places, and workers do; it would write to each of them."""
    places = [os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP")]
    for place in filter(None, [*places, "/tmp", "/var/tmp", "/usr/tmp"]):
        if not (Path(place).is_dir() and os.access(place, os.W_OK | os.X_OK)):
            continue
        left = os.statvfs(place)
        if left.f_bavail * left.f_frsize >= _TEMPORARY_BYTES and (left.f_favail or not left.f_files):
            return
        raise MachineError(f"{place} is full, and temporary files have no other place: make room, or set TMPDIR")
    raise MachineError("there is no folder for temporary files: make /tmp, or set TMPDIR")
