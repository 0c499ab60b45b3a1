"""The runtimes and levels that a file is run in, each a worker of its own, and their answers to every case."""

import os
import statistics
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
from encoder_conformance.judge.outcome import EXPECTED, Outcome
from encoder_conformance.judge.tally import Tally
from encoder_conformance.paths import IMPLS
from encoder_conformance.plan import plan
from encoder_conformance.results import Record
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import constants
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.stages import kind_of
from encoder_conformance.threads import share
from encoder_conformance.validate.results import RuntimeResult
from encoder_conformance.worker.session import Session

FOLDER = IMPLS / "onnx_file"
RUNTIMES = (
    ("onnxruntime", "disable"),
    ("onnxruntime", "basic"),
    ("onnxruntime", "extended"),
    ("onnxruntime", "all"),
    ("reference", ""),
    ("openvino", ""),
)
"""Runtime and optimisation level, "" where a runtime has none to choose."""


@dataclass
class RuntimeRun:
    """One runtime at one level: whether it can be started here, and its answers by case and check."""

    runtime: str
    level: str
    found: Ready | Missing
    answers: dict[tuple[str, str], Asked] = field(default_factory=dict)
    seen: Observations = field(default_factory=Observations)
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.runtime} {self.level}".rstrip()

    @property
    def records(self) -> list[Record]:
        return [answer.record for answer in self.answers.values()]

    @property
    def failure(self) -> str | None:
        """Why it answered nothing at all: the file does not load there."""
        records = self.records
        if not records or any(r.outcome not in (Outcome.ERROR, Outcome.CRASH, Outcome.TIMEOUT) for r in records):
            return None
        return records[0].message

    @property
    def is_working(self) -> bool:
        return bool(self.answers) and self.failure is None

    def result(self) -> RuntimeResult:
        records = self.records
        tally = Tally.of(record.outcome for record in records)
        seconds = [record.seconds for record in records if record.outcome in EXPECTED]
        return RuntimeResult(
            runtime=self.runtime,
            level=self.level,
            absent=None if isinstance(self.found, Ready) else self.found.reason,
            versions=dict(self.versions),
            passed=tally.as_expected,
            applicable=tally.applicable,
            rms=max((record.rms for record in records if record.rms is not None), default=None),
            max=max((record.max for record in records if record.max is not None), default=None),
            seconds=statistics.median(seconds) if seconds else None,
            records=tuple(records),
        )


def runtime_runs(
    model: Path, pythons: Mapping[str, str], only: Sequence[str], folder: Path = FOLDER
) -> list[RuntimeRun]:
    """Every runtime and level, or those of the runtimes in `only`. `folder` is that of the implementation which runs
    files. Its workers have another working directory, so they get the absolute path of `model`."""
    runs = []
    for runtime, level in RUNTIMES:
        if only and runtime not in only:
            continue
        chosen = {"model": str(model.absolute()), "runtime": runtime, **({"level": level} if level else {})}
        implementation = read_implementation(folder, chosen, str(model))
        runs.append(RuntimeRun(runtime, level, resolve(implementation, folder, dict(pythons))))
    return runs


def limit_stages(runs: Sequence[RuntimeRun], stages: Collection[str]) -> None:
    """From now on ask each run for those stages only that the file has a graph value for."""
    kinds = tuple(sorted({kind_of(stage) for stage in stages}))
    for run in runs:
        if isinstance(run.found, Ready):
            known = run.found.implementation
            checks = tuple(check for check in known.capabilities.checks if check != "stages" or kinds)
            capabilities = known.capabilities.model_copy(update={"stages": kinds, "checks": checks})
            run.found = replace(run.found, implementation=known.model_copy(update={"capabilities": capabilities}))


@dataclass(frozen=True)
class Questions:
    """The cases to ask and their expected results. `rounded_as` is the format that the file computes in, where it is
    narrower than the `dtype` of its input and output."""

    cases: Sequence[Case]
    expected: Mapping[str, Expected]
    dtype: DtypeName
    rounded_as: DtypeName | None


def ask_all(
    runs: Sequence[RuntimeRun], questions: Questions, logs: Path, report: Callable[[RuntimeRun, Record], None]
) -> None:
    """Ask every run every case, as many workers side by side as there are processors; `report` gets each record."""
    ready = [run for run in runs if isinstance(run.found, Ready)]
    jobs = min(len(ready), os.cpu_count() or 1)
    reporting = threading.Lock()
    logs.mkdir(parents=True, exist_ok=True)

    def report_alone(run: RuntimeRun, record: Record) -> None:
        with reporting:
            report(run, record)

    sessions: list[Session] = []
    with ThreadPoolExecutor(max(jobs, 1)) as pool:
        try:
            for run in ready:
                assert isinstance(run.found, Ready)
                log = logs / f"{run.name.replace(' ', '-')}.log"
                log.unlink(missing_ok=True)
                sessions.append(Session(run.found, "cpu", share(jobs), log))
            answering = [
                pool.submit(_ask, *each, questions, report_alone) for each in zip(ready, sessions, strict=True)
            ]
            for done in answering:
                done.result()
        except BaseException:
            for session in sessions:
                session.abort()
            raise


def _ask(run: RuntimeRun, session: Session, questions: Questions, report: Callable[[RuntimeRun, Record], None]) -> None:
    assert isinstance(run.found, Ready)
    for planned in plan(run.found.implementation, list(questions.cases), (questions.dtype,)):
        task = replace(planned, rounded_as=questions.rounded_as)
        expected = in_format(task.case, questions.expected[task.case.id], task.format)
        answer = ask(session, task, expected, constants())
        run.answers[task.case.id, task.check] = answer
        if answer.answers is not None:
            run.seen.see(task, expected, answer.record, answer.answers)
        report(run, answer.record)
    run.versions = session.versions
    session.close()
