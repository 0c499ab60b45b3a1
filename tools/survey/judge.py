"""Judges implementations in every configuration, as `conform run` does, and stores each row."""

import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import product
from pathlib import Path

from encoder_conformance.engine.run_options import RunOptions
from encoder_conformance.engine.runner import SuiteRun
from encoder_conformance.engine.scheduling import Assignment
from encoder_conformance.implementation.choices import named
from encoder_conformance.implementation.manifest import (
    Implementation,
    find_implementation,
    known_folders,
    read_implementation_manifest,
)
from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.records import Record
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.load import constants, load
from encoder_conformance.spec.outcome import EXPECTED, Outcome
from encoder_conformance.spec.reason import Kind
from encoder_conformance.subjects.plan import plan, select
from encoder_conformance.subjects.starting import require_ready
from tools.survey.results import WHATEVER_IS_DECLARED, DeviationCount, ReasonCount, SurveyRow, keep, kept


def configurations() -> Iterator[str]:
    """Every implementation with every combination of its choices, in the syntax of `conform run --impl`.

    Exporters to ONNX have their first configuration only; docs/onnx.md has the others. Implementations that run
    only if they are named are left out.
    """
    for folder in known_folders().values():
        implementation = read_implementation_manifest(folder)
        if not implementation.runs_by_name_alone:
            yield from _configurations_of(implementation)


def _configurations_of(implementation: Implementation) -> Iterator[str]:
    choices = {choice.name: choice.values for choice in implementation.choices}
    if not choices or "opset" in choices:
        yield implementation.name
        return
    for values in product(*choices.values()):
        yield named(implementation.name, dict(zip(choices, values, strict=True)))


def judge_waiting(
    path: Path, configurations: Iterable[str], anew: Collection[str], judged: Callable[[str], SurveyRow], jobs: int
) -> dict[str, SurveyRow]:
    """Judge the configurations without a row or with failures. Returns all rows by variant.

    The rows of the implementations `anew` are deleted first. Each row is stored when it is done, so that an interrupted
    survey can be resumed.
    """
    rows = {name: row for name, row in kept(path).items() if row.implementation not in anew}
    waiting = [variant for variant in configurations if variant not in rows or rows[variant].failed]
    pool = ThreadPoolExecutor(jobs)
    try:
        for number, row in enumerate(pool.map(judged, waiting), 1):
            rows[row.variant] = row
            keep(path, rows)
            print(f"{number} of {len(waiting)}: {row.variant}: {row.passed} of {row.applicable}", flush=True)
    finally:
        pool.shutdown(cancel_futures=True)
    return rows


@cache
def cases() -> list[Case]:
    """The required cases."""
    return select(load().cases, (), "required")


@cache
def expected() -> dict[str, Expected]:
    """Case id → golden of each required case."""
    return {case.id: read_golden(case, read_golden_manifest(), constants()) for case in cases()}


def judged(variant: str, dtypes: tuple[DtypeName, ...], interpreters: Mapping[str, str] | None = None) -> SurveyRow:
    """The row of a variant: every required case in these dtypes. `interpreters`: name → path, as of --python.

    Raises InputError if the variant cannot be started.
    """
    folder, implementation = find_implementation(variant)
    ready = require_ready(implementation, folder, interpreters or {}, "", variant)
    tasks = [task for task in plan(implementation, cases(), dtypes) if is_counted(task)]
    with tempfile.TemporaryDirectory() as logs:
        assignment, goldens = Assignment(ready, tasks), expected()
        run = SuiteRun([assignment], lambda case: goldens[case.id], RunOptions(jobs=1, threads=1), Path(logs))
        records = list(run.records())
        versions = run.session(implementation.name).versions
    judged_records = [record for record in records if record.outcome != Outcome.UNSUPPORTED]
    passed = [record for record in judged_records if record.outcome in EXPECTED]
    # The rms of an invariant that is broken as declared is a distance, and not an error.
    with_error = [record for record in passed if record.outcome == Outcome.PASS or record.check != "invariant"]
    return SurveyRow(
        variant=variant,
        implementation=implementation.folder_name,
        choices=dict(implementation.chosen),
        passed=len(passed),
        applicable=len(judged_records),
        rms=max((round(record.rms, 2) for record in with_error if record.rms is not None), default=None),
        unsupported=count_reasons(record for record in records if record.outcome == Outcome.UNSUPPORTED),
        failed=count_reasons(record for record in judged_records if record.outcome not in EXPECTED),
        deviates=count_deviations(records),
        versions=dict(versions),
    )


def is_counted(task: Task) -> bool:
    """Whether a task counts in a row. Those outside the declared capabilities, such as training, do not."""
    return task.opt_out is None or task.opt_out.kind not in ("capability", "default-layer")


def count_reasons(records: Iterable[Record]) -> list[ReasonCount]:
    """The records grouped by reason.

    Opt-outs by declared deviations have one text per kind. Failures that differ in numbers only are one reason.
    """
    cases_by_reason: dict[tuple[Kind | None, str], list[str]] = {}
    for record in records:
        failure_text = f"{record.outcome.value}: {unnumbered(record.message)}"
        text = record.message if record.kind == "declared" else WHATEVER_IS_DECLARED.get(record.kind, failure_text)
        cases_by_reason.setdefault((record.kind, text), []).append(record.case)
    return [
        ReasonCount(kind, text, len(cases), summarise_cases(cases)) for (kind, text), cases in cases_by_reason.items()
    ]


def count_deviations(records: Iterable[Record]) -> list[DeviationCount]:
    """The declared deviations that the records show, by deviation and dtype."""
    records_by_deviation: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        for deviation in record.deviations:
            records_by_deviation.setdefault((deviation, record.dtype), []).append(record)
    return [
        DeviationCount(
            deviation, dtype, len(group), summarise_cases([record.case for record in group]), _largest_distance(group)
        )
        for (deviation, dtype), group in records_by_deviation.items()
    ]


def _largest_distance(records: list[Record]) -> float | None:
    distances = [record.distance for record in records if record.distance is not None]
    return float(f"{max(distances):.2g}") if distances else None


def unnumbered(message: str) -> str:
    """The message with its numbers replaced, so that failures that differ in numbers only are equal."""
    return re.sub(r"\d[\d.e+-]*", "…", message)[:300]


def summarise_cases(case_ids: list[str]) -> str:
    """A few of the layers and of the situations of these cases."""
    parted = [case.split("/") for case in case_ids]
    layers, situations = (list(dict.fromkeys(names)) for names in zip(*parted, strict=True))
    return f"{_few(layers)} / {_few(situations)}"


def _few(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} more"
