"""Runs the plan: workers of different implementations side by side, every observation judged as it comes."""

import os
import queue
import re
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from harness.deviations.declared import judge_declared
from harness.deviations.diagnose import diagnose
from harness.deviations.sighting import Sighting
from harness.golden.expected import Expected
from harness.golden.narrow import in_format
from harness.impl.manifest import Device
from harness.invariants.declared import put
from harness.judge.outcome import EXPECTED, Outcome
from harness.judge.verdict import Verdict, judge
from harness.lines import Line, Share, most_urgent
from harness.plan import Task
from harness.refusals import refused
from harness.report.model import Diagnosis, Record
from harness.spec.case import Case
from harness.spec.constants import Constants
from harness.spec.situation import Check
from harness.training.dropout import judge_dropout
from harness.training.initialisation import judge_initialisation
from harness.worker.session import Failure, Observation, Session

AFTER_REFUSALS = "after refusing what is wrong: "
"""How the message of a refusal check begins where only what was asked next, which is right, fails."""
_NOT_IN_FILE_NAMES = re.compile(r"[^\w.,=-]+")


class Run:
    """A run in progress. Iterate over it to get its records; `abort` it from anywhere."""

    def __init__(
        self,
        shares: list[Share],
        expected: Callable[[Case], Expected],
        constants: Constants,
        *,
        jobs: int,
        device: Device,
        logs: Path,
        threads: int | None = None,
    ) -> None:
        """At most `jobs` workers side by side, of different implementations first, and then more of one.

        `threads` is what each worker's framework is given; by default the workers share the processors.
        """
        self._expected, self._constants = expected, constants
        self.jobs = max(1, min(jobs, sum(share.workers for share in shares)))
        self.threads = threads or max(1, (os.cpu_count() or 1) // self.jobs)
        self._logs = logs

        def session(share: Share, number: int) -> Session:
            name = _NOT_IN_FILE_NAMES.sub("-", share.ready.implementation.name)
            log = logs / f"{name}{'' if number == 1 else f'-{number}'}.log"
            log.unlink(missing_ok=True)
            return Session(share.ready, device, self.threads, log)

        self._lines = {share.ready.implementation.name: Line(share, partial(session, share)) for share in shares}
        self._records: queue.Queue[Record | BaseException | None] = queue.Queue()
        self._aborted = threading.Event()
        self._wanted = threading.Event()
        self._taking = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def begin(self) -> ThreadPoolExecutor:
        """Start the workers: they import their frameworks while the caller does something else. Nothing is asked of
        them before the records are wanted; `abort` ends them if they never are."""
        if self._pool is None:
            self._logs.mkdir(parents=True, exist_ok=True)
            self._pool = ThreadPoolExecutor(self.jobs)
            for _ in range(self.jobs):
                self._pool.submit(self._work)
        return self._pool

    def __iter__(self) -> Generator[Record, None, None]:
        """Every record, as it is judged. Leaving the loop early, by an exception or a break, ends every worker."""
        pool = self.begin()
        self._wanted.set()
        with pool:
            unfinished = self.jobs
            try:
                while unfinished:
                    match self._records.get():
                        case None:
                            unfinished -= 1
                        case Record() as record:
                            yield record
                        case BaseException() as error:
                            raise error
            finally:
                if unfinished:
                    self.abort()

    def session(self, name: str) -> Session:
        """An implementation's first, which says what it is."""
        return self._lines[name].sessions[0]

    def sightings(self, dtype: str) -> list[Sighting]:
        """What every implementation was seen to give in a dtype."""
        return [sighting for line in self._lines.values() for sighting in line.seen.by_dtype().get(dtype, [])]

    def diagnoses(self) -> tuple[Diagnosis, ...]:
        """What explains the failures of each implementation and dtype that has any."""
        return tuple(
            diagnose(name, dtype, sightings)
            for name, line in self._lines.items()
            for dtype, sightings in line.seen.by_dtype().items()
            if any(sighting.failed for sighting in sightings)
        )

    def left(self) -> Iterator[Record]:
        """What was judged but not yet taken when the run was ended."""
        while not self._records.empty():
            if isinstance(item := self._records.get_nowait(), Record):
                yield item

    def abort(self) -> None:
        with self._taking:  # no session is begun after this
            self._aborted.set()
            sessions = [session for line in self._lines.values() for session in line.sessions]
        for session in sessions:
            session.abort()
        self._wanted.set()  # who waits for it finds that there is nothing left to do

    def _work(self) -> None:
        """One worker after the other, until nothing is left that another would be worth."""
        try:
            while joined := self._join():
                self._take_through(*joined)
        except BaseException as error:  # a fault of the harness: the whole run ends, and says so
            self._records.put(error)
        finally:
            self._records.put(None)

    def _join(self) -> tuple[Line, Session] | None:
        with self._taking:
            line = None if self._aborted.is_set() else most_urgent(self._lines.values())
            return None if line is None else (line, line.join())

    def _take_through(self, line: Line, session: Session) -> None:
        if line.asks:
            session.start()
        self._wanted.wait()
        while tasks := self._next_layer(line):
            for task in tasks:
                if self._aborted.is_set():
                    return
                expected = in_format(task.case, self._expected(task.case), task.format)
                asked = ask(session, task, expected, self._constants)
                if asked.observation is not None:
                    line.seen.see(task, expected, asked.record, asked.observation)
                if not self._aborted.is_set():  # an abort is the end of the run, not this worker's crash
                    self._records.put(asked.record)
        session.close()

    def _next_layer(self, line: Line) -> list[Task]:
        with self._taking:
            return line.waiting.popleft() if line.waiting else []


@dataclass(frozen=True)
class Asked:
    """A check that was put to an implementation: the record of it, and what was observed, if anything was."""

    record: Record
    observation: Observation | None = None


def ask(session: Session, task: Task, expected: Expected, constants: Constants) -> Asked:
    """Put one check to an implementation and judge what it answers."""
    if task.opt_out:
        return Asked(_record(task, Outcome.UNSUPPORTED, message=task.opt_out))
    begun = time.monotonic()
    if put_and_judge := _WITHOUT_GOLDEN.get(task.check):
        verdict = put_and_judge(session, task)
        return Asked(_record(task, **dict(verdict), seconds=round(time.monotonic() - begun, 4)))
    observe = partial(refused, session) if task.check == "refusal" else session.observe
    observation = observe(task, expected.kinked_rows)
    seconds = round(time.monotonic() - begun, 4)
    if isinstance(observation, Failure):
        return Asked(_record(task, observation.outcome, message=observation.message, seconds=seconds))
    if deviations := task.deviations:
        verdict = judge_declared(task, deviations, observation, expected, constants)
    else:
        verdict = judge(task.check, task.tensors, observation, expected, task.format, constants)
    if task.check == "refusal" and verdict.outcome not in EXPECTED:
        verdict = verdict.model_copy(update={"message": f"{AFTER_REFUSALS}{verdict.message}"})
    return Asked(_record(task, **dict(verdict), seconds=seconds), observation)


_WITHOUT_GOLDEN: dict[Check, Callable[[Session, Task], Verdict]] = {
    "invariant": put,
    "dropout": judge_dropout,
    "initialisation": judge_initialisation,
}
"""The checks that ask more than once, and judge the answers by each other or by chance."""


def _record(task: Task, outcome: Outcome, **found: object) -> Record:
    return Record.model_validate(
        {
            "implementation": task.implementation.name,
            "case": task.case.id,
            "level": task.case.level,
            "dtype": task.dtype,
            "check": task.check,
            "outcome": outcome,
            **found,
        }
    )


def not_run(task: Task) -> Record:
    """The record that a planned check has until it is judged."""
    return _record(task, Outcome.NOT_RUN, message="the run ended before this check was asked")
