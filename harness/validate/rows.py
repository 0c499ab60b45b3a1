"""The runtimes and levels that a file is run in, each a worker of its own, and what each answers to every case."""

import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from encoder_conformance.asking import Asked, ask
from encoder_conformance.diagnosis.observations import Observations
from encoder_conformance.golden.narrow import in_format
from encoder_conformance.impl.interpreter import Missing, Ready, resolve
from encoder_conformance.impl.manifest import read_implementation
from encoder_conformance.judge.expected import Expected
from encoder_conformance.judge.outcome import Outcome
from encoder_conformance.paths import IMPLS
from encoder_conformance.plan import plan
from encoder_conformance.results import Record
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import Constants
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.stages import kind_of
from encoder_conformance.threads import share
from encoder_conformance.worker.session import Session

FOLDER = IMPLS / "onnx_file"
ROWS = (
    ("onnxruntime", "disable"),
    ("onnxruntime", "basic"),
    ("onnxruntime", "extended"),
    ("onnxruntime", "all"),
    ("reference", ""),
    ("openvino", ""),
)
"""Runtime and optimisation level, "" where a runtime has none to choose."""


@dataclass
class Row:
    """One runtime at one level: whether it can be had here, and what it answered."""

    runtime: str
    level: str
    found: Ready | Missing
    asked: dict[tuple[str, str], Asked] = field(default_factory=dict)
    """(case, check) → the record and what was observed."""
    seen: Observations = field(default_factory=Observations)
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.runtime} {self.level}".rstrip()

    @property
    def records(self) -> list[Record]:
        return [asked.record for asked in self.asked.values()]

    @property
    def lost(self) -> str | None:
        """Why it answered nothing at all, if that is so: the file does not load there."""
        records = self.records
        if not records or any(r.outcome not in (Outcome.ERROR, Outcome.CRASH, Outcome.TIMEOUT) for r in records):
            return None
        return records[0].message


def rows_of(model: Path, pythons: Mapping[str, str], only: Sequence[str], folder: Path = FOLDER) -> list[Row]:
    """Every runtime and level, or those of the runtimes that are named. `folder` is that of the implementation which
    runs files; its workers' own folder is another than the one that `model` may be relative to."""
    rows = []
    for runtime, level in ROWS:
        if only and runtime not in only:
            continue
        chosen = {"model": str(model.absolute()), "runtime": runtime, **({"level": level} if level else {})}
        implementation = read_implementation(folder, chosen, str(model))
        rows.append(Row(runtime, level, resolve(implementation, folder, dict(pythons))))
    return rows


def showing(rows: Sequence[Row], stages: Collection[str]) -> None:
    """From now on ask every row for those stages alone that the file has a graph value for."""
    kinds = tuple(sorted({kind_of(stage) for stage in stages}))
    for row in rows:
        if isinstance(row.found, Ready):
            known = row.found.implementation
            checks = tuple(check for check in known.capabilities.checks if check != "stages" or kinds)
            can = known.capabilities.model_copy(update={"stages": kinds, "checks": checks})
            row.found = replace(row.found, implementation=known.model_copy(update={"capabilities": can}))


def take_through(
    rows: Sequence[Row],
    cases: Sequence[Case],
    dtype: DtypeName,
    rounded_as: DtypeName | None,
    expected: Mapping[str, Expected],
    constants: Constants,
    logs: Path,
    told: Callable[[Row, Record], None],
) -> None:
    """Ask every row every case, as many workers side by side as there are processors; `told` hears of each record.

    `rounded_as` is what the file computes in, where that is narrower than the `dtype` of its input and output.
    """
    here = [row for row in rows if isinstance(row.found, Ready)]
    jobs = min(len(here), os.cpu_count() or 1)
    threads = share(jobs)
    hearing = threading.Lock()
    logs.mkdir(parents=True, exist_ok=True)

    def take(row: Row) -> None:
        assert isinstance(row.found, Ready)
        log = logs / f"{row.name.replace(' ', '-')}.log"
        log.unlink(missing_ok=True)
        session = Session(row.found, "cpu", threads, log)
        sessions.append(session)
        for planned in plan(row.found.implementation, list(cases), (dtype,)):
            task = replace(planned, rounded_as=rounded_as)
            due = in_format(task.case, expected[task.case.id], task.format)
            asked = ask(session, task, due, constants)
            row.asked[task.case.id, task.check] = asked
            if asked.answers is not None:
                row.seen.see(task, due, asked.record, asked.answers)
            with hearing:
                told(row, asked.record)
        row.versions = session.versions
        session.close()

    sessions: list[Session] = []
    with ThreadPoolExecutor(max(jobs, 1)) as pool:
        try:
            for done in [pool.submit(take, row) for row in here]:
                done.result()
        except BaseException:
            for session in sessions:
                session.abort()
            raise
