"""Keys that no query attends to are named by where they are, where that is all that is wrong."""

from dataclasses import replace

import numpy as np
import pytest

from encoder_conformance.diagnosis.in_sigma import sigma_of
from encoder_conformance.diagnosis.reach import out_of_reach
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.encoder import forward
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.oracle.inputs import given
from encoder_conformance.spec.axes import BSD, Bools
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.load import constants, load
from encoder_conformance.subjects.beyond import cases_beyond

CASE = load().cases["pre-gelu/length-300"]
QUERY, KEY = np.arange(300)[:, None], np.arange(300)
REACH: dict[str, Bools] = {
    "those more than 64 positions away from the query": np.abs(QUERY - KEY) <= 64,
    "those after the first 256": np.broadcast_to(KEY < 256, (300, 300)),
    "those of other blocks of 128 positions": QUERY // 128 == KEY // 128,
}


def output(reached: Bools) -> BSD:
    inputs = replace(given(CASE), mask=reached[None, None])
    return forward(CASE.layer, inputs, Arithmetic(np.float64))["output"].astype(np.float32)


def lacking(seen: BSD) -> str | None:
    expected = read_golden(CASE, read_golden_manifest(), constants())
    return out_of_reach(CASE, seen, sigma_of(expected.tensors["output"], FORMATS["float32"]), FORMATS["float32"])


@pytest.mark.parametrize("said", REACH)
def test_keys_that_are_out_of_reach_are_named(said: str) -> None:
    found = lacking(output(REACH[said]))
    assert found is not None
    assert found.startswith(f"{said} (")
    assert found.endswith(" σ of the specified output)")


@pytest.mark.release
def test_a_right_output_and_one_that_is_wrong_otherwise_lack_no_keys() -> None:
    right, ahead = output(np.ones((300, 300), np.bool_)), output(KEY - QUERY <= 64)
    for other in (right, ahead, 1.01 * output(REACH["those after the first 256"])):
        assert lacking(other) is None


@pytest.mark.release
def test_keys_that_are_padding_are_not_what_is_out_of_reach() -> None:
    """Of an output that is wrong by less than what leaving a key out makes."""
    [case] = (each for each in cases_beyond(CASE.layer, ["float32"], padded=True) if each.situation.sequence == 256)
    right = forward(case.layer, given(case), Arithmetic(np.float64))["output"]
    sigma = np.full_like(right, 1e-7)
    assert out_of_reach(case, right * (1 + 2e-5), sigma, FORMATS["float32"]) is None
    first = replace(given(case), mask=given(case).mask & (np.arange(256) < 128))
    found = out_of_reach(case, forward(case.layer, first, Arithmetic(np.float64))["output"], sigma, FORMATS["float32"])
    assert found is not None
    assert found.startswith("those after the first 128 (")
