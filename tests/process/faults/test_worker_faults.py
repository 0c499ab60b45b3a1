"""Moment × act × layer: a worker that ends, hangs or goes deaf at any moment, alone or with others that hold the wire.

Each ends within its limit, is charged to the request that it belongs to, and leaves no process.
"""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from products import thinned

from encoder_conformance.protocol.messages import AsGiven, Request, Run, Start
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.worker.failure import WorkerFailure
from encoder_conformance.worker.launch import Launch
from encoder_conformance.worker.process import WorkerProcess

pytestmark = pytest.mark.linux

FAULTY = Path(__file__).with_name("faulty.py")
START: Request = Start(device="cpu", threads=1)
RUN: Request = Run(
    check="output",
    mode="eval",
    given=AsGiven(layout="batch_first", masks="attend", causal_flag=False, checkpoint=False),
)
SCRIPT = {"start": [START, RUN], "run": [START, RUN, RUN]}
"""Op → the requests up to the one after it."""
ENOUGH, LIMIT = 60.0, 0.2
"""Seconds: for what ends by itself, and for what never does."""
ENDS = {
    "SIGKILL": "was ended by SIGKILL",
    "SIGTERM": "was ended by SIGTERM",
    "SIGSEGV": "was ended by SIGSEGV",
    "SIGABRT": "was ended by SIGABRT",
    "exit-0": "exited with status 0",
    "exit-3": "exited with status 3",
}
HANGS = ("SIGSTOP", "pause")
OPS, MOMENTS, LAYERS = ("start", "run"), ("unread", "read", "half", "answered"), ("alone", "child", "daemon")
ACTS = (*ENDS, *HANGS, "close")


def hangs(act: str, layer: str) -> bool:
    """A closed wire that a child holds open looks like one that says nothing."""
    return act in HANGS or (act == "close" and layer != "alone")


def failed(op: str, moment: str, act: str, layer: str, folder: Path, within: Callable) -> tuple[int, WorkerFailure]:
    """How many requests were answered, and how the next one failed, within its limit."""
    command = (sys.executable, "-I", "-S", str(FAULTY), op, moment, act, layer, str(folder / "pids"))
    worker = WorkerProcess(Launch(command, folder, dict(os.environ), folder / "log", 1 << 32))
    affected = SCRIPT[op].index(RUN if op == "run" else START) + (moment == "answered")
    try:
        for number, request in enumerate(SCRIPT[op]):
            faulty = number == affected
            try:
                with within(LIMIT) if faulty else nullcontext():
                    worker.ask(request, None, LIMIT if hangs(act, layer) and faulty else ENOUGH)
            except WorkerFailure as failure:
                return number, failure
    finally:
        with within(0):
            worker.end()
    raise AssertionError("every request was answered")


@pytest.mark.parametrize(("op", "moment", "act", "layer"), thinned(OPS, MOMENTS, ACTS, LAYERS), ids=str)
def test_a_fault_ends_in_time_is_charged_rightly_and_leaves_nothing(
    op: str, moment: str, act: str, layer: str, tmp_path: Path, within: Callable, left: Callable
) -> None:
    answered, failure = failed(op, moment, act, layer, tmp_path, within)
    assert failure.lost
    assert answered == SCRIPT[op].index(RUN if op == "run" else START) + (moment == "answered")
    if hangs(act, layer):
        assert failure.outcome is Outcome.TIMEOUT
        assert f"in {LIMIT:g} s" in failure.message
    else:
        assert failure.outcome is Outcome.CRASH
        assert ENDS.get(act, "closed its end of the wire but went on running") in failure.message
        # What had not been read cannot have been the cause.
        assert failure.earlier == (moment in ("unread", "answered"))
    assert left(tmp_path / "pids") == []
    assert "Traceback" not in (tmp_path / "log").read_text()


HARNESS = """
import os, sys
from pathlib import Path
from encoder_conformance.worker.launch import Launch
from encoder_conformance.worker.process import WorkerProcess
from encoder_conformance.protocol.messages import Start
folder = Path(sys.argv[1])
worker = WorkerProcess(Launch(tuple(sys.argv[2:]), folder, dict(os.environ), folder / "log", 1 << 32))
print(worker.pid, flush=True)
worker.ask(Start(device="cpu", threads=1), None, 1000)
"""


@pytest.mark.parametrize(("end", "layer"), thinned(("SIGKILL", "SIGTERM", "SIGHUP"), LAYERS))
def test_nothing_outlives_a_harness_that_is_killed(
    end: str, layer: str, tmp_path: Path, within: Callable, left: Callable
) -> None:
    """Not even a worker that is stopped, and so cannot see that its requests have ended."""
    pids = tmp_path / "pids"
    command = (sys.executable, "-I", "-S", str(FAULTY), "start", "read", "SIGSTOP", layer, str(pids))
    words = [sys.executable, "-c", HARNESS, str(tmp_path), *command]
    with within(30), subprocess.Popen(words, stdout=subprocess.PIPE) as harness:
        assert harness.stdout
        assert harness.stdout.readline()
        while len(left(pids)) < (1 if layer == "alone" else 2):
            select.select([], [], [], 0.01)
        harness.send_signal(signal.Signals[end])
        harness.wait()
        while left(pids):
            select.select([], [], [], 0.01)
    assert harness.returncode == -signal.Signals[end]


@pytest.mark.parametrize("end", ["SIGKILL", "SIGSTOP"])
def test_a_worker_whose_guard_is_killed_or_stopped_ends_too(
    end: str, tmp_path: Path, within: Callable, left: Callable
) -> None:
    pids = tmp_path / "pids"
    command = (sys.executable, "-I", "-S", str(FAULTY), "start", "read", "pause", "alone", str(pids))
    worker = WorkerProcess(Launch(command, tmp_path, dict(os.environ), tmp_path / "log", 1 << 32))
    assert worker.pid
    guard = int(Path("/proc", str(worker.pid), "stat").read_text().rpartition(")")[2].split()[1])
    with within(10):
        os.kill(guard, signal.Signals[end])
        with pytest.raises(WorkerFailure) as caught:
            worker.ask(START, None, ENOUGH if end == "SIGKILL" else LIMIT)
        worker.end()
        while left(pids):
            select.select([], [], [], 0.01)
    assert caught.value.outcome is (Outcome.CRASH if end == "SIGKILL" else Outcome.TIMEOUT)


def test_a_command_that_cannot_be_executed_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    for command, said in (("./missing", "No such file or directory: ./missing"), ("./text", "Permission denied")):
        worker = WorkerProcess(Launch((command,), tmp_path, dict(os.environ), tmp_path / "log", 1 << 32))
        with pytest.raises(WorkerFailure, match=f"cannot be started: {said}") as caught:
            worker.ask(START, None, ENOUGH)
        assert caught.value.outcome is Outcome.ERROR
