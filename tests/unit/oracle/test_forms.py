"""Wrong forms of the oracle's steps that are easily wrong in another way than they say."""

import numpy as np
import pytest

from encoder_conformance.judging.simulate import simulate
from encoder_conformance.oracle.arithmetic import Arithmetic, Float32
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.encoder import evaluate
from encoder_conformance.oracle.forms import VARIANTS
from encoder_conformance.spec.load import load

CASES = load().with_golden
SOFTMAX = VARIANTS["masked_softmax"]


@pytest.mark.parametrize("name", ["no-mask", "large-mean", "low-variance", "single-position"])
@pytest.mark.parametrize("layer", ["pre-gelu", "post-relu"])
def test_float32_inside_is_as_loud_as_a_layer_in_float32(layer: str, name: str) -> None:
    """A form that rounds the ends of a step alone is several times too quiet."""
    case = CASES[f"{layer}/{name}"]
    right = evaluate(case, Arithmetic(np.float64), None).stages
    float32 = evaluate(case, Arithmetic(np.float32), None).stages
    inside = simulate(case, [catalogue()["float32-inside"]])
    for stage, value in right.items():
        loud = np.sqrt(np.mean((float32[stage] - value) ** 2))
        assert np.sqrt(np.mean((inside[stage] - value) ** 2)) == pytest.approx(loud, rel=0.7, abs=1e-12), stage


def test_float32_arithmetic_is_float32_throughout() -> None:
    a, x = Float32(), np.linspace(0.1, 2, 42).astype(np.float32).reshape(2, 3, 7)
    for made in (
        a.exp(x),
        a.log(x),
        a.erf(x),
        a.mean(x),
        a.matmul(x, x.swapaxes(-1, -2)),
        a.sum(x, -1),
        a.constant(0.1),
    ):
        assert made.dtype == np.float32
    assert a.matmul(x, x.swapaxes(-1, -2)) == pytest.approx(x @ x.swapaxes(-1, -2), rel=1e-6)
    assert a.sum(x, -1) == pytest.approx(x.sum(-1, keepdims=True), rel=1e-6)
    assert a.sum(x, -1, keepdims=False).shape == (2, 3)


def test_projections_that_heads_share_are_block_diagonal() -> None:
    x, weight, bias = np.arange(24.0).reshape(1, 4, 6), np.arange(36.0).reshape(6, 6), np.arange(6.0)
    shared, _ = VARIANTS["query"]["first-head-for-all"](Arithmetic(), x, weight, bias, num_heads=3)
    assert shared == pytest.approx(x @ np.kron(np.eye(3), weight[:2, :2]) + np.tile(bias[:2], 3))


def test_a_key_that_is_reshaped_is_not_transposed() -> None:
    query, key = np.arange(12.0).reshape(1, 1, 4, 3), np.arange(12.0).reshape(1, 1, 4, 3) ** 2
    scores, _ = VARIANTS["attention_scores"]["key-by-reshape"](Arithmetic(), query, key)
    assert scores == pytest.approx(query @ key.reshape(1, 1, 3, 4) / np.sqrt(3))


def test_a_scaled_query_leaves_the_scores_as_they_are() -> None:
    case = CASES["pre-gelu/no-mask"]
    right, wrong = simulate(case, []), simulate(case, [catalogue()["scale-at-query"]])
    assert wrong["attention_scores"] == pytest.approx(right["attention_scores"], rel=1e-9)
    assert wrong["query"] == pytest.approx(right["query"] / np.sqrt(8), rel=1e-12)
    before_bias = simulate(case, [catalogue()["scale-before-query-bias"]])["query"]
    bias = case.parameters()["attention.query.bias"]
    assert before_bias == pytest.approx((right["query"] - bias) / np.sqrt(8) + bias, rel=1e-9)


def test_dropout_that_is_broadcast_drops_the_same_in_every_item_and_head() -> None:
    scores = np.zeros((2, 3, 20, 20))
    each, same = (SOFTMAX[form](Arithmetic(), scores, None).weights for form in ("dropout", "dropout-broadcast"))
    assert (same == same[:1, :1]).all()
    assert not (each == each[:1, :1]).all()
    for weights in (each, same):
        assert np.mean(weights == 0) == pytest.approx(0.1, abs=0.05)
        assert weights.max() == pytest.approx(1 / 20 / 0.9)


@pytest.mark.parametrize(
    ("scores", "gradual", "flushed"),
    [
        ([88.5, 0.0], [1, 0], [0, 0]),  # the sum is in range, its reciprocal is below the smallest normal number
        ([-88.0, -88.0], [0.5, 0.5], [np.nan, np.nan]),  # nothing is left of the sum
        ([90.0, 0.0], [np.nan, 0], [np.nan, 0]),  # overflow
        ([1.0, 1.0], [0.5, 0.5], [0.5, 0.5]),
    ],
)
def test_a_softmax_without_its_largest_score(scores: list[float], gradual: list[float], flushed: list[float]) -> None:
    for form, expected in (("without-largest", gradual), ("without-largest-flushed", flushed)):
        found = SOFTMAX[form](Arithmetic(), np.array([[[scores]]]), None).weights[0, 0, 0]
        assert found == pytest.approx(expected, abs=1e-6, nan_ok=True), form


def test_a_score_that_overflowed_leaves_no_weight_of_its_row() -> None:
    """Frameworks take infinity off infinity: NaN, for the other keys too."""
    scores = np.array([[[[np.inf, 0.0], [-np.inf, -np.inf], [0.0, 0.0]]]])
    with np.errstate(invalid="ignore"):
        weights = SOFTMAX["standard"](Arithmetic(), scores, None).weights[0, 0]
    assert np.isnan(weights[0]).all()
    assert (weights[1] == 0).all()
    assert (weights[2] == 0.5).all()
