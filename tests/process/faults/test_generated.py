"""Faults by generator (striking.py): whatever is struck, nothing hangs, nobody is accused, nothing false is said, what
was there before stands for nothing new, and no worker is left."""

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import striking
from striking import Strike

HONEST = Path(__file__).resolve().parents[2] / "fakes" / "honest"
ONE = ("--case", "pre-gelu/no-mask", "--dtype", "float32", "--jobs", "1")
COMMANDS = {
    "run": ("run", "--impl", "./noted", *ONE, "--out", "out"),
    "smoke": ("smoke", "./noted"),
    "explain": ("explain", "--out", "old"),
    "list": ("list", "cases"),
    "report": ("report", "old", "--to", "site"),
    "compare": ("compare", "old", "older", "--to", "site"),
    "merge": ("merge", "old", "--to", "merged"),
    "summarize": ("summarize", "old", "--junit", "junit.xml"),
    "new": ("new", "my_backend", "--framework", "pytorch"),
    "ask": ("ask", "--layer", "pre-gelu", "--to", "asked.safetensors"),
}
EARLIER = "an earlier run's"
NOTES = """
import os
from pathlib import Path

with Path(__file__).with_name("pids").open("a") as notes:
    print(os.getpid(), file=notes)
"""
ENOUGH = 400

pytestmark = [pytest.mark.release, pytest.mark.linux]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands are given: an adapter that notes its process, and finished runs."""
    place = tmp_path_factory.mktemp("prepared")
    noted = shutil.copytree(HONEST, place / "noted", ignore=shutil.ignore_patterns("*.log", "__pycache__"))
    (noted / "impl.yaml").write_text((noted / "impl.yaml").read_text().replace("name: honest", "name: noted", 1))
    adapter = (noted / "adapter.py").read_text()
    (noted / "adapter.py").write_text(adapter.replace("\nimport math", f"{NOTES}import math", 1))
    printed = place / "printed"
    printed.mkdir()
    for name in ("old", "older"):
        assert striking.told(["run", "--impl", "./noted", *ONE, "--out", name], place, printed, None) == 0
    shutil.rmtree(printed)
    return place


@pytest.fixture(scope="module")
def plain(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[dict[str, int], set[str]]]:
    """A command's events, and the files that it makes, where nothing strikes it. Once each."""
    known: dict[str, tuple[dict[str, int], set[str]]] = {}

    def of(command: str) -> tuple[dict[str, int], set[str]]:
        if command not in known:
            place, printed = copied(prepared, tmp_path_factory.mktemp(command))
            before = files(place)
            assert striking.told([*COMMANDS[command]], place, printed, None) == 0, (printed / "err").read_text()
            known[command] = striking.counted(printed), files(place) - before
        return known[command]

    return of


def copied(prepared: Path, folder: Path) -> tuple[Path, Path]:
    place, printed = folder / "place", folder / "printed"
    shutil.copytree(prepared, place, symlinks=True)
    (place / "out").mkdir()
    (place / "out" / "report.json").write_text(EARLIER)
    printed.mkdir()
    return place, printed


def files(place: Path) -> set[str]:
    ours = (path for path in place.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(place)) for path in ours}


def faults_of(
    command: str, strike: Strike, place: Path, printed: Path, status: int | None, made: set[str]
) -> list[str]:
    """What is wrong with how a command took a strike; nothing is due."""
    found = []
    said = (printed / "err").read_text() if (printed / "err").exists() else ""
    killed = strike.fault == "kill"
    if status is None:
        return ["it hangs"]
    if status not in ({-9} if killed else {0, 2, 3}):
        found.append(f"status {status}")
    if "Traceback" in said or "this is a bug" in said:
        found.append("it is called a bug: " + said.strip().splitlines()[-2][:150])
    if status and not killed and not said.lstrip().startswith("conform: "):
        found.append(f"it is not said: {said[:100]!r}")
    if command == "run":
        found += faults_of_run(place, status)
    elif status == 0 and (missing := made - files(place)):
        found.append(f"status 0, and {sorted(missing)[:3]} are missing")
    pids = (place / "noted" / "pids").read_text().split() if (place / "noted" / "pids").exists() else []
    if alive := left_of(pids):
        found.append(f"workers are left: {alive}")
    return found


def left_of(pids: list[str]) -> list[str]:
    """The workers that live, after the time that a guard gives itself to end one."""
    until = time.monotonic() + 5
    while alive := [pid for pid in pids if "adapter.py" in words_of(pid)]:
        if time.monotonic() > until:
            break
        time.sleep(0.05)
    return alive


def words_of(pid: str) -> str:
    """The command line of a process; "" of one that has ended."""
    try:
        return Path("/proc", pid, "cmdline").read_text()
    except OSError:
        return ""


def faults_of_run(place: Path, status: int) -> list[str]:
    path = place / "out" / "report.json"
    if not path.exists():
        return ["status 0 without a report"] if status == 0 else []
    if (text := path.read_text()) == EARLIER:
        return ["status 0, and the report is an earlier run's"] if status == 0 else []
    report = json.loads(text)
    found = []
    outcomes = {record["outcome"] for record in report["records"]}
    if not outcomes <= {"pass", "not-run"}:
        found.append(f"it is accused: {outcomes}")
    if report["complete"] != ("not-run" not in outcomes) and not report["ended_by"]:
        found.append(f"complete is {report['complete']}, with {outcomes}")
    if status == 0 and not report["complete"]:
        found.append("status 0, and the report is incomplete")
    return found


def test_there_are_enough_of_them(plain: Callable[[str], tuple[dict[str, int], set[str]]]) -> None:
    every = {(command, strike) for command in COMMANDS for strike in striking.strikes(plain(command)[0])}
    print(f"{len(every)} faults")
    assert len(every) >= ENOUGH


@pytest.mark.parametrize("command", COMMANDS)
def test_whatever_strikes_a_command_nothing_is_lost_false_or_left(
    command: str,
    prepared: Path,
    plain: Callable[[str], tuple[dict[str, int], set[str]]],
    tmp_path: Path,
) -> None:
    """CONFORM_FAULTS=N tries every N-th."""
    events, made = plain(command)
    wrong, tried = dict[Strike, list[str]](), 0
    for strike in [*striking.strikes(events)][:: int(os.environ.get("CONFORM_FAULTS", "1"))]:
        place, printed = copied(prepared, tmp_path / f"{tried}")
        status = striking.told([*COMMANDS[command]], place, printed, strike)
        if found := faults_of(command, strike, place, printed, status, made):
            wrong[strike] = found
        shutil.rmtree(tmp_path / f"{tried}")
        tried += 1
    print(f"{command}: {tried} faults tried, {len(wrong)} wrong")
    assert not wrong, "\n".join(f"{strike}: {'; '.join(found)}" for strike, found in wrong.items())
