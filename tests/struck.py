"""A command that is struck (striking.py), and what is wrong with how it took it."""

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import striking
from striking import Strike

EARLIER = "an earlier run's"
NOTES = """
import os
from pathlib import Path

with Path(__file__).with_name("pids").open("a") as notes:
    print(os.getpid(), file=notes)
"""


@dataclass(frozen=True)
class Told:
    """A command, and the file in its folder in which its verdict is; an earlier one's is there when it begins."""

    words: tuple[str, ...]
    verdict: str = ""
    takes_long: bool = False
    """It builds modules or looks for layers: it is struck less often, and has more time before it is said to hang."""

    @property
    def seconds(self) -> float:
        return 600 if self.takes_long else 180

    def strikes(self, events: Mapping[str, int]) -> Iterator[Strike]:
        return striking.few(events) if self.takes_long else striking.strikes(events)


def note_processes(adapter: Path) -> None:
    """Let an adapter note each of its processes beside it, in `pids`."""
    adapter.write_text(adapter.read_text().replace("\nimport math", f"{NOTES}import math", 1))


class Place:
    """A copy of a prepared folder, in which one command is told, and what it has printed."""

    def __init__(self, prepared: Path, folder: Path, told: Told) -> None:
        self.folder, self.printed, self._told = folder / "place", folder / "printed", told
        shutil.copytree(prepared, self.folder, symlinks=True)
        self.printed.mkdir()
        if told.verdict:
            self.verdict.parent.mkdir()
            self.verdict.write_text(EARLIER)

    @property
    def verdict(self) -> Path:
        return self.folder / self._told.verdict

    @property
    def said(self) -> str:
        return (self.printed / "err").read_text() if (self.printed / "err").exists() else ""

    def files(self) -> set[str]:
        ours = (path for path in self.folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return {str(path.relative_to(self.folder)) for path in ours}

    def told(self, strike: Strike | None) -> int | None:
        return striking.told([*self._told.words], self.folder, self.printed, strike, self._told.seconds)

    def came(self, strike: Strike) -> bool:
        """Whether its moment has come: a command that writes what it keeps for later writes less the next time."""
        counts = striking.counted(self.printed) if (self.printed / "events").exists() else {}
        return not counts or counts.get(strike.event, 0) >= strike.number

    def faults(self, strike: Strike, status: int | None, made: set[str]) -> list[str]:
        """What is wrong; nothing is due. `made`: the files that the command makes where nothing strikes it.

        A command whose moment has not come ends as ever.
        """
        if status is None:
            return ["it hangs"]
        killed, found = strike.fault == "kill" and self.came(strike), []
        if status not in ({-9} if killed else {0, 2, 3}):
            found.append(f"status {status}")
        if "Traceback" in self.said or "this is a bug" in self.said:
            found.append("it is called a bug: " + self.said.strip().splitlines()[-2][:150])
        if status and not killed and not self.said.lstrip().startswith("conform: "):
            found.append(f"it is not said: {self.said[:100]!r}")
        if self._told.verdict:
            found += self._faults_of_verdict(status)
        elif status == 0 and (missing := made - self.files()):
            found.append(f"status 0, and {sorted(missing)[:3]} are missing")
        if alive := self._left():
            found.append(f"processes are left: {alive}")
        return found

    def _left(self) -> list[str]:
        """The command lines of processes that work for it, after the time that a guard gives itself to end one: of an
        adapter that notes them, and those that have a file of its folder open, such as a worker's log."""
        noted = {pid for path in self.folder.glob("*/pids") for pid in path.read_text().split()}
        until = time.monotonic() + 5
        while alive := [words for pid in process_ids() if (words := words_of(pid)) and self._works(pid, words, noted)]:
            if time.monotonic() > until:
                break
            time.sleep(0.05)
        return alive

    def _works(self, pid: str, words: str, noted: set[str]) -> bool:
        opened = list[Path]()
        with suppress(OSError):  # it has ended, or is another user's
            opened = [each.readlink() for each in Path("/proc", pid, "fd").iterdir()]
        return ("adapter.py" in words and pid in noted) or any(each.is_relative_to(self.folder) for each in opened)

    def _faults_of_verdict(self, status: int) -> list[str]:
        text = self.verdict.read_text() if self.verdict.exists() else ""
        if text in ("", EARLIER):
            return ["status 0, and the verdict is an earlier one or none"] if status == 0 else []
        try:
            verdict = json.loads(text)
        except ValueError:
            return ["half a verdict"]
        return _faults_of_report(verdict, status) if "complete" in verdict else _accused(verdict)


def _faults_of_report(report: Mapping, status: int) -> list[str]:
    found = []
    outcomes = {record["outcome"] for record in report["records"]}
    if not outcomes <= {"pass", "not-run"}:
        found.append(f"it is accused: {outcomes}")
    if report["complete"] != ("not-run" not in outcomes) and not report["ended_by"]:
        found.append(f"complete is {report['complete']}, with {outcomes}")
    if status == 0 and not report["complete"]:
        found.append("status 0, and the report is incomplete")
    return found


def _accused(verdict: object) -> list[str]:
    """The errors that a verdict of `check`, `diff` or `validate` has, wherever they stand in it."""
    if isinstance(verdict, list):
        return [each for part in verdict for each in _accused(part)]
    if not isinstance(verdict, Mapping):
        return []
    own = []
    if verdict.get("severity") == "error" or verdict.get("outcome") in ("fail", "error", "crash", "timeout", "stale"):
        own = [f"it is accused: {verdict.get('message')}"]
    return own + [each for part in verdict.values() for each in _accused(part)]


def process_ids() -> Iterator[str]:
    """Of every process but this one."""
    return (path.name for path in Path("/proc").iterdir() if path.name.isdecimal() and path.name != str(os.getpid()))


def words_of(pid: str) -> str:
    """The command line of a process; "" of one that has ended."""
    try:
        return Path("/proc", pid, "cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def faults_of_each(prepared: Path, folder: Path, command: Told, events: Mapping[str, int], made: set[str]) -> None:
    """Strike a command, each time in a copy of its own. CONFORM_FAULTS=N tries every N-th."""
    wrong, tried, came = dict[Strike, list[str]](), 0, 0
    for strike in [*command.strikes(events)][:: int(os.environ.get("CONFORM_FAULTS", "1"))]:
        place = Place(prepared, folder / f"{tried}", command)
        status = place.told(strike)
        came += place.came(strike)
        if found := place.faults(strike, status, made):
            wrong[strike] = found
        shutil.rmtree(folder / f"{tried}")
        tried += 1
    print(f"{' '.join(command.words)}: {tried} faults tried, of which {came} came; {len(wrong)} wrong")
    assert came > tried // 2
    assert not wrong, "\n".join(f"{strike}: {'; '.join(found)}" for strike, found in wrong.items())


def unstruck(prepared: Path, folder: Path, command: Told) -> tuple[dict[str, int], set[str]]:
    """A command's events, and the files that it makes, where nothing strikes it."""
    place = Place(prepared, folder, command)
    before = place.files()
    assert place.told(None) == 0, place.said
    return striking.counted(place.printed), place.files() - before
