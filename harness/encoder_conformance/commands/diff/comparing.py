"""Asks both subjects the same, and measures how far apart their answers are: in √2 σ, the noise of a difference."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from encoder_conformance.commands.check.covered import asked_in
from encoder_conformance.commands.check.maps import maps_apart
from encoder_conformance.commands.diff.interface import interface_findings
from encoder_conformance.commands.diff.results import DiffResult, SideResult, TensorDifference
from encoder_conformance.commands.inspect.layer_selection import at_size
from encoder_conformance.diagnosis.observations import Observations
from encoder_conformance.judging.asking import JudgedAnswer
from encoder_conformance.judging.difference import differences
from encoder_conformance.judging.loop import judge
from encoder_conformance.judging.records import Record
from encoder_conformance.judging.verdict import judge_tensor
from encoder_conformance.oracle.expected import Expected, key
from encoder_conformance.oracle.golden.build import expectations
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.files import require_regular
from encoder_conformance.platform.progress import Progress
from encoder_conformance.protocol.module_description import ModuleDescription
from encoder_conformance.spec.case import Case, layer_parameters
from encoder_conformance.spec.case_parameters import CaseParameters
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.parameters import parameters_of, unlike
from encoder_conformance.spec.situation import Check
from encoder_conformance.spec.words import listed
from encoder_conformance.subjects.cases import OWN, InputLimits, each_once, neutral, pool
from encoder_conformance.subjects.subject import Subject, layer_as_judged


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
        described = self.subject.description
        return SideResult(
            name=self.subject.name,
            versions=dict(self.subject.worker.versions),
            layer=self.subject.layer,
            without=described.judged_without if isinstance(described, ModuleDescription) else (),
            records=tuple(self.records),
            diagnoses=tuple(self.seen.diagnoses(self.subject.name)),
        )


def compare(
    first: Subject, second: Subject, stated: Layer | None, inputs: Path | None, jobs: int, progress: Progress
) -> DiffResult:
    """`stated`: what both should be; None: what the first one is, else the second. `inputs`: a file of your own.

    Raises InputError if they have no layer in common.
    """
    layer = _layer(first, second, stated)
    cases = cases_of_both(first, second, layer, inputs)
    expected = expectations(cases, jobs, progress)
    progress.begin("asking both", len(cases))
    one, two = _Side(first), _Side(second)
    apart: list[TensorDifference] = []
    for case in cases:
        mine, theirs = (side.answers(case, expected[case.id]) for side in (one, two))
        for check in case.situation.checks:
            if check in mine and check in theirs:
                apart += _apart(mine[check], theirs[check])
        progress.step(case.id)
    found = (
        *interface_findings(first.description, second.description, DTYPE),
        *maps_apart(first.description, second.description),
    )
    both = {(each.case, each.check) for each in apart}
    asked = asked_in(cases, (record for record in one.records if (record.case, record.check) in both))
    return DiffResult(layer=layer, sides=(one.result(), two.result()), apart=tuple(apart), asked=asked, findings=found)


def _layer(first: Subject, second: Subject, stated: Layer | None) -> Layer:
    layer = first.layer or second.layer or stated
    if layer is None:
        raise InputError("two implementations can be any layer", where="diff", hint="--layer ID|YAML says which")
    for side in (first, second):
        other = side.layer
        sizes = zip(_sizes(layer), _sizes(other or layer), strict=True)
        if differing := "; ".join(f"{name} {a} and {b}" for (name, a), (_, b) in sizes if a != b):
            raise InputError(f"they are of other sizes: {differing}", where=f"{first.name}, {second.name}")
    if (other := second.layer) is not None and (more := _names(other) - _names(layer)):
        if less := _names(layer) - _names(other):
            found = f"they have other parameters: {listed(sorted(less))} is in A alone, and {listed(sorted(more))} in B"
            raise InputError(found, where=f"{first.name}, {second.name}")
        layer = other  # A lacks some, as it would show if it were B
    return layer_as_judged(layer, "", stated=stated is not None)


def _names(layer: Layer) -> set[str]:
    return {parameter.name for parameter in parameters_of(layer)}


def _sizes(layer: Layer) -> tuple[tuple[str, int], ...]:
    heads, d_ff = layer.attention.num_heads, layer.feed_forward.d_ff
    return ("d_model", layer.d_model), ("num_heads", heads), ("d_ff", d_ff), ("layers", layer.stack.layers)


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
    golden = answer.answer.expected.tensors[key(answer.task.check, name)]
    value = answer.tensors[name].astype(answer.task.format.numpy)
    return _or_far(judge_tensor(name, value, golden, answer.task.format).rms)


def _or_far(distance: float | None) -> float:
    """The distance; of what is not finite, as far as JSON can say."""
    return 1e300 if distance is None else distance


DTYPE: DtypeName = "float32"
"""The format that both compute in."""
_CHECKS: tuple[Check, ...] = ("output", "stages", "gradients")


def cases_of_both(first: Subject, second: Subject, layer: Layer, inputs: Path | None) -> list[Case]:
    """Raises InputError if the first one's parameters are none of the layer's, or if there is nothing to ask."""
    absent = (*first.absent, *second.absent)
    own = _own(first, layer, absent)
    limits = [each for each in (_limits(first), _limits(second)) if each]
    if inputs is not None:
        return [_of_file(inputs, layer, own, absent)]
    asked = (case for case in pool(layer, limits, "core") if case.situation.invariant is None)
    found: list[Case] = []
    for case in each_once(asked, DTYPE):
        held = CaseParameters.of(neutral(case.parameters(), absent)) if absent else None
        found.append(_asked(case, held, layer.layer))
        if own is not None and case.situation.situation in OWN:
            found.append(_asked(case, own, f"{layer.layer}-own"))
    return found


def _limits(subject: Subject) -> InputLimits | None:
    """The masks that it can be given; None: all. Raises InputError for a file of one size."""
    limits = subject.limits
    if limits is not None and (limits.batch, limits.sequence) != (None, None):
        hint = "export it with dynamic axes, or validate it by itself"
        raise InputError("is fixed to one size of its inputs", where=subject.name, hint=hint)
    return limits


def _asked(case: Case, held: CaseParameters | None, name: str) -> Case:
    situation = case.situation
    checks = tuple(check for check in _CHECKS if check in situation.checks)
    asked = situation.model_copy(update={"checks": checks, "dtypes": (DTYPE,)})
    layer = case.layer.model_copy(update={"layer": name})
    return Case(layer, asked, held=held or case.held, in_core=case.in_core)


def _own(first: Subject, layer: Layer, absent: tuple[str, ...]) -> CaseParameters | None:
    """The first side's own parameters; None if it has none."""
    if not first.parameters:
        return None
    whole = {**neutral(layer_parameters(layer, {}), absent), **first.parameters}
    if problem := unlike(layer, {name: np.shape(value) for name, value in whole.items()}):
        raise InputError(f"its parameters are none of {layer.layer}: {problem}", where=first.name)
    return CaseParameters.of(whole)


def _of_file(path: Path, layer: Layer, own: CaseParameters | None, absent: tuple[str, ...]) -> Case:
    """`x` [B, S, d_model], and if it has it `lengths` [B]: how many positions of each item are no padding."""
    where, hint = f"--inputs {path}", "a safetensors file"
    require_regular(path, where, hint)
    try:
        tensors: Mapping[str, Any] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot be read: {error}", where=where, hint=hint) from None
    x = tensors.get("x")
    if x is None or x.ndim != 3 or x.shape[-1] != layer.d_model or x.dtype.kind != "f":
        found = "no tensor x" if x is None else f"x is {x.dtype} {list(x.shape)}"
        due = f"it needs x [batch, sequence, {layer.d_model}], of floating-point numbers"
        raise InputError(f"{found}; {due}", where=f"--inputs {path}")
    unknown = sorted(set(tensors) - {"x", "lengths"})
    if unknown:
        raise InputError(f"the tensor {unknown[0]!r} is no input", where=f"--inputs {path}", hint="known: x, lengths")
    B, S, _ = x.shape
    sized = at_size(layer, B, S, tuple(int(length) for length in tensors.get("lengths", ())))
    held = own or CaseParameters.of(neutral(layer_parameters(layer, {}), absent))
    case = _asked(sized, held, layer.layer)
    asked = case.situation.model_copy(update={"checks": _CHECKS, "situation": "own-inputs"})
    return replace(case, situation=asked, held_x=CaseParameters.of({"x": x.astype(DTYPE)}))
