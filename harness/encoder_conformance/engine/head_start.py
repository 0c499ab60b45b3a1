"""The work of a run while its workers import their frameworks, which takes seconds: the harness needs half a second.

Workers start before the specification is read and before what judges is imported, which is why what prepares to judge
imports it inside functions. Then, and whenever no answer comes, expectations are read and conditions measured.
"""

import contextlib
import queue
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from encoder_conformance.implementation.interpreter import Ready
from encoder_conformance.platform.errors import MachineError
from encoder_conformance.platform.files import writable
from encoder_conformance.platform.interrupts import deferred_interrupts
from encoder_conformance.spec.case import Case
from encoder_conformance.worker.failure import WorkerFailure
from encoder_conformance.worker.launch import Launch
from encoder_conformance.worker.limits import WorkerLimits
from encoder_conformance.worker.process import WorkerProcess

if TYPE_CHECKING:
    from encoder_conformance.implementation.task import Task
    from encoder_conformance.oracle.golden.goldens import Goldens

_IDLE = 0.02
"""Seconds without an item after which a reader is idle: a worker imports, compiles or exports."""
_MEASURED_AHEAD = 32
"""Conditions; half of those that are kept."""
_WITH_STATISTICS = frozenset({"invariant", "dropout", "initialisation"})
"""The checks that SciPy judges, whose import takes longer than a step."""

Item = TypeVar("Item")


class HeadStart:
    """Workers of which nothing has been asked yet, in logs of their own.

    A run takes those that it would have started in the same way. Of the others nothing is left.
    """

    def __init__(self, interrupts: contextlib.ExitStack) -> None:
        self.interrupts = interrupts
        """Close it to get the interrupts that have arrived, once there is a report that can say so."""
        self._waiting: dict[Path, tuple[Launch, WorkerProcess]] = {}

    def start(self, launch: Launch) -> None:
        """A worker that cannot be started is left to the run, which says so."""
        launch.log.parent.mkdir(parents=True, exist_ok=True)
        log = launch.log.with_name(f".{launch.log.name}.early")
        log.unlink(missing_ok=True)  # of a run that was killed
        try:
            self._waiting[launch.log] = launch, WorkerProcess(replace(launch, log=log))
        except (WorkerFailure, MachineError):
            log.unlink(missing_ok=True)

    def take(self, ready: Ready, threads: int, log: Path, limits: WorkerLimits) -> WorkerProcess | None:
        """The worker that has been started with these, if there is one; once. One that has started otherwise ends."""
        launch, worker = self._waiting.pop(log, (None, None))
        if worker and launch == Launch.of(ready, threads, log, limits):
            with writable(str(log)):
                worker.log = worker.log.replace(log)
            return worker
        if worker:
            _end(worker)
        return None

    def end(self) -> None:
        """Kill those that nobody has taken."""
        while self._waiting:
            _end(self._waiting.popitem()[1][1])


def _end(worker: WorkerProcess) -> None:
    worker.end()
    worker.log.unlink(missing_ok=True)


@contextlib.contextmanager
def head_start(launches: Iterable[Launch] = ()) -> Generator[HeadStart]:
    """These workers, started, and interrupts deferred. Whoever has not been taken when the block ends is killed."""
    with contextlib.ExitStack() as interrupts:
        interrupts.enter_context(deferred_interrupts())
        started = HeadStart(interrupts)
        try:
            for launch in launches:
                started.start(launch)
            yield started
        finally:
            started.end()


def first_served(waiting: Sequence[Item], seconds: Callable[[Item], float]) -> list[Item]:
    """The order in which implementations get their first worker, by the `seconds` that a task may take.

    First the one with the longest tasks, which would otherwise end last and alone. Then from the shortest on, for an
    early first result.
    """
    longest = max(waiting, key=seconds)
    return [longest, *sorted((each for each in waiting if each is not longest), key=seconds)]


def next_item(items: "queue.SimpleQueue[Item]", steps: Iterator[None]) -> Item:
    """The next item of a queue. Once none has come for a moment, steps of other work are taken until one does."""
    with contextlib.suppress(queue.Empty):
        return items.get(timeout=_IDLE)
    for _ in steps:
        with contextlib.suppress(queue.Empty):
            return items.get_nowait()
    return items.get()


def preparations(goldens: "Goldens", tasks: "Sequence[Task]") -> Iterator[None]:
    """Prepare to judge the answers to these tasks, in steps of 3 to 50 ms: an item that comes waits for a step's end.

    The first goldens fill the cache, and those of small cases behind them the spool. A condition takes a tenth of a
    second to measure, which else the answers wait for.
    """
    if any(task.check in _WITH_STATISTICS for task in tasks):
        import_module("scipy.special")
        yield
    cases = list({task.case.id: task.case for task in tasks if not task.case.needs_no_golden}.values())
    for case in cases[: goldens.KEPT]:
        goldens(case)
        yield
    yield from _measurements(tasks)
    for case in cases[goldens.KEPT :]:
        if goldens.spool(case):
            yield


def _measurements(tasks: "Sequence[Task]") -> Iterator[None]:
    """Measure the conditions that judging the first of these tasks needs and their goldens lack, one a step."""
    from encoder_conformance.oracle.condition import SAMPLE_ROUNDOFF
    from encoder_conformance.oracle.golden.narrow import LINEAR_BELOW
    from encoder_conformance.oracle.measured import measured_condition
    from encoder_conformance.spec.follow_ups import base_of
    from encoder_conformance.spec.situation import WITH_GOLDEN
    from encoder_conformance.spec.size import is_large

    needed = dict[tuple[str, float], Case]()
    for task in tasks:
        if is_large(task.case.layer):
            continue
        if task.check == "invariant":
            needed.setdefault((task.case.id, SAMPLE_ROUNDOFF), base_of(task.case))
        elif task.check in WITH_GOLDEN and task.format.roundoff >= LINEAR_BELOW:
            needed.setdefault((task.case.id, task.format.roundoff), task.case)
    for (_, roundoff), case in islice(needed.items(), _MEASURED_AHEAD):
        measured_condition(case, roundoff)
        yield
