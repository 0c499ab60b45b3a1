"""Shows mutants to a diagnosis, and grades what it says of them."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

import numpy as np

from encoder_conformance.diagnosis.diagnose import Failing, diagnose
from encoder_conformance.diagnosis.evidence import SimulatedCase
from encoder_conformance.diagnosis.explanation import named_deviations
from encoder_conformance.judging.observation import Observation, observation_of
from encoder_conformance.judging.records import Diagnosis
from encoder_conformance.judging.simulate import Player
from encoder_conformance.judging.verdict import judge
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.deviant import Deviant, deviant
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.golden.build import compute, constants_for
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.load import constants, load
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.stages import stages, step_of

FLOAT32 = FORMATS["float32"]
SHOWN = (
    "padding-right", "mask-per-head", "no-mask", "causal", "low-variance", "mask-per-item", "single-item", "alibi",
    "single-position",
)  # fmt: skip
"""Of one, two and three items, and of 1, 7, 9 and 10 positions."""
HELD_OUT = ("longer-than-wide", "mask-per-item-and-head", "padding-holes", "padding-one-item")
"""The first two that the layer has; none of them is shown."""
_SAME = 3e-5
"""Of the largest value: what float32 leaves of two outputs that are the same."""
Kind = Literal["equivalent", "right", "closest-right", "closest-wrong", "unknown", "false"]
"""A closest is wrong unless what it names gives what the mutant gives, in every stage that it changes."""


class Wrong(Protocol):
    """A mutant: what it gives, in float32 and as exactly as can be, and whether a stage is one that it gets wrong."""

    @property
    def layer(self) -> str: ...
    @property
    def mistake(self) -> str: ...
    def answers(self, case: Case) -> dict[str, Array]: ...
    def output(self, case: Case) -> Array: ...
    def has_step(self, stage: str) -> bool: ...


@dataclass(frozen=True)
class Grade:
    """What a diagnosis made of a mutant: `stated` is its equation or name, `step` whether it names the right step, and
    `mistake` the kind of mistake that the mutant is, where it is one of several."""

    mutant: str
    kind: Kind
    step: bool
    stated: str
    seconds: float
    mistake: str = ""


def graded(mutants: Iterable[Wrong], *, output_only: bool) -> Iterable[Grade]:
    """Where the output alone is shown the mutant is asked again, as a run asks a live worker."""
    for mutant in mutants:
        seen = list(observed(mutant, _cases(mutant, SHOWN), output_only=output_only))
        ask = partial(_asked_again, mutant) if output_only else None
        if not any(observation.failed for observation in seen):
            yield Grade(str(mutant), "equivalent", True, "", 0.0)
            continue
        begun = time.process_time()
        diagnosis = diagnose(Failing("mutant", "float32", repeats="same", ask=ask), seen)
        seconds, right = time.process_time() - begun, is_right(mutant, diagnosis)
        kind = _kind(mutant, diagnosis, right=right)
        stated = "; ".join(f"{each.stage} = {each.found}" for each in diagnosis.equations)
        step = right or mutant.has_step(step_of(diagnosis.first_stage or ""))
        named = stated or " and ".join(diagnosis.deviations)
        yield Grade(str(mutant), kind, step, named, round(seconds, 2), mutant.mistake)


def _kind(mutant: Wrong, diagnosis: Diagnosis, *, right: bool) -> Kind:
    if diagnosis.confidence == "closest":
        return "closest-right" if is_part_of(mutant, named_deviations(diagnosis)) else "closest-wrong"
    if diagnosis.confidence == "unknown":
        return "unknown"
    return "right" if right and diagnosis.confidence == "explained" else "false"


def _cases(mutant: Wrong, situations: Iterable[str]) -> list[tuple[Case, Expected]]:
    manifest = read_golden_manifest()
    cases = [load().cases[name] for situation in situations if (name := f"{mutant.layer}/{situation}") in load().cases]
    return [(case, read_golden(case, manifest, constants())) for case in cases]


def _asked_again(mutant: Wrong, cases: Sequence[Case]) -> list[Observation]:
    judged_by = constants_for([FLOAT32])
    return list(observed(mutant, [(case, compute(case, judged_by)) for case in cases], output_only=True))


def observed(
    mutant: Wrong, cases: Iterable[tuple[Case, Expected]], *, output_only: bool = False
) -> Iterator[Observation]:
    for case, expected in cases:
        shown = mutant.answers(case)
        names = ("output",) if output_only else stages(case.layer)
        given_answers = {name: shown[name] for name in names}
        verdict = judge("output" if output_only else "stages", names, given_answers, expected, FLOAT32)
        failed = verdict.outcome is not Outcome.PASS
        yield observation_of(case, expected, FLOAT32, given_answers, failed=failed)


def is_right(mutant: Wrong, diagnosis: Diagnosis) -> bool:
    """Whether what is named gives what the mutant gives, in cases that the diagnosis was not shown."""
    named = named_deviations(diagnosis)
    return bool(named) and all(_gives(named, mutant, case) for case, _ in _cases(mutant, HELD_OUT)[:2])


def _gives(named: Sequence[Deviation], mutant: Wrong, case: Case) -> bool:
    both = case, SimulatedCase.of(case, padding_is_zero=True)  # our encoders set it to 0, and nobody specifies it (M-3)
    rows = case.specified() & _has_key(deviant(case, named), case)
    wrong = mutant.output(case)[rows]
    least = _SAME * np.nanmax(np.abs(wrong), initial=1e-9)
    found = (deviant(each, named).stages(Arithmetic(np.float64))["output"][rows] for each in both)
    return any(np.allclose(each, wrong, rtol=_SAME, atol=least, equal_nan=True) for each in found)


def is_part_of(mutant: Wrong, named: Sequence[Deviation]) -> bool:
    """Whether the named deviations are a part of what is wrong: each stage that they change, given those before it,
    is the mutant's in cases that the diagnosis was not shown, and there is one."""
    changed = False
    for case, _ in _cases(mutant, HELD_OUT)[:2]:
        whole = {name: stage.astype(np.float64) for name, stage in mutant.answers(case).items()}
        player = Player(case, whole)
        right, found = player.play(()), player.play(named)
        for name in (name for name in right if name in whole and not _alike(found[name], right[name])):
            changed = True
            if not _alike(found[name], whole[name]):
                return False
    return changed


def _alike(one: Array, other: Array) -> bool:
    least = _SAME * np.nanmax(np.abs(other), initial=1e-9)
    return one.shape == other.shape and np.allclose(one, other, rtol=_SAME, atol=least, equal_nan=True)


def _has_key(wrong: Deviant, case: Case) -> Array:
    """[B, S], false for a query that a wrong mask leaves no key, where nobody specifies what it is given (M-4)."""
    mask, shape = wrong.given.mask, case.x_shape[:2]
    if mask is None or wrong.layer.attention.fully_masked_row != "unspecified":
        return np.ones(shape, np.bool_)
    return np.broadcast_to(np.any(mask, axis=-1).all(axis=1), shape)
