"""Validates one ONNX file: looks into it, settles which layer it is to be, asks every runtime, says what it found."""

import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy.typing as npt
from pydantic import ValidationError

from encoder_conformance.errors import InputError
from encoder_conformance.golden.build import compute_all
from encoder_conformance.impl.interpreter import Ready
from encoder_conformance.judge.expected import Expected
from encoder_conformance.judge.outcome import EXPECTED, Outcome
from encoder_conformance.judge.tally import Tally
from encoder_conformance.results import Diagnosis
from encoder_conformance.spec.case import Case, CaseParameters
from encoder_conformance.spec.constants import constants
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.parameters import unlike
from encoder_conformance.validate.asks import Takes, asked
from encoder_conformance.validate.findings import Description, Finding, Roles
from encoder_conformance.validate.judged import answers, levels, loading
from encoder_conformance.validate.layers import compared_parameters, empty_rows, told_apart
from encoder_conformance.validate.quantised import relative_errors
from encoder_conformance.validate.reduction import cost, dtype_named, narrower, said_of_format, said_of_stored
from encoder_conformance.validate.results import RowResult, Validation, in_order
from encoder_conformance.validate.rows import FOLDER, Row, rows_of, showing, take_through
from encoder_conformance.validate.summaries import of_answers, of_cost, of_description
from encoder_conformance.wire.messages import Inspect
from encoder_conformance.worker.lifecycle import Failure
from encoder_conformance.worker.session import Session

Array = npt.NDArray[Any]
MaskMeaning = Literal["attend", "ignore", "additive"]

_QUANTISED = {"DynamicQuantizeLinear", "MatMulInteger", "QLinearMatMul", "QGemm", "DynamicQuantizeMatMul"}


@dataclass(frozen=True)
class Asked:
    """What the user says of the file; None and empty where it is to be found out."""

    model: Path
    layer: Layer | None
    parameters: Mapping[str, Array] | None
    mask: MaskMeaning | None
    runtimes: tuple[str, ...]
    pythons: Mapping[str, str]
    limit: float | None


@dataclass(frozen=True)
class Progress:
    """Is told what is being done, and how far it is: of how many, and one by one."""

    begin: Callable[[str, int], None]
    step: Callable[[str], None]


def validate(asked_for: Asked, out: Path, jobs: int, progress: Progress, folder: Path = FOLDER) -> Validation:
    """Everything that can be found of the file. It does not raise for anything that is wrong with the file itself."""
    rows = rows_of(asked_for.model, asked_for.pythons, asked_for.runtimes, folder)
    progress.begin("looking into the file", 1)
    description, held = _inspected(asked_for, rows, out)
    progress.step("looked into the file")
    findings = list(description.findings)
    layer = asked_for.layer or description.layer
    if layer is None or description.layer is None or description.roles is None or not _has_dtype(description):
        return _unjudged(asked_for, description, findings)
    if asked_for.layer is not None:
        if problem := unlike(asked_for.layer, {name: value.shape for name, value in held.items()}):
            message = f"the file's parameters are not those of {asked_for.layer.layer}: {problem}"
            findings.append(Finding(stage="layer", severity="error", message=message))
            return _unjudged(asked_for, description, findings)
        findings += told_apart(asked_for.layer, description)
        if asked_for.layer.attention.num_heads != description.layer.attention.num_heads:
            return _unjudged(asked_for, description, findings)
    findings += empty_rows(layer, description)
    if asked_for.parameters is not None:
        findings += compared_parameters(asked_for.parameters, held, description.stored())
    return _judged(asked_for, description, layer, held, findings, rows, out, jobs, progress)


def _inspected(asked_for: Asked, rows: Sequence[Row], out: Path) -> tuple[Description, dict[str, Array]]:
    """What the first worker that can be started says of the file."""
    here = [row for row in rows if isinstance(row.found, Ready)]
    if not here:
        found = rows[0].found
        assert not isinstance(found, Ready)
        raise InputError(f"no ONNX runtime can be started here ({found.reason})", hint=found.hint)
    logs = out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    assert isinstance(here[0].found, Ready)
    session = Session(here[0].found, "cpu", 1, logs / "inspect.log")
    try:
        answer = session.inspect(Inspect(path=str(asked_for.model.absolute()), mask=asked_for.mask))
    finally:
        session.close()
    if isinstance(answer, Failure):
        problem = (
            "it could not be looked into" if answer.outcome == Outcome.ERROR else "looking into it did not end well"
        )
        said = Finding(
            stage="file", severity="error", message=f"{problem}: {answer.message}", hint=f"{logs}/inspect.log"
        )
        return Description(findings=(said,)), {}
    try:
        return Description.model_validate_json(json.dumps(answer[0])), answer[1]  # strict as YAML
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise RuntimeError(f"impls/onnx_file describes the file in another way: {where}: {first['msg']}") from None


def _has_dtype(description: Description) -> bool:
    assert description.roles is not None
    return description.dtype_of(description.roles.output) in FORMATS


def _unjudged(asked_for: Asked, description: Description, findings: list[Finding]) -> Validation:
    return Validation(
        model=str(asked_for.model),
        judged=False,
        layer=description.layer,
        layer_from="inferred" if description.layer else None,
        dtype=None,
        rounded_as=None,
        description=description,
        rows=(),
        findings=in_order(findings),
        diagnoses=(),
        summaries=of_description(description),
    )


def _judged(
    asked_for: Asked,
    description: Description,
    layer: Layer,
    held: Mapping[str, Array],
    findings: list[Finding],
    rows: list[Row],
    out: Path,
    jobs: int,
    progress: Progress,
) -> Validation:
    assert description.roles is not None
    showing(rows, description.stages)
    dtype = dtype_named(description.dtype_of(description.roles.output))
    quantised = not _QUANTISED.isdisjoint(description.operators)
    rounded_as, stored = None if quantised else narrower(held, dtype), description.stored()
    stages = asked(layer, takes(description, description.roles), dtype, CaseParameters.of(held))
    cases = list({case.id: case for of_stage in stages.values() for case in of_stage}.values())
    expected = _expected(cases, jobs, progress)
    progress.begin("asking", len(cases) * len([row for row in rows if isinstance(row.found, Ready)]))
    take_through(
        rows, cases, dtype, rounded_as, expected, constants(), out / "logs",
        lambda row, record: progress.step(f"{row.name} {record.case}"),
    )  # fmt: skip
    findings += loading(rows)
    summaries = of_description(description)
    diagnoses: tuple[Diagnosis, ...] = ()
    if quantised:
        more, summaries["reduction"] = relative_errors(rows, stages["numbers"], expected, asked_for.limit)
        findings += more
        findings += (
            said
            for said in answers(stages, rows, description)
            if said.severity == "error" and ": fail: " not in said.message
        )
    else:
        findings += answers(stages, rows, description)
        more, summaries["levels"] = levels(rows, cases, expected, FORMATS[dtype], constants())
        findings += more
        diagnoses = tuple(_diagnoses(rows))
        if rounded_as or stored:
            said = said_of_format(rounded_as) if rounded_as else said_of_stored(stored, len(held), dtype)
            due, [plain, *_] = asked_for.parameters, stages["numbers"]
            summaries["reduction"] = said + (cost(plain, due) if due else "")
    summaries |= of_answers(stages, rows)
    results = tuple(_result(row) for row in rows)
    summaries["cost"] = of_cost(description, _seconds(results))
    return Validation(
        model=str(asked_for.model),
        judged=any(row.records and not row.lost for row in rows),
        layer=layer,
        layer_from="told" if asked_for.layer else "inferred",
        dtype=dtype,
        rounded_as="int8" if quantised else rounded_as,
        description=description,
        rows=results,
        findings=in_order(findings),
        diagnoses=diagnoses,
        summaries=summaries,
    )


def takes(description: Description, roles: Roles) -> Takes:
    batch, sequence = description.sizes()
    axes = {mask.axes for mask in roles.masks if mask.meaning}  # what hides nothing cannot be asked to hide
    attention = any(name.endswith("SS") for name in axes)
    return Takes(batch, sequence, bool(axes), attention, any("H" in name for name in axes))


def _expected(cases: list[Case], jobs: int, progress: Progress) -> dict[str, Expected]:
    progress.begin("computing what it should give", len(cases))
    found = {}
    with closing(compute_all(cases, constants(), jobs)) as computed:
        for case, expected in computed:
            found[case.id] = expected
            progress.step(f"computed {case.id}")
    return found


def _diagnoses(rows: Sequence[Row]) -> Iterator[Diagnosis]:
    """What explains the failures of the first row that has any: a file has one cause, whatever runs it."""
    for row in rows:
        if found := row.seen.diagnoses(row.name):
            yield found[0]
            return


def _seconds(results: Sequence[RowResult]) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {}
    for result in results:
        if result.seconds is not None:
            taken.setdefault(result.runtime, []).append(result.seconds)
    return taken


def _result(row: Row) -> RowResult:
    records = row.records
    tally = Tally.of(record.outcome for record in records)
    good = [record for record in records if record.outcome in EXPECTED]
    return RowResult(
        runtime=row.runtime,
        level=row.level,
        absent=None if isinstance(row.found, Ready) else row.found.reason,
        versions=dict(row.versions),
        passed=tally.as_expected,
        applicable=tally.applicable,
        rms=max((record.rms for record in records if record.rms is not None), default=None),
        max=max((record.max for record in records if record.max is not None), default=None),
        seconds=statistics.median(record.seconds for record in good) if good else None,
        records=tuple(records),
    )
