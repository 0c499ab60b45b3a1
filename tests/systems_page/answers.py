"""What the commands of the page answer today."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Protocol

from systems_page.lines import Line


@dataclass(frozen=True)
class Answer:
    """What a command printed, or the records of its run."""

    printed: str = ""
    records: tuple[dict[str, Any], ...] = ()


class Ended(Protocol):
    status: int
    stdout: str
    stderr: str

    @property
    def report(self) -> dict[str, Any]: ...


def answers(lines: Iterable[Line], conform: Callable[..., Ended]) -> dict[str, Answer]:
    """Command → its answer. All runs of an implementation in a format are asked as one: each starts a worker."""
    found: dict[str, Answer] = {}
    runs: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        if line.is_kept:
            found[line.command] = Answer()
        elif line.is_run:
            [implementation], [dtype] = line.options("impl"), line.options("dtype")
            runs.setdefault((implementation, dtype), []).append(line)
        elif line.command not in found:
            found[line.command] = Answer(printed=_ended(conform(*line.words)).stdout)
    for (implementation, dtype), asked in runs.items():
        globs = dict.fromkeys(glob for line in asked for glob in line.options("case"))
        cases = [word for glob in globs for word in ("--case", glob)]
        ended = _ended(conform("run", "--impl", implementation, "--dtype", dtype, "--jobs", "1", *cases))
        for line in asked:
            found[line.command] = Answer(records=tuple(_of(line, ended.report["records"])))
    return found


def _ended(ended: Ended) -> Ended:
    assert ended.status == 0, ended.stdout + ended.stderr
    return ended


def _of(line: Line, records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    globs = line.options("case")
    asked = [record for record in records if record["outcome"] != "unsupported"]
    return [record for record in asked if any(fnmatchcase(record["case"], glob) for glob in globs)]
