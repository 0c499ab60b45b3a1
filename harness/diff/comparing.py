"""Asks both subjects the same, and measures how far apart their answers are: in √2 σ, the noise of a difference."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from encoder_conformance.asking import JudgedAnswer
from encoder_conformance.diagnosis.observations import Observations
from encoder_conformance.diff.cases import cases_of_both
from encoder_conformance.diff.results import Apart, DiffResult, SideResult
from encoder_conformance.diff.sides import DTYPE, Side
from encoder_conformance.errors import InputError
from encoder_conformance.golden.at_once import expectations
from encoder_conformance.judge.difference import difference
from encoder_conformance.judge.expected import key
from encoder_conformance.judge.verdict import TensorVerdict, judge_tensor
from encoder_conformance.judging.loop import judge
from encoder_conformance.module_check.checking import named
from encoder_conformance.plan import plan
from encoder_conformance.progress import Progress
from encoder_conformance.results import Record
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import constants
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.layer import Layer
from encoder_conformance.task import Task

_FORMAT = FORMATS[DTYPE]
_NOT_FINITE = 1e300
"""The distance of a number from none, and of NaN from an infinity."""


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
    expected = expectations(cases, request.jobs, progress)
    progress.begin("asking both", len(cases))
    seen = Observations(), Observations()
    records: tuple[list[Record], list[Record]] = [], []
    apart: list[Apart] = []
    for case in cases:
        one, two = (
            {
                answer.task.check: answer
                for answer in judge(side.session, _tasks(side, case), lambda each: expected[each.id], kept)
            }
            for side, kept in zip((first, second), seen, strict=True)
        )
        for found, answers in zip(records, (one, two), strict=True):
            found += [answer.record for answer in answers.values()]
        for check in case.situation.checks:
            if check in one and check in two:
                apart += _apart(one[check], two[check])
        progress.step(case.id)
    return DiffResult(
        layer=layer,
        sides=(_result(first, records[0], seen[0]), _result(second, records[1], seen[1])),
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


def _tasks(side: Side, case: Case) -> list[Task]:
    """The checks that it can be asked: a file has no gradients."""
    implementation = side.implementation.model_copy(update={"name": side.name})
    planned = plan(implementation, [case], (DTYPE,))
    return [replace(task, without=side.without) for task in planned if task.opt_out is None]


def _apart(one: JudgedAnswer, two: JudgedAnswer) -> Iterator[Apart]:
    """Every tensor that both gave."""
    check, case, goldens = one.task.check, one.task.case.id, one.golden.tensors
    for name, value in (one.tensors or {}).items():
        expected, other = goldens.get(key(check, name)), (two.tensors or {}).get(name)
        if expected is None or other is None:
            continue
        if not value.shape == other.shape == expected.shape:
            yield Apart(case=case, check=check, tensor=name, rms=None, max=None, sides=(None, None))
            continue
        a, b = value.astype(_FORMAT.numpy), other.astype(_FORMAT.numpy)
        between = difference(name, a, b, expected, _FORMAT)
        to_oracle = [judge_tensor(name, each, expected, _FORMAT, constants()) for each in (a, b)]
        sides = _rms(to_oracle[0]), _rms(to_oracle[1])
        largest = _NOT_FINITE if between.max is None else between.max
        yield Apart(case=case, check=check, tensor=name, rms=_rms(between), max=largest, sides=sides)


def _rms(verdict: TensorVerdict) -> float:
    return _NOT_FINITE if verdict.rms is None else verdict.rms


def _result(side: Side, records: list[Record], seen: Observations) -> SideResult:
    return SideResult(
        name=side.name,
        versions=dict(side.session.versions),
        layer=side.layer,
        records=tuple(records),
        diagnoses=tuple(seen.diagnoses(side.name)),
    )
