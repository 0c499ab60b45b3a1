"""Asks both sides the same, and measures how far apart they are: in √2 σ, the noise of a difference."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from encoder_conformance.asking import Asked, ask
from encoder_conformance.diagnosis.observations import Observations
from encoder_conformance.diff.cases import cases_of_both
from encoder_conformance.diff.results import Apart, DiffResult, SideResult
from encoder_conformance.diff.sides import DTYPE, Side
from encoder_conformance.errors import InputError
from encoder_conformance.golden.at_once import compute_at_once
from encoder_conformance.golden.narrow import in_format
from encoder_conformance.judge.expected import Expected, key
from encoder_conformance.module_check.checking import named
from encoder_conformance.module_check.judging import ModulesTask
from encoder_conformance.plan import plan
from encoder_conformance.progress import Progress
from encoder_conformance.results import Record
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import constants
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.situation import Check
from encoder_conformance.task import Task


@dataclass(frozen=True)
class DiffRequest:
    """`layer`: what both should be; None: what the first one is, else the second."""

    layer: Layer | None
    inputs: Path | None
    jobs: int


def compare(first: Side, second: Side, request: DiffRequest, progress: Progress) -> DiffResult:
    """Raises InputError if they have no layer in common."""
    layer = _layer(first, second, request.layer)
    cases = cases_of_both(first, second, layer, request.inputs)
    progress.begin("computing what it should give", len(cases))
    expected: dict[tuple[str, object], Expected] = {}
    with contextlib.closing(compute_at_once(cases, request.jobs)) as computed:
        for case, result in computed:
            expected[case.id, case.numbers_from] = result
            progress.step(f"computed {case.id}")
    progress.begin("asking both", len(cases))
    seen = {side.name: Observations() for side in (first, second)}
    records: dict[str, list[Record]] = {side.name: [] for side in (first, second)}
    apart: list[Apart] = []
    for case in cases:
        golden = in_format(case, expected[case.id, case.numbers_from], FORMATS[DTYPE])
        for check in case.situation.checks:
            answers = [_asked(side, case, check, golden, seen, records) for side in (first, second)]
            apart += _apart(case, check, golden, answers)
        progress.step(case.id)
    return DiffResult(
        layer=layer,
        sides=(_result(first, records, seen), _result(second, records, seen)),
        apart=tuple(apart),
    )


def _layer(first: Side, second: Side, stated: Layer | None) -> Layer:
    layer = first.layer or second.layer or stated
    if layer is None:
        raise InputError("two implementations can be any layer", where="diff", hint="--layer ID|YAML says which")
    for side in (first, second):
        other = side.layer
        if other is not None and _sizes(other) != _sizes(layer):
            sizes = "; ".join(f"{name} {a} and {b}" for name, a, b in _differing(layer, other))
            raise InputError(f"they are of other sizes: {sizes}", where=f"{first.name}, {second.name}")
    return named(layer, "", told=stated is not None)


def _sizes(layer: Layer) -> tuple[tuple[str, int], ...]:
    heads, d_ff = layer.attention.num_heads, layer.feed_forward.d_ff
    return ("d_model", layer.d_model), ("num_heads", heads), ("d_ff", d_ff), ("layers", layer.stack.layers)


def _differing(one: Layer, other: Layer) -> Iterator[tuple[str, int, int]]:
    for (name, a), (_, b) in zip(_sizes(one), _sizes(other), strict=True):
        if a != b:
            yield name, a, b


def _asked(
    side: Side,
    case: Case,
    check: Check,
    golden: Expected,
    seen: Mapping[str, Observations],
    records: Mapping[str, list[Record]],
) -> Asked | None:
    """None if it cannot be asked this: a file has no gradients."""
    implementation = side.implementation.model_copy(update={"name": side.name})
    asked = replace(case, situation=case.situation.model_copy(update={"checks": (check,)}))
    for planned in plan(implementation, [asked], (DTYPE,)):
        if planned.opt_out is None:
            known = {each.name: getattr(planned, each.name) for each in fields(Task)}
            task = ModulesTask(**known, without=side.without)
            answer = ask(side.session, task, golden, constants())
            records[side.name].append(answer.record)
            seen[side.name].note(task, answer.record)
            if answer.answers is not None:
                seen[side.name].see(task, golden, answer.record, answer.answers)
            return answer
    return None


def _apart(case: Case, check: Check, golden: Expected, answers: list[Asked | None]) -> Iterator[Apart]:
    """Every tensor that both gave."""
    one, other = answers
    if one is None or other is None or one.answers is None or other.answers is None:
        return
    for name in one.answers:
        expected = golden.tensors.get(key(check, name))
        if expected is None or name not in other.answers:
            continue
        pair = [each[name] for each in (one.answers, other.answers)]
        if any(each.shape != expected.shape for each in pair):
            yield Apart(case=case.id, check=check, tensor=name, rms=None, max=None, sides=(None, None))
            continue
        sigma = np.maximum(FORMATS[DTYPE].roundoff * expected.condition, FORMATS[DTYPE].smallest_normal)
        a, b = (each.reshape(-1)[expected.positions].astype(np.float64) for each in pair)
        rms, largest = _size((a - b) / (np.sqrt(2) * sigma), a, b)
        to_oracle = tuple(_size((each - expected.golden) / sigma, each, expected.golden)[0] for each in (a, b))
        assert len(to_oracle) == 2
        yield Apart(case=case.id, check=check, tensor=name, rms=rms, max=largest, sides=to_oracle)


def _size(error: np.ndarray[Any, Any], a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> tuple[float, float]:
    """rms and largest; numbers that are no numbers on both sides are alike."""
    with np.errstate(all="ignore"):
        alike = (np.isnan(a) & np.isnan(b)) | (a == b)
        found = np.where(alike, 0.0, np.abs(error))
        found = np.where(np.isfinite(found), found, 1e300)
        return float(np.sqrt(np.mean(np.square(np.minimum(found, 1e150))))) if found.size else 0.0, float(
            found.max(initial=0.0)
        )


def _result(side: Side, records: Mapping[str, list[Record]], seen: Mapping[str, Observations]) -> SideResult:
    return SideResult(
        name=side.name,
        versions=dict(side.session.versions),
        layer=side.layer,
        records=tuple(records[side.name]),
        diagnoses=tuple(seen[side.name].diagnoses(side.name)),
    )
