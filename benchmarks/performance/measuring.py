"""Commands and calls taken in turns, and what each took: the machine is never twice the same, so only turns compare."""

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

ROOT = Path(__file__).resolve().parents[2]
Taken = TypeVar("Taken")
QUIET = 0.1
"""Cores that others may keep busy in a turn that counts without question."""
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
    environment |= {"PYTHONPATH": str(ROOT / "harness"), **variables}
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


@dataclass(frozen=True)
class Turns(Generic[Taken]):
    """Contender → what each of its turns took; `others` is the busiest of these turns, in cores that others used."""

    taken: dict[str, list[Taken]]
    others: float


def in_turns(contenders: Mapping[str, Callable[[], Taken]], repeats: int) -> Turns[Taken]:
    """A B C A B C …; a turn in which others are at work is taken again, at most as often, and the quietest count."""
    turns: list[tuple[float, dict[str, Taken]]] = []
    while sum(others <= QUIET for others, _ in turns) < repeats and len(turns) < 2 * repeats:
        begun = time.perf_counter(), worked(), own()
        taken = {name: contender() for name, contender in contenders.items()}
        wall = time.perf_counter() - begun[0]
        turns.append((max(0.0, worked() - begun[1] - own() + begun[2]) / wall, taken))
    kept = sorted(turns, key=lambda turn: max(turn[0], QUIET))[:repeats]
    return Turns({name: [taken[name] for _, taken in kept] for name in contenders}, max(others for others, _ in kept))


def worked() -> float:
    """Seconds that all the cores together have spent on anything but waiting."""
    user, nice, system, _, _, interrupt, soft_interrupt, stolen = map(
        int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    )
    return (user + nice + system + interrupt + soft_interrupt + stolen) / os.sysconf("SC_CLK_TCK")


def own() -> float:
    """Seconds of processor that this process has used, and those that it has waited for."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def ratios(these: Sequence[float], those: Sequence[float]) -> tuple[float, ...]:
    """Turn by turn: what was taken in the same turn met the same machine."""
    return tuple(one / other for one, other in zip(these, those, strict=True))
