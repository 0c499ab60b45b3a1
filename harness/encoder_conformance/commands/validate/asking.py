"""Asks every runtime the cases of each phase, beside what the oracle expects."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from encoder_conformance.commands.validate.evidence import Answers, ExaminedFile, distinct
from encoder_conformance.commands.validate.history import history_script
from encoder_conformance.commands.validate.phases.table import VALIDATION_PHASES
from encoder_conformance.commands.validate.runtimes import RuntimeQuestions, RuntimeRun, ask_all, prepare
from encoder_conformance.commands.validate.weights import (
    BATCH,
    SEQUENCE,
    expected_of_sample,
    is_long,
    is_sampled,
    sample,
    sampled_runs,
)
from encoder_conformance.implementation.interpreter import Ready
from encoder_conformance.judging.records import Record
from encoder_conformance.oracle.golden.build import expectations
from encoder_conformance.platform.memory import give_freed_memory_back
from encoder_conformance.platform.progress import Progress
from encoder_conformance.protocol.findings import Phase
from encoder_conformance.protocol.onnx_runtimes import onnx_runtime
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.case_parameters import CaseParameters
from encoder_conformance.spec.situation import Situation
from encoder_conformance.subjects.cases import InputLimits, file_cases


@dataclass(frozen=True)
class RuntimeAsking:
    """How is asked: where logs go, with how many processes the oracle computes, and where progress is shown."""

    logs: Path
    jobs: int
    progress: Progress


def answers_of_runtimes(subject: ExaminedFile, runs: Sequence[RuntimeRun], asking: RuntimeAsking) -> Answers | None:
    """Ask every runtime the cases of each phase; None where the file cannot be judged."""
    if not subject.can_be_judged:
        return None
    logs, progress = asking.logs, asking.progress
    cases, sampled = _cases(subject), is_sampled(subject)
    if sampled and not subject.request.runtimes:
        runs = sampled_runs(runs)
    prepare(runs, subject.description.stages, subject.request.deviations)
    every_case = distinct(cases)
    expected = (
        expected_of_sample(every_case) if sampled else expectations(every_case, asking.jobs, progress, subject.format)
    )
    if sampled:
        give_freed_memory_back()
    progress.begin("asking", len(every_case) * sum(isinstance(run.found, Ready) for run in runs))
    questions = RuntimeQuestions(every_case, expected, subject.dtype, subject.rounded_as)

    def report(run: RuntimeRun, record: Record) -> None:
        progress.step(f"{run.name} {record.case}")
        if sampled:  # what judging took, in pieces as large as a weight
            give_freed_memory_back()

    ask_all(runs, questions, logs, report, subject.request.limits)
    for run in runs:
        run.history_script = _history_script(run, subject, logs)
    return Answers(cases, expected, runs)


def _cases(subject: ExaminedFile) -> dict[Phase, list[Case]]:
    """The cases of each phase that asks any."""
    assert subject.layer is not None
    limits, held = InputLimits.of_file(subject.description), CaseParameters.of(subject.parameters)
    sampled, long = is_sampled(subject), is_long(subject)
    at_most = (1 if long else BATCH, SEQUENCE) if sampled else None
    cases: dict[Phase, list[Case]] = {}
    asked: Iterator[Situation]
    for phase in VALIDATION_PHASES:
        if phase.situations is not None:
            asked = (each for each in phase.situations(limits) if each.holds_for(subject.layer))
            asked = sample(asked, is_long=long) if sampled else asked
            cases[phase.name] = list(file_cases(asked, limits, subject.layer, subject.format, held, at_most))
    return cases


def _history_script(run: RuntimeRun, subject: ExaminedFile, logs: Path) -> str | None:
    """Writes the script that shows a run's dependence on what was asked before; its path."""
    if run.dependence is None:
        return None
    model, runtime = subject.request.model.absolute(), onnx_runtime(run.runtime)
    script = history_script(model, run.name, runtime, run.level, subject.description, run.dependence)
    if script is None:
        return None
    path = logs / f"history-{run.name.replace(' ', '-')}.py"
    path.write_text(script, encoding="utf-8")
    return str(path)
