"""Each wrong form that only a layer with an added key can have is named on such a layer, where stages are shown."""

from functools import cache

import numpy as np
import pytest
from acting import acting_in_required_cases
from catalogue import of_every

from encoder_conformance.diagnosis.diagnose import Failing, diagnose
from encoder_conformance.judging.observation import Observation, observation_of
from encoder_conformance.judging.verdict import judge
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.catalogue import catalogue, is_noisy, seen_in_evaluation
from encoder_conformance.oracle.deviant import changes, deviant
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.load import constants, load
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.situation import Check
from encoder_conformance.spec.stages import stages

FLOAT32 = FORMATS["float32"]
SITUATIONS = ("no-mask", "padding-right", "positions-offset", "positions-restart", "alibi-padding", "longer-than-wide")
"""The last, which shows no stage, has the distances that only a long sequence has."""
CASES = [
    case
    for name in SITUATIONS
    for case in load().with_golden.values()
    if case.situation.situation == name and case.layer.additions and case.layer.d_model <= 64
]
DAILY = ("gate-and-hidden-exchanged", "kv-heads-tiled", "rotary-pairs-interleaved", "softcap-after-mask")
PARTS = 16
"""Tests of a release, each of so many of the others, whose names are not looked for while tests are collected."""
MANY = 2
"""Cases that a diagnosis is made of."""


@cache
def expected_of(case_id: str) -> Expected:
    return read_golden(load().cases[case_id], read_golden_manifest(), constants())


def seen(case: Case, name: str, dtype: str = "float32") -> Observation:
    """What a layer with this one bug shows in a format, with roundings of its own unless it casts to another."""
    draw = 0 if is_noisy(catalogue()[name]) else 99
    wrong = deviant(case, [catalogue()[name]]).stages(Arithmetic(FORMATS[dtype].numpy, draw=draw))
    check: Check = "stages" if "stages" in case.situation.checks else "output"
    names, expected = stages(case.layer) if check == "stages" else ("output",), expected_of(case.id)
    answers = {stage: np.asarray(wrong[stage]).astype(FORMATS[dtype].numpy) for stage in names}
    failed = judge(check, names, answers, expected, FORMATS[dtype]).outcome is not Outcome.PASS
    return observation_of(case, expected, FORMATS[dtype], answers, failed=failed)


def failing(name: str, dtype: str) -> list[Observation]:
    """The first cases of one layer that show it."""
    changed = [case for case in CASES if changes(case, catalogue()[name])]
    for layer in dict.fromkeys(case.layer.layer for case in changed):
        shown = [seen(case, name, dtype) for case in changed if case.layer.layer == layer]
        if found := [each for each in shown if each.failed]:
            return found[:MANY]
    raise AssertionError(f"no case shows {name}")


def of_additions() -> set[str]:
    return {*seen_in_evaluation()} - acting_in_required_cases()


def test_there_are_as_many_as_are_asked_for() -> None:
    assert len(of_additions()) >= 60
    assert {*DAILY} < of_additions()


@pytest.mark.release
@pytest.mark.parametrize("part", range(PARTS))
def test_every_other_one_is_named_where_stages_are_shown(part: int) -> None:
    of_every(sorted(of_additions() - {*DAILY})[part::PARTS])(test_it_is_named_where_stages_are_shown)()


@pytest.mark.parametrize("name", DAILY)
def test_it_is_named_where_stages_are_shown(name: str) -> None:
    """In float64, where it computes in float32."""
    dtype = "float64" if is_noisy(catalogue()[name]) else "float32"
    diagnosis = diagnose(Failing("mine", dtype, repeats="same"), failing(name, dtype))
    assert diagnosis.confidence == "explained"
    assert (name,) in {diagnosis.deviations, *diagnosis.indistinguishable}
