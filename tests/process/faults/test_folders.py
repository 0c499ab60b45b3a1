"""Folders of runs: no report is ever taken for another run's."""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import forked
import pytest
from products import daily

from encoder_conformance.platform.errors import InputError
from encoder_conformance.reports.run.folder import begun_result

PROGRAM = Path(sys.executable).with_name("conform")
CASES = ("--case", "pre-gelu/no-mask", "--dtype", "float32")
WRONG = "def output(self, x, masks, run):\n    raise ValueError('nothing to diagnose')"
MURDERER = "def output(self, x, masks, run):\n    os.kill(harness(), signal.SIGKILL)\n    os._exit(0)"


def conform_here(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as printed:
        stdout, stderr = Path(printed, "stdout"), Path(printed, "stderr")
        status = forked.conform([*words], cwd, stdout, stderr, seconds=120)
        return subprocess.CompletedProcess(words, status, stdout.read_text(), stderr.read_text())


def run_here(folder: Path, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return conform_here("run", "--impl", str(folder), *CASES, *words, cwd=cwd)


def explain_here(*words: str, cwd: Path) -> str:
    ended = conform_here("explain", *words, cwd=cwd)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_each_run_has_a_folder_and_latest_is_the_last(tmp_path: Path, fake: Callable) -> None:
    good, wrong = fake("good"), fake("wrong", WRONG)
    assert run_here(good, cwd=tmp_path).returncode == 0
    first = (tmp_path / "conform-report" / "latest").resolve()
    assert "Nothing failed in this run" in explain_here(cwd=tmp_path)
    assert run_here(wrong, cwd=tmp_path).returncode == 1
    last = (tmp_path / "conform-report" / "latest").resolve()
    assert first != last
    assert json.loads((first / "report.json").read_text())["complete"] is True
    assert "wrong" in explain_here(cwd=tmp_path)
    assert "wrong" in explain_here("--out", "conform-report", cwd=tmp_path)
    assert "Nothing failed in this run" in explain_here("--out", str(first), cwd=tmp_path)


def test_many_runs_are_counted_and_none_is_deleted(tmp_path: Path, fake: Callable) -> None:
    runs = tmp_path / "conform-report"
    for day in range(1, 20):
        (runs / f"202611{day:02}T101112Z").mkdir(parents=True)
        (runs / f"202611{day:02}T101112Z" / "report.json").write_bytes(bytes(10**6))
    (runs / "mine").mkdir()
    ended = run_here(fake("good"), cwd=tmp_path)
    assert ended.stdout.splitlines()[-1] == (
        "conform-report has 20 runs, 19 MB; delete the folders that you no longer need"
    )
    assert len([*runs.iterdir()]) == 22  # with `latest`


LATER = """
def stages(self, x, masks, run):
    until = time.monotonic() + 10
    while not os.path.getsize("{records}") and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(harness(), signal.SIGKILL)
    os._exit(0)
"""


def test_an_answer_is_judged_before_the_next_is_waited_for(tmp_path: Path, fake: Callable) -> None:
    """The second check takes as long as it takes for the first to be on disk, and then its harness is killed."""
    murderer = fake("murderer", LATER.format(records=tmp_path / "report" / "records.jsonl"))
    assert run_here(murderer, "--out", "report", cwd=tmp_path).returncode == -signal.SIGKILL
    assert "INCOMPLETE: 1 of 3 checks were judged" in explain_here("--out", "report", cwd=tmp_path)
    [record] = map(json.loads, (tmp_path / "report" / "records.jsonl").read_text().splitlines())
    assert (record["check"], record["outcome"]) == ("output", "pass")


@pytest.mark.parametrize(
    "words", [pytest.param((), marks=pytest.mark.release), ("--out", "report")], ids=["a-folder-of-its-own", "out"]
)
def test_a_run_that_is_killed_at_once_hides_the_one_before(
    tmp_path: Path, fake: Callable, words: tuple[str, ...]
) -> None:
    assert run_here(fake("good"), *words, cwd=tmp_path).returncode == 0
    assert run_here(fake("murderer", MURDERER), *words, cwd=tmp_path).returncode == -signal.SIGKILL
    assert "INCOMPLETE: 0 of 3 checks were judged (it did not come to its end)." in explain_here(*words, cwd=tmp_path)


@pytest.mark.release
def test_a_run_that_is_interrupted_while_goldens_are_computed_hides_the_one_before(
    tmp_path: Path, fake: Callable
) -> None:
    good = fake("good")
    assert run_here(good, "--out", "report", cwd=tmp_path).returncode == 0
    words = [PROGRAM, "run", "--impl", good, "--seed", "1", "--out", "report", "--jobs", "1"]
    run = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        report = tmp_path / "report" / "report.json"
        while run.poll() is None and '"seed": 1' not in (report.read_text() if report.exists() else ""):
            select.select([], [], [], 0.01)
        run.terminate()
        assert run.wait(60) == 3
    finally:
        run.kill()
        run.communicate()
    assert "INCOMPLETE: 0 of " in explain_here("--out", "report", cwd=tmp_path)


@pytest.fixture
def busy(tmp_path: Path, fake: Callable) -> Iterator[Path]:
    """A folder in which a run is under way."""
    begun, out = tmp_path / "begun", tmp_path / "report"
    os.mkfifo(begun)
    lie = f"def output(self, x, masks, run):\n    open({str(begun)!r}, 'w').close()\n    signal.pause()"
    words = [PROGRAM, "run", "--impl", fake("waiting", lie), *CASES, "--out", out]
    run = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with begun.open() as waits_for_the_other_end:
            waits_for_the_other_end.read()
        yield out
    finally:
        run.terminate()
        run.wait(60)


def test_two_runs_do_not_share_a_folder(busy: Path, tmp_path: Path, fake: Callable) -> None:
    before = (busy / "report.json").read_bytes()
    ended = run_here(fake("good"), "--out", str(busy), cwd=tmp_path)
    assert ended.returncode == 2
    assert ended.stderr.splitlines() == [
        f"conform: --out {busy}: another run is writing there",
        "  wait for it, or choose another folder",
    ]
    assert (busy / "report.json").read_bytes() == before


def test_a_folder_is_free_again_when_its_run_is_killed(tmp_path: Path, fake: Callable) -> None:
    out = ("--out", "report")
    assert run_here(fake("murderer", MURDERER), *out, cwd=tmp_path).returncode == -signal.SIGKILL
    assert run_here(fake("good"), *out, cwd=tmp_path).returncode == 0
    assert "Nothing failed in this run" in explain_here(*out, cwd=tmp_path)


@pytest.mark.parametrize("words", [(), ("--out", "report")], ids=["a-folder-of-its-own", "out"])
def test_wrong_usage_leaves_an_earlier_report_alone(tmp_path: Path, fake: Callable, words: tuple[str, ...]) -> None:
    assert run_here(fake("good"), *words, cwd=tmp_path).returncode == 0
    folder = tmp_path / "report" if words else (tmp_path / "conform-report" / "latest").resolve()
    before = (folder / "report.json").read_bytes()
    (folder / "logs" / "good.log").write_text("what the worker said")
    for wrong in (("--case", "no/such"), ("--python", "good=/missing/python")):
        assert run_here(tmp_path / "good", *wrong, *words, cwd=tmp_path).returncode == 2
    assert (folder / "report.json").read_bytes() == before
    assert [(log.name, log.read_text()) for log in (folder / "logs").iterdir()] == [
        ("good.log", "what the worker said")
    ]
    assert "Nothing failed in this run" in explain_here(*words, cwd=tmp_path)
    if not words:
        assert sorted(path.name for path in folder.parent.iterdir()) == [folder.name, "latest"]


@pytest.mark.parametrize(
    "words", [pytest.param((), marks=pytest.mark.release), ("--out", "report")], ids=["a-folder-of-its-own", "out"]
)
@pytest.mark.parametrize("name", daily(["SIGTERM"], ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"]))
def test_a_run_that_ends_before_its_plan_hides_the_one_before(
    tmp_path: Path, fake: Callable, name: str, words: tuple[str, ...], within: Callable, left: Callable
) -> None:
    """While it asks an interpreter which modules it has; nothing of the specification was read by then."""
    good = fake("good")
    assert run_here(good, *words, cwd=tmp_path).returncode == 0
    python = tmp_path / "python"
    asked = tmp_path / "asked"
    python.write_text(f"#!/bin/sh\necho $$ > {asked}\nkill -s {name.removeprefix('SIG')} $PPID\nexec sleep 1000\n")
    python.chmod(0o755)
    number = signal.Signals[name]
    ended = run_here(good, "--python", f"good={python}", *words, cwd=tmp_path)
    assert ended.returncode == (-number if number == signal.SIGKILL else 3), ended.stderr
    with within(0):
        while left(asked):
            select.select([], [], [], 0.01)
    explained = conform_here("explain", *words, cwd=tmp_path)
    assert explained.returncode == 2
    assert "its run has planned nothing yet, or ended before it had" in explained.stderr
    if words:
        assert json.loads((tmp_path / "report" / "report.json.before").read_text())["complete"]
    assert run_here(good, *words, cwd=tmp_path).returncode == 0
    assert "Nothing failed in this run" in explain_here(*words, cwd=tmp_path)
    assert not [*tmp_path.rglob("*.before")]


def test_a_latest_that_is_no_link_is_not_replaced(tmp_path: Path, fake: Callable) -> None:
    (tmp_path / "conform-report" / "latest").mkdir(parents=True)
    ended = run_here(fake("good"), cwd=tmp_path)
    assert ended.returncode == 2
    assert ended.stderr.startswith("conform: conform-report: cannot be written: ")


def test_the_last_half_line_of_a_killed_run_is_no_record(tmp_path: Path, fake: Callable) -> None:
    out = ("--out", "report")
    assert run_here(fake("murderer", MURDERER), *out, cwd=tmp_path).returncode == -signal.SIGKILL
    with (tmp_path / "report" / "records.jsonl").open("a") as file:
        file.write('{"implementation": "murderer", "case": "pre-ge')
    assert "INCOMPLETE: 0 of 3 checks were judged" in explain_here(*out, cwd=tmp_path)


@pytest.mark.release
def test_a_killed_verdict_leaves_none_of_another(tmp_path: Path, fake: Callable) -> None:
    """`diff` stands for every command that writes one file: the green one of another layer is not there any more."""
    fake("good"), fake("murderer", MURDERER)
    file = tmp_path / "mine" / "diff.json"
    file.parent.mkdir()
    file.write_text("the verdict on others")
    words = ("good", "murderer", "--layer", "pre-gelu", "--jobs", "1", "--out", "mine")
    assert conform_here("diff", *words, cwd=tmp_path).returncode == -signal.SIGKILL
    assert not file.exists()
    assert file.with_name("diff.json.before").read_text() == "the verdict on others"


def test_two_verdicts_side_by_side_have_a_folder_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last that ended is the latest, whichever began last."""
    monkeypatch.chdir(tmp_path)
    with begun_result("check", "check.json", None) as first:
        with begun_result("check", "check.json", None) as second:
            assert first != second
            second.write_text("second")
        assert Path("conform-report/check/latest/check.json").read_text() == "second"
        first.write_text("first")
    assert Path("conform-report/check/latest/check.json").read_text() == "first"
    with (
        begun_result("check", "check.json", Path("mine")),
        pytest.raises(InputError, match="another run is writing there"),
        begun_result("check", "check.json", Path("mine")),
    ):
        pass
