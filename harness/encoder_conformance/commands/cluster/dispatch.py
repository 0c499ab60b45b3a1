"""Gives parts to the workers of a cluster, one at a time each, and again to others what a lost worker had."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from encoder_conformance.commands.cluster.dask import DaskCluster, DaskRunning
from encoder_conformance.commands.cluster.worker import PlanPart, Result

MOST_LOSSES = 3
"""Workers that a part may lose before it is given up: it may be what ends them."""


@dataclass
class Dispatched:
    """`results`: part → its result. `given_up`: part → why it has none. `lost`: the workers that went away at work."""

    results: dict[PlanPart, Result] = field(default_factory=dict)
    given_up: dict[PlanPart, str] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)


def dispatch(cluster: DaskCluster, parts: Iterable[PlanPart], say: Callable[[str], None]) -> Dispatched:
    """Have all parts judged. `say` gets a line about each that ends, and about each worker that is lost."""
    waiting, running = deque(parts), dict[str, tuple[PlanPart, DaskRunning]]()
    losses: dict[PlanPart, int] = {}
    found = Dispatched()
    try:
        while waiting or running:
            there = cluster.workers()
            for worker in [worker for worker in running if worker not in there]:
                part, work = running.pop(worker)
                work.drop()
                found.lost.append(worker)
                losses[part] = losses.get(part, 0) + 1
                if losses[part] < MOST_LOSSES:
                    say(f"{worker} is lost; {part.name} is asked again elsewhere")
                    waiting.appendleft(part)
                else:
                    say(f"{worker} is lost; {part.name} has lost {MOST_LOSSES} workers and is given up")
                    found.given_up[part] = f"it lost {MOST_LOSSES} workers"
            for worker, (part, work) in list(running.items()):
                if (result := work.result()) is not None:
                    del running[worker]
                    _keep(found, part, result, worker, say)
            _start(cluster, there, waiting, running)
            if waiting and not running:
                _give_up(found, waiting, there, say)
            if running:
                cluster.wait()
    finally:
        for _, work in running.values():
            work.drop()
    return found


def _keep(found: Dispatched, part: PlanPart, result: Result, worker: str, say: Callable[[str], None]) -> None:
    if result.problem:
        say(f"{part.name} failed on {worker}: {result.problem}")
        found.given_up[part] = result.problem
    else:
        say(f"{part.name}: judged by {worker}")
        found.results[part] = result


def _start(
    cluster: DaskCluster,
    there: Mapping[str, frozenset[str]],
    waiting: deque[PlanPart],
    running: dict[str, tuple[PlanPart, DaskRunning]],
) -> None:
    """Start a part on every idle worker that can run one."""
    for worker, can_run in there.items():
        if worker in running:
            continue
        part = next((part for part in waiting if part.implementation in can_run), None)
        if part is not None:
            waiting.remove(part)
            running[worker] = part, cluster.start(part, worker)


def _give_up(
    found: Dispatched, waiting: deque[PlanPart], there: Mapping[str, frozenset[str]], say: Callable[[str], None]
) -> None:
    """No worker is at work, and none of those that are there can run what waits."""
    for part in waiting:
        reason = f"none of the {len(there)} workers that are left can run {part.implementation}"
        say(f"{part.name} is given up: {reason}")
        found.given_up[part] = reason
    waiting.clear()
