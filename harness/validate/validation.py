"""Validates an ONNX file: inspects it, asks every runtime, and assesses each phase by the evidence."""

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from encoder_conformance.errors import InputError
from encoder_conformance.golden.build import compute_all
from encoder_conformance.impl.interpreter import Ready
from encoder_conformance.judge.expected import Expected
from encoder_conformance.judge.outcome import Outcome
from encoder_conformance.spec.case import Case, CaseParameters
from encoder_conformance.spec.constants import constants
from encoder_conformance.spec.situation import Situation
from encoder_conformance.validate.cases import InputLimits, cases_of
from encoder_conformance.validate.evidence import Answers, Assessment, Evidence, Subject, distinct
from encoder_conformance.validate.findings import Description, Finding, Phase
from encoder_conformance.validate.phases import (
    checker,
    cost,
    dimensions,
    file,
    interface,
    layer,
    levels,
    loads,
    masks,
    numbers,
    operators,
    properties,
    reduction,
    shapes,
)
from encoder_conformance.validate.request import Progress, ValidationRequest
from encoder_conformance.validate.results import Validation, in_order
from encoder_conformance.validate.runtimes import FOLDER, Questions, RuntimeRun, ask_all, limit_stages, runtime_runs
from encoder_conformance.wire.messages import Inspect
from encoder_conformance.worker.lifecycle import Failure
from encoder_conformance.worker.session import Session

_ASSESSMENTS: dict[Phase, Callable[[Evidence], Assessment]] = {
    "file": file.assess,
    "checker": checker.assess,
    "operators": operators.assess,
    "interface": interface.assess,
    "dimensions": dimensions.assess,
    "loads": loads.assess,
    "layer": layer.assess,
    "shapes": shapes.assess,
    "masks": masks.assess,
    "numbers": numbers.assess,
    "levels": levels.assess,
    "properties": properties.assess,
    "reduction": reduction.assess,
    "cost": cost.assess,
}
_SITUATIONS: dict[Phase, Callable[[InputLimits], Iterable[Situation]]] = {
    "shapes": shapes.situations,
    "masks": masks.situations,
    "numbers": numbers.situations,
    "properties": properties.situations,
}


def validate(request: ValidationRequest, out: Path, jobs: int, progress: Progress, folder: Path = FOLDER) -> Validation:
    """All findings. A problem of the file itself raises nothing. Logs go to `out`/logs."""
    runs = runtime_runs(request.model, request.pythons, request.runtimes, folder)
    progress.begin("looking into the file", 1)
    subject = _inspected(request, runs, out / "logs")
    progress.step("looked into the file")
    answers = _answers(subject, runs, out / "logs", jobs, progress) if subject.can_be_judged else None
    return _assessed(Evidence(subject, answers))


def _inspected(request: ValidationRequest, runs: Sequence[RuntimeRun], logs: Path) -> Subject:
    """The file as the first worker that can be started describes it."""
    ready = [run.found for run in runs if isinstance(run.found, Ready)]
    if not ready:
        found = runs[0].found
        assert not isinstance(found, Ready)
        raise InputError(f"no ONNX runtime can be started here ({found.reason})", hint=found.hint)
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / "inspect.log"
    session = Session(ready[0], "cpu", 1, log)
    try:
        answer = session.inspect(Inspect(path=str(request.model.absolute()), mask=request.mask))
    finally:
        session.close()
    if isinstance(answer, Failure):
        raised = answer.outcome == Outcome.ERROR
        problem = "it could not be looked into" if raised else "looking into it did not end well"
        message = f"{problem}: {answer.message}"
        finding = Finding(phase="file", severity="error", message=message, hint=str(log))
        return Subject(request, Description(findings=(finding,)), {})
    try:
        description = Description.model_validate_json(json.dumps(answer[0]))  # strict as YAML
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise RuntimeError(f"impls/onnx_file describes the file in another way: {where}: {first['msg']}") from None
    return Subject(request, description, answer[1])


def _answers(subject: Subject, runs: Sequence[RuntimeRun], logs: Path, jobs: int, progress: Progress) -> Answers:
    """Ask every runtime the cases of each phase."""
    assert subject.layer is not None
    limits, held = InputLimits.of(subject.description), CaseParameters.of(subject.parameters)
    cases = {
        phase: list(cases_of(situations(limits), limits, subject.layer, subject.dtype, held))
        for phase, situations in _SITUATIONS.items()
    }
    limit_stages(runs, subject.description.stages)
    every_case = distinct(cases)
    expected = _expected(every_case, jobs, progress)
    answers = Answers(cases, expected, runs)
    progress.begin("asking", len(every_case) * sum(isinstance(run.found, Ready) for run in runs))
    questions = Questions(every_case, expected, subject.dtype, subject.rounded_as)
    ask_all(runs, questions, logs, lambda run, record: progress.step(f"{run.name} {record.case}"))
    return answers


def _expected(cases: list[Case], jobs: int, progress: Progress) -> dict[str, Expected]:
    progress.begin("computing what it should give", len(cases))
    expected = {}
    with closing(compute_all(cases, constants(), jobs)) as computed:
        for case, result in computed:
            expected[case.id] = result
            progress.step(f"computed {case.id}")
    return expected


def _assessed(evidence: Evidence) -> Validation:
    subject, answers, description = evidence.subject, evidence.answers, evidence.description
    assessments = {phase: assess(evidence) for phase, assess in _ASSESSMENTS.items()}
    findings = [*description.findings, *(f for assessment in assessments.values() for f in assessment.findings)]
    layer_from: Literal["told", "inferred"] | None = "inferred" if description.layer else None
    return Validation(
        model=str(subject.request.model),
        judged=answers is not None and bool(answers.working),
        layer=subject.layer if answers else description.layer,
        layer_from="told" if answers and subject.request.layer else layer_from,
        dtype=subject.dtype if answers else None,
        rounded_as=None if not answers else "int8" if subject.is_quantised else subject.rounded_as,
        description=description,
        runtimes=tuple(run.result() for run in answers.runs) if answers else (),
        findings=in_order(findings),
        diagnoses=numbers.diagnoses(evidence),
        summaries={phase: assessment.summary for phase, assessment in assessments.items() if assessment.summary},
    )
