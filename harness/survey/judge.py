"""Judges implementations in every configuration, through the parts of `conform run`, and keeps each row."""

import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import product
from pathlib import Path

from encoder_conformance.errors import InputError
from encoder_conformance.golden.store import read_golden, read_golden_manifest
from encoder_conformance.impl.choices import named
from encoder_conformance.impl.interpreter import Missing, resolve
from encoder_conformance.impl.manifest import (
    Implementation,
    find_implementation,
    known_folders,
    read_implementation_manifest,
)
from encoder_conformance.judge.expected import Expected
from encoder_conformance.judge.outcome import EXPECTED, Outcome
from encoder_conformance.plan import plan, select
from encoder_conformance.reason import Kind
from encoder_conformance.results import Record
from encoder_conformance.runner import Run
from encoder_conformance.scheduling import Assignment
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import constants
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.load import load
from encoder_conformance.survey.results import WHATEVER_IS_DECLARED, ReasonCount, Row, Seen, keep, kept
from encoder_conformance.task import Task


def configurations() -> Iterator[str]:
    """Every implementation, in every way that it may be told to run, as `conform run --impl` takes it.

    Of an exporter to ONNX the first way alone: docs/onnx.md has the others. What has to be told has none of its own.
    """
    for folder in known_folders().values():
        implementation = read_implementation_manifest(folder)
        if not implementation.requires_choice:
            yield from _of(implementation)


def _of(implementation: Implementation) -> Iterator[str]:
    choices = {choice.name: choice.values for choice in implementation.choices}
    if not choices or "opset" in choices:
        yield implementation.name
        return
    for values in product(*choices.values()):
        yield named(implementation.name, dict(zip(choices, values, strict=True)))


def judge_waiting(
    path: Path, configurations: Iterable[str], anew: Collection[str], judged: Callable[[str], Row], jobs: int
) -> dict[str, Row]:
    """All rows, by variant. Those of `anew`, which names implementations, are forgotten first.

    Ended early, it leaves what waits for the next time.
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
    return select(load().cases, (), "required")


@cache
def expected() -> dict[str, Expected]:
    return {case.id: read_golden(case, read_golden_manifest(), constants()) for case in cases()}


def judged(variant: str, dtypes: tuple[DtypeName, ...], interpreters: Mapping[str, str] | None = None) -> Row:
    """Every required case in these dtypes; `interpreters` as --python has them.

    Raises InputError where it cannot be started.
    """
    folder, implementation = find_implementation(variant)
    found = resolve(implementation, folder, dict(interpreters or {}))
    if isinstance(found, Missing):
        raise InputError(f"{variant}: {found.reason}", hint=found.hint)
    tasks = [task for task in plan(implementation, cases(), dtypes) if asked(task)]
    with tempfile.TemporaryDirectory() as logs:
        assignment, goldens = Assignment(found, tasks), expected()
        run = Run(
            [assignment], lambda case: goldens[case.id], constants(), jobs=1, threads=1, device="cpu", logs=Path(logs)
        )
        records = list(run)
        versions = run.session(implementation.name).versions
    judged = [record for record in records if record.outcome != Outcome.UNSUPPORTED]
    passed = [record for record in judged if record.outcome in EXPECTED]
    # An invariant that is broken as declared is as far out as it is: what it is met in has no number.
    met = [record for record in passed if record.outcome == Outcome.PASS or record.check != "invariant"]
    return Row(
        variant=variant,
        implementation=implementation.folder_name,
        choices=dict(implementation.chosen),
        passed=len(passed),
        applicable=len(judged),
        rms=max((round(record.rms, 2) for record in met if record.rms is not None), default=None),
        unsupported=reasons(record for record in records if record.outcome == Outcome.UNSUPPORTED),
        failed=reasons(record for record in judged if record.outcome not in EXPECTED),
        deviates=seen(records),
        versions=dict(versions),
    )


def asked(task: Task) -> bool:
    """What an implementation has not among its capabilities, training say, is no news in its row."""
    return task.opt_out is None or task.opt_out.kind not in ("capability", "default-layer")


def reasons(records: Iterable[Record]) -> list[ReasonCount]:
    """One for each text: of what is declared of gradients and sizes one text a kind, of a failure without numbers."""
    cases: dict[tuple[Kind | None, str], list[str]] = {}
    for record in records:
        failed = f"{record.outcome.value}: {unnumbered(record.message)}"
        text = record.message if record.kind == "declared" else WHATEVER_IS_DECLARED.get(record.kind, failed)
        cases.setdefault((record.kind, text), []).append(record.case)
    return [ReasonCount(kind, text, len(found), some(found)) for (kind, text), found in cases.items()]


def seen(records: Iterable[Record]) -> list[Seen]:
    shown: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        for deviation in record.deviations:
            shown.setdefault((deviation, record.dtype), []).append(record)
    return [
        Seen(deviation, dtype, len(found), some([record.case for record in found]), _largest(found))
        for (deviation, dtype), found in shown.items()
    ]


def _largest(found: list[Record]) -> float | None:
    distances = [record.distance for record in found if record.distance is not None]
    return float(f"{max(distances):.2g}") if distances else None


def unnumbered(message: str) -> str:
    """One message for failures that differ in their numbers."""
    return re.sub(r"\d[\d.e+-]*", "…", message)[:300]


def some(found: list[str]) -> str:
    """Which layers, and which situations of theirs."""
    parted = [case.split("/") for case in found]
    layers, situations = (list(dict.fromkeys(part)) for part in zip(*parted, strict=True))
    return f"{_few(layers)} / {_few(situations)}"


def _few(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} more"
