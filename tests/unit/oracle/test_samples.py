"""Conditions whose runs are items of one batch: as large as those of runs that are computed one after the other."""

from dataclasses import replace

import numpy as np
import pytest
from products import daily

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.condition import expectation
from encoder_conformance.oracle.encoder import forward
from encoder_conformance.oracle.inputs import given
from encoder_conformance.oracle.measured import disturbed, measured_condition, sampled_conditions
from encoder_conformance.spec.load import load

CASES = ("pre-gelu/padding-right", "post-relu/mask-per-head", "stack-post-relu/causal")


@pytest.mark.parametrize("case_id", daily(CASES[:1], CASES))
def test_they_are_as_large_as_those_of_single_runs(case_id: str) -> None:
    """Each with a mask of another form; stage by stage, the root mean square of 64 runs, known within a twentieth."""
    case = load().cases[case_id]
    exact = forward(case.layer, given(case), Arithmetic(np.float64))
    found = sampled_conditions(case.layer, given(case), exact, 64)
    single = expectation(case, 64).condition
    for name, condition in found.items():
        assert condition.shape == exact[name].shape
        size, due = (float(np.sqrt(np.mean(np.square(each)))) for each in (condition, single[name]))
        assert size == pytest.approx(due, rel=0.15), name


def test_every_sample_has_an_x_and_a_noise_of_its_own() -> None:
    case = load().cases[CASES[0]]
    what = given(case)
    first, second, shifted = disturbed(case.layer, [what, what, replace(what, x=what.x + 1)])
    for name, value in first.items():
        assert value.shape == second[name].shape == shifted[name].shape
        assert np.allclose(value, second[name], rtol=1e-4, atol=1e-6), name
    assert not np.array_equal(first["output"], second["output"])
    assert not np.allclose(first["residual1"], shifted["residual1"])


@pytest.mark.release
def test_a_large_layer_is_measured_so() -> None:
    """Of more than two million parameters, at few positions: as large as 16 runs say one by one."""
    case = load().cases["pre-gelu-512/single-position"]
    found = measured_condition(case)["output"]
    single = expectation(case, 16).condition["output"]
    assert float(np.sqrt(np.mean(found**2))) == pytest.approx(float(np.sqrt(np.mean(single**2))), rel=0.1)
