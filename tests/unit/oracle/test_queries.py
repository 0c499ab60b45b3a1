"""Of a long sequence whose output alone is compared, the oracle evaluates the queries that are: to the same numbers, by
noise of the same size."""

from dataclasses import replace

import numpy as np
import pytest
from products import daily

from encoder_conformance.oracle.golden.build import RUNS, compute
from encoder_conformance.oracle.golden.thinning import compared_queries
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.load import constants, load
from encoder_conformance.subjects.beyond import cases_beyond

LONG = "length-300"
LAYERS = tuple(
    name
    for name, layer in load().layers.items()
    if layer.d_model <= 128 and compared_queries(Case(layer, load().situations[LONG]), constants()) is not None
)
DAILY = ("post-relu", "pre-rope-gated", "pre-parallel-one-norm", "cross-attention")


def same(case: Case) -> None:
    """The kept numbers are those of all queries, and their noise is as large, within what so few runs say."""
    few = constants().model_copy(update={"condition_runs": RUNS})
    [found, due] = (compute(case, few, whole=whole).tensors["output"] for whole in (False, True))
    assert np.array_equal(found.positions, due.positions)
    assert np.allclose(found.golden, due.golden, rtol=1e-15, atol=0)
    size, whole = (float(np.sqrt(np.mean(np.square(each.condition / due.condition)))) for each in (found, due))
    assert size == pytest.approx(whole, rel=0.2)


@pytest.mark.parametrize("name", daily(DAILY, LAYERS))
def test_the_numbers_are_those_of_all_queries(name: str) -> None:
    same(Case(load().layers[name], load().situations[LONG]))


def test_with_a_mask_they_are_too() -> None:
    """Which has a row for each query where it is causal, and one for all of an item's where it is of padding."""
    layer, causal = load().layers["pre-gelu"], load().situations["causal"]
    [padded] = [case for case in cases_beyond(layer, ["float32"], padded=True) if "long" in case.id]
    same(padded)
    long = padded.situation.model_copy(update={"mask": causal.mask, "situation": "long-causal"})
    same(replace(padded, situation=long))


@pytest.mark.parametrize("name", ["stack-post-relu", "pre-buckets", "pre-window-shiftless"])
def test_what_goes_by_positions_elsewhere_is_evaluated_at_all(name: str) -> None:
    assert compared_queries(Case(load().layers[name], load().situations[LONG]), constants()) is None


def test_stages_are_evaluated_at_all_positions() -> None:
    assert compared_queries(load().cases["post-relu/no-mask"], constants()) is None
