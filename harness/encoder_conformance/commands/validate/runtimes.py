"""The runtimes and levels that a file is run in, each a worker of its own, and their answers to every case."""

import os
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from encoder_conformance.commands.validate.history import LARGE, SMALL, Dependence, ask_history
from encoder_conformance.commands.validate.results import RuntimeResult
from encoder_conformance.diagnosis.observations import Observations
from encoder_conformance.implementation.interpreter import Missing, Ready, resolve
from encoder_conformance.implementation.limitations import Declared
from encoder_conformance.implementation.manifest import read_implementation
from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.asking import JudgedAnswer
from encoder_conformance.judging.loop import judge
from encoder_conformance.judging.records import Record
from encoder_conformance.judging.tally import Tally
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.golden.narrow import in_format
from encoder_conformance.platform.paths import READERS
from encoder_conformance.platform.pool import ThreadPool, completed
from encoder_conformance.platform.processors import share
from encoder_conformance.protocol.description import FileDescription
from encoder_conformance.protocol.onnx_runtimes import ONNX_RUNTIMES, onnx_runtime
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.outcome import EXPECTED, Outcome
from encoder_conformance.subjects.plan import plan
from encoder_conformance.subjects.starting import new_session
from encoder_conformance.subjects.subject import Subject
from encoder_conformance.worker.limits import WorkerLimits
from encoder_conformance.worker.session import Session

FOLDER = READERS / "onnx_file"
RUNTIMES = tuple((runtime.name, level) for runtime in ONNX_RUNTIMES for level in runtime.levels)
"""Runtime and optimisation level, "" where a runtime has none to choose."""
DEPLOYED = ("onnxruntime", "all")
AS_NUMBERS = "integers as numbers"
_BY_REFERENCE = {"looked_into_by": "reference"}


@dataclass
class RuntimeRun:
    """One runtime at one level: whether it can be started here, and its answers by case and check.

    `as_numbers`: it is given the real numbers that the file's integers stand for, and rounds no activation.
    `dependence`: an answer that depends on what was asked before, and the path of a script that shows it. `session`:
    its worker, where that has looked into the file. `by_reference`: the worker does that without
    ONNX Runtime.
    """

    runtime: str
    level: str
    found: Ready | Missing
    as_numbers: bool = False
    answers: dict[tuple[str, str], JudgedAnswer] = field(default_factory=dict)
    seen: Observations = field(default_factory=Observations)
    versions: Mapping[str, str] = field(default_factory=dict)
    asked_history: bool = False
    dependence: Dependence | None = None
    history_script: str | None = None
    session: Session | None = None
    by_reference: bool = False

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.runtime, self.shown_level)))

    @property
    def shown_level(self) -> str:
        return ", ".join(filter(None, (self.level, AS_NUMBERS if self.as_numbers else "")))

    @property
    def records(self) -> list[Record]:
        return [answer.record for answer in self.answers.values()]

    @property
    def failure(self) -> str | None:
        """Why it answered nothing at all: the file does not load there."""
        records = self._asked
        lost = (Outcome.ERROR, Outcome.CRASH, Outcome.TIMEOUT, Outcome.NOT_RUN)
        if not records or any(record.outcome not in lost for record in records):
            return None
        return records[0].message

    @property
    def _asked(self) -> list[Record]:
        """The records of what was asked: an opt-out is no answer."""
        return [record for record in self.records if record.outcome != Outcome.UNSUPPORTED]

    @property
    def is_working(self) -> bool:
        return bool(self._asked) and self.failure is None

    @property
    def conforms(self) -> bool:
        return self.dependence is None and all(record.outcome in EXPECTED for record in self.records)

    @property
    def raises_alone(self) -> bool:
        """Whether all that is wrong with it is that it raises in some cases: no number of it is wrong."""
        wrong = {record.outcome for record in self.records} - EXPECTED
        return wrong == {Outcome.ERROR}

    @property
    def is_literal(self) -> bool:
        """Whether it follows a file to the letter."""
        return self.level == onnx_runtime(self.runtime).literal

    def lacks_operators_of(self, description: FileDescription, failure: str | None = None) -> bool:
        """Whether it does not load the file for it has not all of its operators: those that are ONNX Runtime's own, or
        of an opset for which this runtime has none. `failure`: what it ended with; default: in the cases of a layer."""
        foreign = self.runtime != "onnxruntime" and any("::" in operator for operator in description.operators)
        why = failure or self.failure
        return why is not None and (foreign or onnx_runtime(self.runtime).unknown in why)

    def state(self, **update: object) -> None:
        """From now on it is asked and judged with these fields of its manifest."""
        if isinstance(self.found, Ready):
            implementation = self.found.implementation.model_copy(update=update)
            self.found = replace(self.found, implementation=implementation)

    def result(self, relative_error: float | None = None) -> RuntimeResult:
        records = self.records
        tally = Tally.of(record.outcome for record in records)
        seconds = [record.seconds for record in records if record.outcome in EXPECTED]
        return RuntimeResult(
            runtime=self.runtime,
            level=self.shown_level,
            absent=None if isinstance(self.found, Ready) else self.found.reason,
            versions=dict(self.versions),
            passed=tally.as_expected,
            applicable=tally.applicable,
            rms=max((record.rms for record in records if record.rms is not None), default=None),
            max=max((record.max for record in records if record.max is not None), default=None),
            seconds=statistics.median(seconds) if seconds else None,
            relative_error=relative_error,
            records=tuple(records),
        )


def runtime_runs(
    model: Path, pythons: Mapping[str, str], only: Sequence[str], folder: Path = FOLDER
) -> list[RuntimeRun]:
    """Every runtime and level, or those of the runtimes in `only`. `folder` is that of the implementation which runs
    files. Its workers have another working directory, so they get the absolute path of `model`."""
    wanted = [where for where in RUNTIMES if not only or where[0] in only]
    return [RuntimeRun(*where, _found(model, pythons, where, folder)) for where in wanted]


def as_numbers(model: Path, pythons: Mapping[str, str], like: RuntimeRun, folder: Path = FOLDER) -> RuntimeRun:
    """A run of the numbers that the file's integers stand for, in the runtime of another and without optimisation, for
    ONNX Runtime's optimiser puts integers in again."""
    level = next(iter(onnx_runtime(like.runtime).levels))
    more = _BY_REFERENCE if like.by_reference else {}
    found = _found(model, pythons, (like.runtime, level), folder, integers="as_numbers", **more)
    return RuntimeRun(like.runtime, level, found, as_numbers=True, by_reference=like.by_reference)


def look_by_reference(runs: Sequence[RuntimeRun], model: Path, pythons: Mapping[str, str], folder: Path) -> None:
    """From now on the workers of these runs look into the file without ONNX Runtime, which ended one that did."""
    for run in runs:
        run.found, run.by_reference = _found(model, pythons, (run.runtime, run.level), folder, **_BY_REFERENCE), True


def _found(
    model: Path, pythons: Mapping[str, str], where: tuple[str, str], folder: Path, **more: str
) -> Ready | Missing:
    runtime, level = where
    chosen = {"model": str(model.absolute()), "runtime": runtime, **({"level": level} if level else {}), **more}
    return resolve(read_implementation(folder, chosen, str(model)), folder, dict(pythons))


def inspecting(runs: Sequence[RuntimeRun]) -> RuntimeRun | None:
    """The run whose worker looks into the file: what is deployed, if it is here, else the first that can be started."""
    ready = [run for run in runs if isinstance(run.found, Ready)]
    return next((run for run in ready if (run.runtime, run.level) == DEPLOYED), next(iter(ready), None))


def close_all(runs: Sequence[RuntimeRun]) -> None:
    """End the workers that have looked into the file."""
    for run in runs:
        if run.session is not None:
            run.session.close()


def prepare(runs: Sequence[RuntimeRun], stages: Collection[str], deviations: Collection[str]) -> None:
    """From now on ask each run for those stages only that the file has a graph value for, and judge it against the
    specification with these deviations (rules V-5, V-6). By name: a fused node may keep the sum of one layer
    inside, and not that of another."""
    reason = "It is stated to the validation."
    declared = tuple(Declared.model_construct(deviation=each, reason=reason, link="", when=None) for each in deviations)
    for run in runs:
        if isinstance(run.found, Ready):
            known = run.found.implementation.capabilities
            checks = tuple(check for check in known.checks if check != "stages" or stages)
            limited = known.model_copy(update={"stages": tuple(stages), "checks": checks})
            run.state(capabilities=limited, deviations=declared)


def limit_time(runs: Sequence[RuntimeRun], seconds: float | None) -> None:
    """From now on each run has so long to look into the file, to load it, and for each answer."""
    for run in runs:
        if isinstance(run.found, Ready) and seconds is not None:
            timeouts = run.found.implementation.timeouts
            run.state(timeouts=timeouts.model_copy(update={"build": seconds, "run": seconds}))


@dataclass(frozen=True)
class RuntimeQuestions:
    """The cases to ask and their expected results. `rounded_as` is the format that the file computes in, where it is
    narrower than the `dtype` of its input and output."""

    cases: Sequence[Case]
    expected: Mapping[str, Expected]
    dtype: DtypeName
    rounded_as: DtypeName | None


def ask_all(
    runs: Sequence[RuntimeRun],
    questions: RuntimeQuestions,
    logs: Path,
    report: Callable[[RuntimeRun, Record], None],
    limits: WorkerLimits,
) -> None:
    """Ask every run every case, as many workers side by side as there are processors, each within `limits`; `report`
    gets each record, from several threads."""
    ready = [run for run in runs if isinstance(run.found, Ready)]
    jobs = min(len(ready), os.cpu_count() or 1)
    sessions: list[Session] = []
    with ThreadPool(max(jobs, 1)) as pool:
        try:
            for run in ready:
                assert isinstance(run.found, Ready)
                log = logs / f"{run.name.replace(' ', '-').replace(',', '')}.log"
                sessions.append(run.session or new_session(run.found, log, share(jobs), limits=limits))
            answering = [pool.submit(_ask, *each, questions, report) for each in zip(ready, sessions, strict=True)]
            for done in completed(answering):
                done.result()
        except BaseException:
            for session in sessions:
                session.abort()
            raise


def _ask(
    run: RuntimeRun, session: Session, questions: RuntimeQuestions, report: Callable[[RuntimeRun, Record], None]
) -> None:
    assert isinstance(run.found, Ready)
    tasks = plan(run.found.implementation, list(questions.cases), (questions.dtype,))
    # Stages last: they are asked of another session of the runtime, and a worker holds one at a time of a large file.
    stages_last = sorted(tasks, key=lambda task: task.check == "stages")
    asked = [replace(task, rounded_as=questions.rounded_as) for task in stages_last]
    subject = Subject(run.name, session, run.found.implementation)
    for answer in judge(subject, asked, lambda case: questions.expected[case.id], run.seen):
        run.answers[answer.task.case.id, answer.task.check] = answer
        report(run, answer.record)
    _ask_history(run, session, questions)
    if run.dependence is not None:
        wrong = [answer.task for answer in run.answers.values() if answer.record.outcome not in EXPECTED]
        if _right_alone(subject, wrong, questions):
            run.dependence = replace(run.dependence, explains=len(wrong))
    run.versions = session.versions
    session.close()


def _ask_history(run: RuntimeRun, session: Session, questions: RuntimeQuestions) -> None:
    """Where it answered both sizes, and may keep anything."""
    assert isinstance(run.found, Ready)
    if not onnx_runtime(run.runtime).keeps_state or run.as_numbers or not run.is_working:
        return
    cases = [case for case in questions.cases if case.situation.situation in (SMALL, LARGE)]
    tasks = {
        task.case.situation.situation: replace(task, rounded_as=questions.rounded_as)
        for task in plan(run.found.implementation, cases, (questions.dtype,))
        if task.check == "output"
    }
    expected = {
        task.case.id: in_format(task.case, questions.expected[task.case.id], task.format) for task in tasks.values()
    }
    run.asked_history = {SMALL, LARGE} <= tasks.keys()
    run.dependence = ask_history(session, tasks, expected)


def _right_alone(subject: Subject, wrong: Sequence[Task], questions: RuntimeQuestions) -> bool:
    """Whether each of these, which was answered wrongly, is answered rightly as the first of all."""
    for task in wrong:
        subject.worker.forget()
        answers = judge(subject, [task], lambda case: questions.expected[case.id], Observations())
        if any(answer.record.outcome not in EXPECTED for answer in answers):
            return False
    return True
