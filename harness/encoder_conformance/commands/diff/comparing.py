"""Asks both subjects the same, and measures how far apart their answers are: in √2 σ, the noise of a difference."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from encoder_conformance.commands.diff.cases import DTYPE, cases_of_both
from encoder_conformance.commands.diff.results import DiffResult, SideResult, TensorDifference
from encoder_conformance.diagnosis.observations import Observations
from encoder_conformance.judging.asking import JudgedAnswer
from encoder_conformance.judging.difference import differences
from encoder_conformance.judging.loop import judge
from encoder_conformance.judging.records import Record
from encoder_conformance.judging.verdict import judge_tensor
from encoder_conformance.oracle.expected import Expected, key
from encoder_conformance.oracle.golden.at_once import expectations
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.progress import Progress
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import constants
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.situation import Check
from encoder_conformance.subjects.subject import Subject, layer_as_judged


@dataclass(frozen=True)
class DiffRequest:
    """`layer`: what both should be; None: what the first one is, else the second."""

    layer: Layer | None
    inputs: Path | None
    jobs: int


@dataclass(frozen=True)
class _Side:
    """One of the two, with its records and what was seen of it so far."""

    subject: Subject
    records: list[Record] = field(default_factory=list)
    seen: Observations = field(default_factory=Observations)

    def answers(self, case: Case, expected: Expected) -> dict[Check, JudgedAnswer]:
        """By check, those that it can be asked: a file has no gradients."""
        tasks = self.subject.tasks([case], (DTYPE,))
        found = {answer.task.check: answer for answer in judge(self.subject, tasks, lambda _: expected, self.seen)}
        self.records.extend(answer.record for answer in found.values())
        return found

    def result(self) -> SideResult:
        return SideResult(
            name=self.subject.name,
            versions=dict(self.subject.worker.versions),
            layer=self.subject.layer,
            records=tuple(self.records),
            diagnoses=tuple(self.seen.diagnoses(self.subject.name)),
        )


def compare(first: Subject, second: Subject, request: DiffRequest, progress: Progress) -> DiffResult:
    """Raises InputError if they have no layer in common."""
    layer = _layer(first, second, request.layer)
    cases = cases_of_both(first, second, layer, request.inputs)
    expected = expectations(cases, request.jobs, progress)
    progress.begin("asking both", len(cases))
    one, two = _Side(first), _Side(second)
    apart: list[TensorDifference] = []
    for case in cases:
        mine, theirs = (side.answers(case, expected[case.id]) for side in (one, two))
        for check in case.situation.checks:
            if check in mine and check in theirs:
                apart += _apart(mine[check], theirs[check])
        progress.step(case.id)
    return DiffResult(layer=layer, sides=(one.result(), two.result()), apart=tuple(apart))


def _layer(first: Subject, second: Subject, stated: Layer | None) -> Layer:
    layer = first.layer or second.layer or stated
    if layer is None:
        raise InputError("two implementations can be any layer", where="diff", hint="--layer ID|YAML says which")
    for side in (first, second):
        other = side.layer
        if other is not None and _sizes(other) != _sizes(layer):
            sizes = "; ".join(f"{name} {a} and {b}" for name, a, b in _differing(layer, other))
            raise InputError(f"they are of other sizes: {sizes}", where=f"{first.name}, {second.name}")
    return layer_as_judged(layer, "", stated=stated is not None)


def _sizes(layer: Layer) -> tuple[tuple[str, int], ...]:
    heads, d_ff = layer.attention.num_heads, layer.feed_forward.d_ff
    return ("d_model", layer.d_model), ("num_heads", heads), ("d_ff", d_ff), ("layers", layer.stack.layers)


def _differing(one: Layer, other: Layer) -> Iterator[tuple[str, int, int]]:
    for (name, a), (_, b) in zip(_sizes(one), _sizes(other), strict=True):
        if a != b:
            yield name, a, b


def _apart(one: JudgedAnswer, two: JudgedAnswer) -> Iterator[TensorDifference]:
    """Every tensor that both gave, by name."""
    check, case = one.task.check, one.task.case.id
    for between in sorted(differences(one, two), key=lambda each: each.tensor):
        name = between.tensor
        if between.problem and between.problem.kind == "shape":
            yield TensorDifference(case=case, check=check, tensor=name, rms=None, max=None, sides=(None, None))
            continue
        rms, largest = _or_far(between.rms), _or_far(between.max)
        sides = _from_oracle(one, name), _from_oracle(two, name)
        yield TensorDifference(case=case, check=check, tensor=name, rms=rms, max=largest, sides=sides)


def _from_oracle(answer: JudgedAnswer, name: str) -> float:
    """The rms in σ, of the specification itself."""
    assert answer.tensors is not None
    golden = answer.golden.tensors[key(answer.task.check, name)]
    value = answer.tensors[name].astype(answer.task.format.numpy)
    return _or_far(judge_tensor(name, value, golden, answer.task.format, constants()).rms)


def _or_far(distance: float | None) -> float:
    """The distance; of what is not finite, as far as JSON can say."""
    return 1e300 if distance is None else distance
