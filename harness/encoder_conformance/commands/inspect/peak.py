"""The peak of a worker's resident memory during one forward pass, measured from outside, on Linux.

Writing 5 to /proc/PID/clear_refs sets the peak (VmHWM of /proc/PID/status) back to what is resident now
(proc_pid_status(5), proc_pid_clear_refs(5)), whatever framework or allocator the worker has. Two precautions make the
number meaningful:

- The warm-up pass has a single item of two positions. It loads the kernels and starts the threads, and is too small to
  affect the peak. After a warm-up of full size, ONNX Runtime's arena and TensorFlow's allocator would still hold its
  memory, and the measured peak would be no higher.
- glibc keeps freed blocks below a threshold that grows as it frees. Here the threshold is fixed (`MALLOC`), so that
  freed memory returns to the system.
"""

import sys
from dataclasses import replace
from pathlib import Path

from encoder_conformance.implementation.interpreter import Ready
from encoder_conformance.implementation.task import Task
from encoder_conformance.platform.errors import InputError
from encoder_conformance.subjects.starting import open_session

MALLOC = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
BACKWARD = {False: "forward and backward", True: "forward and backward, checkpointed"}
"""Whether the backward pass recomputes activations → name of the pass."""


def measure(ready: Ready, task: Task, threads: int) -> dict[str, int]:
    """The peak of one pass of the task's case in a fresh worker: forward, or also backward for the check `gradients`.

    In bytes: those resident `before` the pass, the peak `during` it, and their difference, the `rise`, which includes
    the input x.
    Raises `InputError` where it cannot be measured, and `Unanswered` if the worker fails.
    """
    require_linux()
    one_item = task.case.situation.model_copy(update={"batch": 1, "sequence": 2})
    warm_up = replace(task, case=replace(task.case, situation=one_item))
    with open_session(ready, threads, MALLOC) as session:
        for _ in range(2):  # once to warm up, and once more to free what the first pass held
            session.require(session.observe(warm_up))
        assert session.worker.process is not None
        process = Path("/proc") / str(session.worker.process.pid)
        _reset_peak(process)
        before = _read_status(process, "VmRSS")
        session.require(session.observe(task))
        during = _read_status(process, "VmHWM")
        return {"before": before, "during": during, "rise": during - before}


def require_linux() -> None:
    """Raises InputError where there is no Linux /proc, which the measurement needs."""
    if not (sys.platform == "linux" and Path("/proc/self/clear_refs").exists()):
        message = "measuring reads and resets a process's peak memory, which needs Linux and its /proc/PID/clear_refs"
        raise _not_measured(message)


def _reset_peak(process: Path) -> None:
    try:
        (process / "clear_refs").write_text("5")
    except OSError as error:
        raise _not_measured(f"the peak cannot be reset here: {error.strerror}: {process / 'clear_refs'}") from None


def _read_status(process: Path, field: str) -> int:
    """A field of /proc/PID/status, in bytes; the kernel gives KiB."""
    for line in (process / "status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise _not_measured(f"/proc/PID/status has no {field}")


def _not_measured(problem: str) -> InputError:
    return InputError(problem, where="--measure", hint="leave it out: the prediction needs no measurement")
