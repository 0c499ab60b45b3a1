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
