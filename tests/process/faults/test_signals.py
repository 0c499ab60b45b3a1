"""Signals and deaths: whatever ends a command, it says so, keeps what was judged, and leaves no process behind."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path

import pytest
from products import daily, thinned

CASES = ("--case", "pre-gelu/no-mask", "--dtype", "float32")
PROGRAM = Path(sys.executable).with_name("conform")
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")

MOMENTS = {
    "start": ("start(self, device, threads)", ["not-run", "not-run", "not-run"]),
    "build": ("build(self, layer, parameters, dtype)", ["not-run", "not-run", "not-run"]),
    "output": ("output(self, x, masks, run)", ["not-run", "not-run", "not-run"]),
    "stages": ("stages(self, x, masks, run)", ["pass", "not-run", "not-run"]),
    "gradients": ("gradients(self, x, masks, run, cotangent)", ["pass", "pass", "not-run"]),
}

TELL = """
def {method}:
    from pathlib import Path
    Path("pid").write_text(str(os.getpid()))
    records = Path("../report/records.jsonl")
    while not records.exists() or records.read_text().count("pass") < {written}:
        time.sleep(0.01)
    os.kill(harness(), signal.{name})
    while True:
        {then}
"""
HANGS, STOPPED = "signal.pause()", "os.kill(os.getpid(), signal.SIGSTOP)"


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until(happened: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


@pytest.mark.linux
@pytest.mark.parametrize(("moment", "name", "then"), thinned(list(MOMENTS), SIGNALS, (HANGS, STOPPED)))
def test_a_signal_at_any_moment(conform: Callable, fake: Callable, moment: str, name: str, then: str) -> None:
    """One signal is enough: the report has what was judged, and the worker is gone, be it stopped."""
    method, outcomes = MOMENTS[moment]
    judged = outcomes.count("pass")
    folder = fake("signaller", TELL.format(method=method, name=name, then=then, written=judged))
    ended = conform("run", "--impl", folder, *CASES)
    assert ended.status == 3, ended.stdout + ended.stderr
    assert "conform: interrupted; " in ended.stderr
    assert "Traceback" not in ended.stderr
    assert (ended.report["complete"], ended.report["ended_by"]) == (False, "interrupt")
    assert ended.outcomes() == outcomes
    wait_until(lambda: is_gone(int((folder / "pid").read_text())))
    explained = conform("explain")
    assert f"INCOMPLETE: {judged} of 3 checks were judged (ended by the interrupt)." in explained.stdout


AT_ONCE = """
import os, signal

with open(f"/proc/{os.getppid()}/stat") as stat:  # of the guard, whose parent judges
    os.kill(int(stat.read().rpartition(")")[2].split()[1]), signal.SIGINT)
while True:
    signal.pause()
"""


@pytest.mark.linux
def test_an_interrupt_while_what_judges_is_imported(conform: Callable, fake: Callable) -> None:
    """A worker starts before it is; the report says by what the run was ended then, too."""
    ended = conform("run", "--impl", fake("early", script=AT_ONCE), *CASES, env=dict(os.environ))
    assert ended.status == 3, ended.stdout + ended.stderr
    assert "conform: interrupted; nothing was judged" in ended.stderr
    assert (ended.report["complete"], ended.report["ended_by"]) == (False, "interrupt")
    assert ended.outcomes() == ["not-run"] * 3


@contextlib.contextmanager
def started(*arguments: str, cwd: Path, program: Sequence[str] = (PROGRAM,)) -> Iterator[subprocess.Popen]:
    """A command in a session of its own, which nothing of survives the block."""
    process = subprocess.Popen(
        [*program, *arguments], cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("name", daily(["SIGTERM"], SIGNALS))
def test_a_signal_in_the_middle_of_a_diagnosis(tmp_path: Path, fake: Callable, name: str) -> None:
    """Every check has its record, and the run is incomplete all the same: nobody was told what is wrong."""
    lie = """
    def output(self, x, masks, run):
        return super().output(x, masks, run) + np.sin(np.arange(x.size, dtype=x.dtype)).reshape(x.shape)
    """
    words = ("--case", "pre-gelu/*", "--dtype", "float32", "--out", "report")
    with started("run", "--impl", str(fake("wrong", lie, checks="[output]")), *words, cwd=tmp_path) as process:
        report, records = (tmp_path / "report" / file for file in ("report.json", "records.jsonl"))
        wait_until(report.exists)
        planned = len(json.loads(report.read_text())["records"])
        wait_until(lambda: records.read_text().count("\n") == planned)
        process.send_signal(signal.Signals[name])
        wait_until(lambda: process.poll() is not None)
        assert process.returncode == 3
        found = json.loads(report.read_text())
        assert (found["complete"], found["ended_by"]) == (False, "interrupt")
        assert "fail" in {record["outcome"] for record in found["records"]}
        assert "not-run" not in {record["outcome"] for record in found["records"]}


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


ROOT = Path(__file__).resolve().parents[3]
MAINTAIN = (sys.executable, "-m", "tools")
ENDED = [("goldens", "SIGKILL", False)]
POOLS = {
    "deviations": ("deviations", "--jobs", "2"),
    "goldens": ("run", "--impl", "{honest}", "--seed", "1", "--jobs", "2"),
    "golden-verify": ("golden", "verify", "--jobs", "2"),
}


@pytest.mark.linux
@pytest.mark.parametrize(("what", "name", "group"), daily(ENDED, product(POOLS, (*SIGNALS, "SIGKILL"), (False, True))))
def test_no_pool_outlives_its_command(tmp_path: Path, honest: Path, what: str, name: str, group: bool) -> None:
    """`timeout` signals the command and its group, a terminal the group, and the kernel whom it likes."""
    maintained = what != "goldens"
    program, cwd = (MAINTAIN, ROOT) if maintained else ((PROGRAM,), tmp_path)
    with started(*(word.format(honest=honest) for word in POOLS[what]), cwd=cwd, program=program) as process:
        wait_until(lambda: len(children_of(process.pid)) >= 3)  # two that compute, and multiprocessing's own
        pids = children_of(process.pid)
        (os.killpg if group else os.kill)(process.pid, signal.Signals[name])
        wait_until(lambda: process.poll() is not None)
        wait_until(lambda: all(map(is_gone, pids)))
        assert process.stderr
        printed = process.stderr.read().decode()
        if name != "SIGKILL":
            assert process.returncode == 3, printed
            assert "conform: interrupted" in printed
            assert "Traceback" not in printed


@pytest.mark.release
@pytest.mark.linux
def test_a_signal_that_is_ignored_stays_ignored(tmp_path: Path, fake: Callable) -> None:
    """Under nohup a command goes on when the terminal closes."""
    lie = "def output(self, x, masks, run):\n    os.kill(harness(), signal.SIGHUP)\n"
    lie += "    return super().output(x, masks, run)"
    words = ["run", "--impl", fake("hanging_up", lie), *CASES, "--out", "report"]
    ended = subprocess.run(["nohup", PROGRAM, *words], cwd=tmp_path, capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert json.loads((tmp_path / "report" / "report.json").read_text())["complete"] is True
