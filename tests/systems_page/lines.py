"""docs/systems.yaml: what five published descriptions show, the command for each, and the numbers to read off it."""

import shlex
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

SOURCE = Path(__file__).resolve().parents[2] / "docs" / "systems.yaml"


@dataclass(frozen=True)
class Number:
    read: str
    published: str | None = None
    differs: str | None = None
    """Why ours is not the published one."""


@dataclass(frozen=True)
class Line:
    what: str
    command: str
    numbers: tuple[Number, ...]
    compares: str = ""
    deviates: tuple[str, ...] = ()
    """What of a run is wrong as it was published, declared and verified."""

    @cached_property
    def words(self) -> list[str]:
        """Of the command, without `conform`."""
        return shlex.split(self.command)[1:]

    @property
    def is_kept(self) -> bool:
        """Whether its numbers are those of a kept row, and the command is not asked."""
        return bool(self.numbers) and all(number.read.split()[0] in ("row", "rows") for number in self.numbers)

    @property
    def is_run(self) -> bool:
        return self.words[0] == "run"

    def options(self, name: str) -> list[str]:
        return [value for option, value in pairwise(self.words) if option == f"--{name}"]


@dataclass(frozen=True)
class System:
    title: str
    says: str
    lines: tuple[Line, ...]


def systems() -> list[System]:
    found = yaml.safe_load(SOURCE.read_text(encoding="utf-8"))
    return [System(one["title"], one["says"], tuple(map(_line, one["lines"]))) for one in found]


def _line(written: dict[str, Any]) -> Line:
    numbers = [Number(**number) for number in written.pop("numbers", [])]
    checks = [Number("checks")] if written["command"].startswith("conform run ") else []
    deviates = tuple(written.pop("deviates", ()))
    return Line(**written, numbers=(*checks, *numbers), deviates=deviates)


def every_line() -> list[Line]:
    return [line for system in systems() for line in system.lines]
