"""The peak of a worker's resident memory during one forward pass, measured from outside, on Linux.

Writing 5 to /proc/PID/clear_refs sets the peak (VmHWM of /proc/PID/status) back to what is resident now
(proc_pid_status(5), proc_pid_clear_refs(5)), whatever framework or allocator the worker has. Two things decide whether
the number is honest:

- The pass before it is one of a single item of two positions. It loads the kernels and starts the threads, and is too
  small to be seen. After a pass of the same size, ONNX Runtime's arena and TensorFlow's allocator still hold what it
  took, and the next peak is no higher.
- glibc keeps freed blocks below a threshold that grows as it frees. Here it is fixed (`MALLOC`), so that what is freed
  goes back.
"""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from encoder_conformance.errors import InputError
from encoder_conformance.impl.interpreter import Ready
from encoder_conformance.inspect.session import asking
from encoder_conformance.task import Task

MALLOC = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
BACKWARD = {False: "forward and backward", True: "forward and backward, checkpointed"}
"""Whether activations are made again in the backward pass → what the pass is called."""
_NO_ROWS = np.zeros((0, 2), dtype=np.int64)


@dataclass(frozen=True)
class Peak:
    """Bytes resident: `before` the pass, and the highest `during` it. `rise` holds x as it came, too."""

    before: int
    during: int

    @property
    def rise(self) -> int:
        return self.during - self.before


def measure(ready: Ready, task: Task, threads: int) -> Peak:
    """Of one pass of the task's case in a fresh worker: forward, or forward and backward where `gradients` are asked
    for. Raises `Unanswered`."""
    refuse_elsewhere()
    one_item = task.case.situation.model_copy(update={"batch": 1, "sequence": 2})
    small = replace(task, case=replace(task.case, situation=one_item))
    with asking(ready, threads, MALLOC) as (session, answered):
        for _ in range(2):  # once to warm up, and once more so that what it held of the first is gone
            answered(session.observe(small, _NO_ROWS))
        assert session.pid is not None
        process = Path("/proc") / str(session.pid)
        _reset(process)
        before = _status(process, "VmRSS")
        answered(session.observe(task, _NO_ROWS))
        return Peak(before, _status(process, "VmHWM"))


def refuse_elsewhere() -> None:
    """Where there is no Linux /proc, the measurement is not to be had."""
    if not (sys.platform == "linux" and Path("/proc/self/clear_refs").exists()):
        what = "measuring reads and resets a process's peak memory, which needs Linux and its /proc/PID/clear_refs"
        raise InputError(what, where="--measure", hint="leave it out: the prediction needs nothing")


def _reset(process: Path) -> None:
    try:
        (process / "clear_refs").write_text("5")
    except OSError as error:
        what = f"the peak cannot be reset here: {error.strerror}: {process / 'clear_refs'}"
        raise InputError(what, where="--measure", hint="leave it out: the prediction needs nothing") from None


def _status(process: Path, field: str) -> int:
    """A field of /proc/PID/status, in bytes; the kernel gives KiB."""
    for line in (process / "status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise InputError(f"/proc says no {field}", where="--measure", hint="leave it out: the prediction needs nothing")
