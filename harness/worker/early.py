"""Workers that are started before anybody knows what to ask them: they import their frameworks in the meantime."""

import contextlib
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path

from encoder_conformance.impl.interpreter import Ready
from encoder_conformance.interrupts import deferred_interrupts
from encoder_conformance.worker.failure import WorkerFailure
from encoder_conformance.worker.launch import Launch
from encoder_conformance.worker.limits import Limits
from encoder_conformance.worker.process import WorkerProcess


class EarlyWorkers:
    """Workers that import their frameworks while the specification is read. Nothing has been asked of them yet.

    A run takes those that it would have started in the same way. Of the others nothing is left, and a log that lay
    there before is back in its place.
    """

    def __init__(self, interrupts: contextlib.ExitStack) -> None:
        self.interrupts = interrupts
        """Close it to get the interrupts that have arrived, once there is a report that can say so."""
        self._waiting: dict[Path, tuple[Launch, WorkerProcess]] = {}

    def start(self, launch: Launch) -> None:
        """A worker that cannot be started is left to the run, which says so."""
        launch.log.parent.mkdir(parents=True, exist_ok=True)
        if launch.log.exists():
            launch.log.replace(_before(launch.log))
        try:
            self._waiting[launch.log] = launch, launch.start()
        except WorkerFailure:
            _put_back(launch.log)

    def take(self, ready: Ready, threads: int, log: Path, limits: Limits) -> WorkerProcess | None:
        """The worker that has been started with these, if there is one; once. One that has started otherwise ends."""
        if log not in self._waiting:
            return None
        launch, worker = self._waiting[log]
        if launch != Launch.of(ready, threads, log, limits):
            self._end(log)
            return None
        del self._waiting[log]
        _before(log).unlink(missing_ok=True)
        return worker

    def end(self) -> None:
        """Kill those that nobody has taken."""
        for log in tuple(self._waiting):
            self._end(log)

    def _end(self, log: Path) -> None:
        _, worker = self._waiting.pop(log)
        worker.end()
        _put_back(log)


def _before(log: Path) -> Path:
    """Where an earlier log lies, while nobody knows whether the run comes to anything."""
    return log.with_name(f"{log.name}.before")


def _put_back(log: Path) -> None:
    log.unlink(missing_ok=True)
    if (before := _before(log)).exists():
        before.replace(log)


@contextlib.contextmanager
def early_workers(launches: Iterable[Launch]) -> Generator[EarlyWorkers]:
    """These workers, started, and interrupts deferred. Whoever has not been taken when the block ends is killed."""
    with contextlib.ExitStack() as interrupts:
        interrupts.enter_context(deferred_interrupts())
        early = EarlyWorkers(interrupts)
        try:
            for launch in launches:
                early.start(launch)
            yield early
        finally:
            early.end()


def served_first(ready: Sequence[Ready], workers: int) -> list[Ready]:
    """The implementations that the first workers of a run serve, if each has tasks (scheduling.most_urgent)."""

    def longest_task(each: Ready) -> float:
        return each.implementation.timeouts.longest_task

    first = max(ready, key=longest_task)
    others = sorted((each for each in ready if each is not first), key=longest_task)
    return [first, *others][:workers]
