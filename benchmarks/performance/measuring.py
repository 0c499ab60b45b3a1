"""Commands and calls taken in turns, and what each took: the machine is never twice the same, so only turns compare."""

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[2]
Taken = TypeVar("Taken")
CORES = os.cpu_count() or 1

_NOT_A_USERS = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
"""Variables that a build machine sets, and that make every start compile, or every line a write."""


@dataclass(frozen=True)
class Took:
    """One command: seconds by the clock, and of processor, its own and of every process that it waited for."""

    wall: float
    processor: float


class CommandFailed(RuntimeError):
    """A command that was measured did not do what it was measured at."""


def command(words: Sequence[str], log: Path, *, accepted: Sequence[int] = (0,), **variables: str) -> Took:
    """Run a command from the checkout's root and take its measure."""
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_A_USERS}
    environment |= {"PYTHONPATH": str(ROOT), **variables}
    with log.open("wb") as output:
        begun = time.perf_counter()
        process = subprocess.Popen(words, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in accepted:
        last = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
        raise CommandFailed(f"{' '.join(words)} ended with status {process.returncode}:\n{last}")
    return Took(wall, used.ru_utime + used.ru_stime)


def in_turns(contenders: Mapping[str, Callable[[], Taken]], repeats: int) -> dict[str, list[Taken]]:
    """A B C A B C …: what each contender took, each time."""
    taken: dict[str, list[Taken]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, contender in contenders.items():
            taken[name].append(contender())
    return taken


def ratios(these: Sequence[float], those: Sequence[float]) -> tuple[float, ...]:
    """Turn by turn: what was taken in the same turn met the same machine."""
    return tuple(one / other for one, other in zip(these, those, strict=True))
