"""Validates an ONNX file: has it looked into and asked, and assesses each phase by the evidence."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from encoder_conformance.commands.validate.against_saved import is_saved
from encoder_conformance.commands.validate.asking import RuntimeAsking, answers_of_runtimes
from encoder_conformance.commands.validate.beside_source import beside_saved, beside_source
from encoder_conformance.commands.validate.covered import covered
from encoder_conformance.commands.validate.evidence import (
    Assessment,
    ValidationEvidence,
    ValidationRequest,
    distinct,
)
from encoder_conformance.commands.validate.examining import examined, reachable
from encoder_conformance.commands.validate.own_data import data_of
from encoder_conformance.commands.validate.phases import source
from encoder_conformance.commands.validate.phases.conformance import diagnoses
from encoder_conformance.commands.validate.phases.table import VALIDATION_PHASES
from encoder_conformance.commands.validate.results import RuntimeResult, Stated, Validation, WholeResult, in_order
from encoder_conformance.commands.validate.rounding.by_oracle import by_oracle
from encoder_conformance.commands.validate.rounding.measured import MadeFrom, rounding_of
from encoder_conformance.commands.validate.runtimes import (
    FOLDER,
    RuntimeRun,
    as_numbers,
    close_all,
    limit_time,
    runtime_runs,
)
from encoder_conformance.commands.validate.weights import is_sampled, sampled_note
from encoder_conformance.commands.validate.whole import WholeComparison
from encoder_conformance.implementation.interpreter import Ready
from encoder_conformance.platform.progress import Progress
from encoder_conformance.protocol.finding_kinds import FindingKind
from encoder_conformance.protocol.findings import Phase, PhaseFinding, plain
from encoder_conformance.subjects.opening import source_session


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


def _validated(
    request: ValidationRequest, runs: list[RuntimeRun], out: Path, jobs: int, progress: Progress, folder: Path
) -> Validation:
    progress.begin("looking into the file", 1)
    subject = examined(request, runs, out / "logs", folder)
    progress.step("looked into the file")
    if subject.integers and (ready := next((run for run in runs if isinstance(run.found, Ready)), None)):
        runs.append(as_numbers(request.model, request.pythons, ready, folder))
    asking = RuntimeAsking(out / "logs", jobs, progress)
    own = data_of(subject, runs)
    if request.against is None:
        measured = rounding_of(subject, runs, None, own, asking.logs, progress)
        answers = answers_of_runtimes(subject, runs, asking)
        return _assessed(ValidationEvidence(subject, answers, rounding=measured.rounding, not_rounded=measured.why_not))
    source = replace(request.against, pythons=request.pythons)
    if is_saved(source):
        return _assessed(beside_saved(source, subject, runs, asking))
    session = source_session(source, asking.logs / "source.log")
    with contextlib.ExitStack() as entered:
        if session is not None:
            entered.callback(session.close)
        return _assessed(beside_source(MadeFrom(source, session), subject, runs, own, asking))


def _assessed(given: ValidationEvidence) -> Validation:
    evidence = given if given.rounding else replace(given, rounding=by_oracle(given.subject, given.answers))
    subject, answers, description = evidence.subject, evidence.answers, evidence.description
    assessments = {phase.name: phase.assess(evidence) for phase in VALIDATION_PHASES}
    findings = [*description.findings, *(f for assessment in assessments.values() for f in assessment.findings)]
    if answers is not None and is_sampled(subject):
        findings.append(sampled_note(subject, answers.runs, distinct(answers.cases)))
    declared = source.declared(evidence, _without_layer(evidence, source.as_its_source(evidence, findings)))
    judged_findings = source.excused(evidence, declared)
    layer_from: Literal["told", "inferred"] | None = "inferred" if description.layer else None
    return Validation(
        model=str(subject.request.model),
        judged=bool(answers.working) if answers is not None else _is_compared(evidence),
        strict=subject.request.strict,
        deviations=subject.request.deviations,
        compared_with=_compared_with(subject.request),
        against=evidence.source.name if evidence.source else None,
        answers_compared=len(evidence.compared),
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
    as_layer: tuple[FindingKind, ...] = ("file-does-not-run", "encoder-does-not-run-alone")  # what runs nowhere is told
    hint = "no layer was judged in it: what was asked is asked of its outputs alone"
    return [
        each.model_copy(update={"severity": "warning", "hint": hint})
        if each.severity == "error" and (each.phase in unknown or each.kind in as_layer)
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
        not_compared=tuple(whole.why_not),
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
