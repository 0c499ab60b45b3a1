"""Validates an ONNX file: inspects it, asks every runtime, and assesses each phase by the evidence."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from encoder_conformance.blackbox.inputs import WholeCase
from encoder_conformance.commands.validate.against import compared_with, opened
from encoder_conformance.commands.validate.against_saved import compare_saved, is_saved, saved
from encoder_conformance.commands.validate.against_whole import compare_whole
from encoder_conformance.commands.validate.covered import covered
from encoder_conformance.commands.validate.evidence import (
    Answers,
    Assessment,
    ExaminedFile,
    ValidationEvidence,
    ValidationRequest,
    distinct,
)
from encoder_conformance.commands.validate.history import history_script
from encoder_conformance.commands.validate.own_data import data_of
from encoder_conformance.commands.validate.phases import source
from encoder_conformance.commands.validate.phases.conformance import diagnoses
from encoder_conformance.commands.validate.phases.table import VALIDATION_PHASES
from encoder_conformance.commands.validate.results import RuntimeResult, Stated, Validation, WholeResult, in_order
from encoder_conformance.commands.validate.rounding.by_oracle import by_oracle
from encoder_conformance.commands.validate.rounding.fixing import write_within_limit
from encoder_conformance.commands.validate.rounding.measured import NOT_OF_INTEGERS, MadeFrom, rounding_of
from encoder_conformance.commands.validate.runtimes import (
    FOLDER,
    RuntimeQuestions,
    RuntimeRun,
    as_numbers,
    ask_all,
    close_all,
    inspecting,
    limit_time,
    prepare,
    runtime_runs,
)
from encoder_conformance.commands.validate.weights import (
    BATCH,
    SEQUENCE,
    expected_of_sample,
    is_sampled,
    sample,
    sampled_note,
    sampled_runs,
)
from encoder_conformance.commands.validate.whole import WholeComparison
from encoder_conformance.implementation.interpreter import Ready
from encoder_conformance.judging.records import Record
from encoder_conformance.oracle.golden.build import expectations
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.memory import give_freed_memory_back
from encoder_conformance.platform.progress import Progress
from encoder_conformance.protocol.description import FileDescription
from encoder_conformance.protocol.findings import Phase, PhaseFinding, plain
from encoder_conformance.protocol.messages import Inspect
from encoder_conformance.protocol.onnx_runtimes import onnx_runtime
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.case_parameters import CaseParameters
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.situation import Situation
from encoder_conformance.subjects.cases import InputLimits, file_cases
from encoder_conformance.subjects.opening import inspected, source_session
from encoder_conformance.subjects.starting import new_session
from encoder_conformance.subjects.subject import SubjectRequest
from encoder_conformance.worker.failure import Failure


def validate(request: ValidationRequest, out: Path, jobs: int, progress: Progress, folder: Path = FOLDER) -> Validation:
    """All findings. A problem of the file itself raises nothing. Logs go to `out`/logs."""
    named, request = request.model, replace(request, model=reachable(request.model, out))
    runs = runtime_runs(request.model, request.pythons, request.runtimes, folder)
    limit_time(runs, request.seconds)
    try:
        found = _validated(request, runs, out, jobs, progress, folder)
    finally:
        close_all(runs)
    return found.model_copy(update={"model": plain(str(named))})


def reachable(model: Path, out: Path) -> Path:
    """The path, or a link to it where its name is not UTF-8: no message can carry that."""
    try:
        str(model.absolute()).encode()
    except UnicodeEncodeError:
        link = out.absolute() / "model.onnx"
        link.unlink(missing_ok=True)
        link.symlink_to(model.absolute())
        return link
    return model


def _validated(
    request: ValidationRequest, runs: list[RuntimeRun], out: Path, jobs: int, progress: Progress, folder: Path
) -> Validation:
    progress.begin("looking into the file", 1)
    subject = _inspected(request, runs, out / "logs")
    progress.step("looked into the file")
    if subject.integers and (ready := next((run for run in runs if isinstance(run.found, Ready)), None)):
        runs.append(as_numbers(request.model, request.pythons, ready, folder))
    logs = out / "logs"
    own = data_of(subject, runs)
    if request.against is None:
        measured = rounding_of(subject, runs, None, own, logs, progress)
        answers = _answers(subject, runs, logs, jobs, progress)
        return _assessed(ValidationEvidence(subject, answers, rounding=measured.rounding, not_rounded=measured.why_not))
    source = replace(request.against, pythons=request.pythons)
    if is_saved(source):
        return _assessed(_against_saved(source, subject, runs, logs, jobs, progress))
    session = source_session(source, logs / "source.log")
    with contextlib.ExitStack() as entered:
        if session is not None:
            entered.callback(session.close)
        return _assessed(_against(MadeFrom(source, session), subject, runs, own, _Asking(logs, jobs, progress)))


@dataclass(frozen=True)
class _Asking:
    """How is asked: where logs go, with how many processes the oracle computes, and where progress is shown."""

    logs: Path
    jobs: int
    progress: Progress


def _against(
    made_from: MadeFrom,
    subject: ExaminedFile,
    runs: list[RuntimeRun],
    own: Sequence[WholeCase],
    asking: _Asking,
) -> ValidationEvidence:
    """Beside its source: as two black boxes, and, where a layer is read off both, stage by stage."""
    source, session = made_from.request, made_from.session
    logs, jobs, progress = asking.logs, asking.jobs, asking.progress
    whole = compare_whole((source, session), subject, runs, logs, progress, own)
    if not subject.is_understood:
        of_file = rounding_of(subject, runs, made_from, own, logs, progress)
        return ValidationEvidence(subject, None, whole=whole, rounding=of_file.rounding, not_rounded=of_file.why_not)
    with contextlib.ExitStack() as entered:
        try:
            held, origin = entered.enter_context(opened(source, subject, session, progress))
        except InputError as problem:
            measured = rounding_of(subject, runs, made_from, own, logs, progress)
            if not whole.verdicts and measured.rounding is None:
                why = "; ".join((problem.problem, *whole.not_compared))
                raise InputError(why, where=problem.where, hint=problem.hint) from None
            answers = _answers(subject, runs, logs, jobs, progress)
            judged = ValidationEvidence(subject, answers, whole=whole, unopened=problem.problem)
            return replace(judged, rounding=measured.rounding, not_rounded=measured.why_not)
        part = replace(source, at=origin.at)
        if not whole.verdicts and origin.at != source.at:  # the part that was exported, by its parameters
            of_part = compare_whole((part, session), subject, runs, logs, progress, own)
            whole = of_part if of_part.verdicts else whole
        of = MadeFrom(part, session, origin.parameters)
        measured = rounding_of(subject, runs, of, own, logs, progress)
        answers = _answers(held, runs, logs, jobs, progress)
        compared = compared_with(origin, held, answers, progress) if answers else ()
        judged = ValidationEvidence(held, answers, origin, compared, whole)
        return replace(judged, rounding=measured.rounding, not_rounded=measured.why_not)


def _against_saved(
    source: SubjectRequest, subject: ExaminedFile, runs: list[RuntimeRun], logs: Path, jobs: int, progress: Progress
) -> ValidationEvidence:
    """Beside outputs that were saved: in σ, or as far as its rounding takes a file of integers from them."""
    where, measured, whole = f"--against {source.target}", NOT_OF_INTEGERS, None
    if subject.integers and subject.description.whole is not None:
        case = saved(source.folder / source.target, subject.description.whole, where)
        measured = rounding_of(subject, runs, MadeFrom(source, saved=case), (), logs, progress)
        if measured.rounding is None:
            raise InputError(measured.why_not, where=where)
    else:
        whole = compare_saved(source, subject, runs, logs, progress)
    answers = _answers(subject, runs, logs, jobs, progress) if subject.is_understood else None
    return ValidationEvidence(
        subject, answers, whole=whole, unopened=f"{source.target} has none", rounding=measured.rounding
    )


def fixed(request: ValidationRequest, out: Path, progress: Progress, folder: Path = FOLDER) -> tuple[str, ...]:
    """Writes `request.fix`, the file with what is mechanical mended, and with what of its integers is left in float
    that keep it from its limit. What that was; () where nothing was written."""
    new = request.fix
    assert new is not None
    request = replace(request, model=reachable(request.model, out))
    logs = out / "logs"
    runs = runtime_runs(request.model, request.pythons, request.runtimes, folder)
    try:
        file = _inspected(request, runs, logs)
        done = file.description.fixed
        if file.integers and request.limit is not None:
            mended = replace(file, request=replace(file.request, model=new)) if done else file
            left = write_within_limit(mended, [run for run in runs if run.session is not None], new, logs, progress)
            done = (*done, f"left in float are {', '.join(left)}") if left else done
        return done
    finally:
        close_all(runs)


def _inspected(request: ValidationRequest, runs: Sequence[RuntimeRun], logs: Path) -> ExaminedFile:
    """The file as a worker describes it, which stays: it knows the file, and is asked for its run."""
    run = inspecting(runs)
    if run is None:
        found = runs[0].found
        assert not isinstance(found, Ready)
        raise InputError(f"no ONNX runtime can be started here ({found.reason})", hint=found.hint)
    assert isinstance(run.found, Ready)
    run.session = new_session(run.found, logs / "inspect.log", limits=request.limits)
    path, new = str(request.model.absolute()), str(request.fix.absolute()) if request.fix else None
    asked = Inspect(path=path, mask=request.mask, fix=new, most_nodes=request.most_nodes)
    answer = inspected(run.session, asked)
    if isinstance(answer, Failure):
        raised = answer.outcome == Outcome.ERROR
        problem = "it could not be looked into" if raised else "looking into it did not end well"
        message = f"{problem}: {answer.message}"
        finding = PhaseFinding(phase="file", severity="error", message=message, hint=str(run.session.log))
        return ExaminedFile(request, FileDescription(findings=(finding,)), {})
    return ExaminedFile(request, *answer)


def _answers(
    subject: ExaminedFile, runs: Sequence[RuntimeRun], logs: Path, jobs: int, progress: Progress
) -> Answers | None:
    """Ask every runtime the cases of each phase; None where the file cannot be judged."""
    if not subject.can_be_judged:
        return None
    cases, sampled = _cases(subject), is_sampled(subject)
    if sampled and not subject.request.runtimes:
        runs = sampled_runs(runs)
    prepare(runs, subject.description.stages, subject.request.deviations)
    every_case = distinct(cases)
    expected = expected_of_sample(every_case) if sampled else expectations(every_case, jobs, progress, subject.format)
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
    sampled = is_sampled(subject)
    at_most = (BATCH, SEQUENCE) if sampled else None
    cases: dict[Phase, list[Case]] = {}
    asked: Iterator[Situation]
    for phase in VALIDATION_PHASES:
        if phase.situations is not None:
            asked = (each for each in phase.situations(limits) if each.holds_for(subject.layer))
            asked = sample(asked) if sampled else asked
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


def _assessed(given: ValidationEvidence) -> Validation:
    evidence = given if given.rounding else replace(given, rounding=by_oracle(given.subject, given.answers))
    subject, answers, description = evidence.subject, evidence.answers, evidence.description
    assessments = {phase.name: phase.assess(evidence) for phase in VALIDATION_PHASES}
    findings = [*description.findings, *(f for assessment in assessments.values() for f in assessment.findings)]
    if answers is not None and is_sampled(subject):
        findings.append(sampled_note(subject, answers.runs, distinct(answers.cases)))
    declared = source.declared(evidence, _without_layer(evidence, findings))
    judged_findings = source.excused(evidence, declared)
    layer_from: Literal["told", "inferred"] | None = "inferred" if description.layer else None
    return Validation(
        model=str(subject.request.model),
        judged=bool(answers.working) if answers is not None else _is_compared(evidence),
        strict=subject.request.strict,
        deviations=subject.request.deviations,
        compared_with=_compared_with(subject.request),
        against=evidence.source.name if evidence.source else None,
        whole=None if evidence.whole is None else _whole_result(evidence.whole),
        rounding=evidence.rounding,
        layer=subject.layer if answers else description.layer,
        layer_from="told" if answers and subject.request.layer else layer_from,
        dtype=subject.dtype if answers else None,
        rounded_as=None if not answers else subject.integers or subject.rounded_as,
        description=description,
        runtimes=_results(evidence),
        wrong_runtimes=evidence.wrong_runtimes,
        source_names=dict(evidence.source.own_names) if evidence.source else {},
        findings=in_order(judged_findings),
        excused=judged_findings != declared,
        diagnoses=diagnoses(evidence),
        summaries={phase: assessment.summary for phase, assessment in assessments.items() if assessment.summary},
        not_asked=_not_asked(assessments, findings),
        covered=covered(evidence),
    )


def _is_compared(evidence: ValidationEvidence) -> bool:
    """Whether its outputs say what it is worth, whatever layer it is: beside its source, in σ or within a limit."""
    rounding = evidence.rounding
    is_held = rounding is not None and rounding.made_from and evidence.subject.request.limit is not None
    return is_held or (evidence.whole is not None and bool(evidence.whole.verdicts))


def _without_layer(evidence: ValidationEvidence, findings: Sequence[PhaseFinding]) -> list[PhaseFinding]:
    """The findings, in which a layer that nobody knows is a warning, where the whole file was compared all the same."""
    if evidence.answers is not None or not _is_compared(evidence):
        return list(findings)
    unknown: tuple[Phase, ...] = ("interface", "layer", "dimensions")
    hint = "no layer was judged in it: what was asked is asked of its outputs alone"
    return [
        each.model_copy(update={"severity": "warning", "hint": hint})
        if each.severity == "error" and each.phase in unknown
        else each
        for each in findings
    ]


def _whole_result(whole: WholeComparison) -> WholeResult:
    return WholeResult(
        source=whole.source,
        cases=tuple(case.name for case in whole.cases),
        outputs=dict(whole.outputs),
        agrees=whole.agrees,
        rms=max((each.rms for each in whole.verdicts if each.rms is not None), default=None),
        not_compared=tuple(whole.not_compared),
    )


def _not_asked(assessments: Mapping[Phase, Assessment], findings: Iterable[PhaseFinding]) -> dict[Phase, str]:
    """Phase → why nothing was asked in it; also of one that has neither a result nor a finding to show."""
    found = {finding.phase for finding in findings}
    return {
        phase: assessment.not_asked or "the file did not get so far"
        for phase, assessment in assessments.items()
        if assessment.not_asked or (not assessment.summary and phase not in found)
    }


def _results(evidence: ValidationEvidence) -> tuple[RuntimeResult, ...]:
    if evidence.answers is None:
        return ()
    errors = evidence.rounding.errors() if evidence.rounding is not None else {}
    relative = {name: None if np.isnan(error) else error for name, (error, _) in errors.items()}  # JSON has no NaN
    return tuple(run.result(relative.get(run.name)) for run in evidence.answers.runs)


def _compared_with(request: ValidationRequest) -> tuple[Stated, ...]:
    stated: dict[Stated, object] = {
        "layer": request.layer, "parameters": request.parameters, "source": request.against
    }  # fmt: skip
    return tuple(source for source, value in stated.items() if value is not None)
