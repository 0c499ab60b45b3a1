"""Which part goes to which worker of a cluster: one at a time each, and again elsewhere what a lost worker had."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from encoder_conformance.commands.cluster.worker import PlanPart, Result

MOST_LOSSES = 3
"""Workers or processes that a part may lose before it is given up: it may be what ends them."""
_There = Mapping[str, frozenset[str]]


class Running(Protocol):
    """A part that a worker has begun."""

    def result(self) -> Result | None: ...
    def drop(self) -> None: ...


class Cluster(Protocol):
    """Workers, each with the implementations that it can run."""

    def workers(self) -> _There: ...
    def start(self, part: PlanPart, worker: str) -> Running: ...
    def wait(self) -> None: ...


@dataclass
class Dispatched:
    """`results`: part → its result. `given_up`: part → why it has none, and `refused`: those that a worker could not
    judge. `lost`: the workers that went away at work."""

    results: dict[PlanPart, Result] = field(default_factory=dict)
    given_up: dict[PlanPart, str] = field(default_factory=dict)
    refused: list[PlanPart] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


class Dispatcher:
    """Has parts judged. `say` gets a line about each that ends, and about each that is lost; `keep` each result, as
    soon as it is there."""

    def __init__(
        self,
        cluster: Cluster,
        parts: Iterable[PlanPart],
        say: Callable[[str], None],
        keep: Callable[[PlanPart, Result], None],
    ) -> None:
        self._cluster, self._say, self._keep = cluster, say, keep
        self._waiting, self._running = deque(parts), dict[str, tuple[PlanPart, Running]]()
        self._lost_at: dict[PlanPart, list[str]] = {}
        self.found = Dispatched()

    def run(self) -> Dispatched:
        """Until every part has a result or is given up. However else it ends, what runs is dropped."""
        try:
            while self._waiting or self._running:
                there = self._cluster.workers()
                for worker in [worker for worker in self._running if worker not in there]:
                    self._lose(worker, f"{worker} is lost")
                    self.found.lost.append(worker)
                for worker, (part, work) in list(self._running.items()):
                    if (result := work.result()) is not None:
                        self._take(worker, part, result)
                self._start(there)
                if self._waiting and not self._running:
                    self._give_up(there)
                if self._running:
                    self._cluster.wait()
        finally:
            for _, work in self._running.values():
                work.drop()
        return self.found

    def _take(self, worker: str, part: PlanPart, result: Result) -> None:
        if result.lost:
            self._lose(worker, f"{part.name} was lost on {worker}: {result.problem}")
            return
        del self._running[worker]
        if result.problem:
            self._say(f"{part.name} failed on {worker}: {result.problem}")
            self.found.given_up[part] = result.problem
            self.found.refused.append(part)
        else:
            self.found.results[part] = result
            self._keep(part, result)
            self._say(f"{part.name}: judged by {worker}")

    def _lose(self, worker: str, why: str) -> None:
        """The part of a worker is asked again, unless that has happened often."""
        part, work = self._running.pop(worker)
        work.drop()
        lost_at = self._lost_at.setdefault(part, [])
        lost_at.append(worker)
        if len(lost_at) < MOST_LOSSES:
            self._say(f"{why}; {part.name} is asked again elsewhere")
            self._waiting.appendleft(part)
        else:
            self._say(f"{why}; {part.name} was lost {MOST_LOSSES} times and is given up")
            self.found.given_up[part] = f"it was lost {MOST_LOSSES} times, the last on {worker}"

    def _start(self, there: _There) -> None:
        """Start a part on every idle worker that can run one: not where it was lost, if there are others."""
        for worker, can_run in there.items():
            if worker in self._running:
                continue
            for part in self._waiting:
                able = {each for each, names in there.items() if part.implementation in names}
                if part.implementation in can_run and worker in (able - {*self._lost_at.get(part, ())} or able):
                    self._waiting.remove(part)
                    self._running[worker] = part, self._cluster.start(part, worker)
                    break

    def _give_up(self, there: _There) -> None:
        """No worker is at work, and none of those that are there can run what waits."""
        for part in self._waiting:
            reason = f"none of the {len(there)} workers that are left can run {part.implementation}"
            self._say(f"{part.name} is given up: {reason}")
            self.found.given_up[part] = reason
        self._waiting.clear()
