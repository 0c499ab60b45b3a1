"""The cases beyond the core's show what they are there for."""

from functools import cache

import numpy as np
import pytest

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.encoder import forward
from encoder_conformance.oracle.inputs import given
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import load
from encoder_conformance.subjects.beyond import MOST_FEATURES, cases_beyond

LAYERS = "post-gelu", "pre-gelu", "pre-rms-silu"


@cache
def beyond(name: str, *, padded: bool = True) -> dict[str, Case]:
    cases = cases_beyond(load().layers[name], ["float32"], padded=padded)
    return {case.situation.situation: case for case in cases}


def stages(case: Case) -> dict[str, Array]:
    return forward(case.layer, given(case), Arithmetic(np.float64))


@pytest.mark.parametrize("name", LAYERS)
def test_sizes_are_one_number_with_padding_and_where_none_can_be_said(name: str) -> None:
    layer = load().layers[name]
    for padded, word in ((True, "padded"), (False, "unmasked")):
        cases = beyond(name, padded=padded)
        items, features = cases[f"items-as-positions-{word}"], cases[f"positions-as-features-{word}"]
        assert items.x_shape[0] == items.x_shape[1] >= 3
        assert items.x_shape[0] >= min(layer.attention.num_heads, 17)
        assert features.x_shape[1] == features.x_shape[2] == layer.d_model
        for case in (items, features, cases[f"blocks-{word}"], cases[f"items-many-{word}"]):
            assert (case.situation.mask.padding is not None) == padded


def test_a_mask_is_given_at_as_many_positions_as_are_asked_without() -> None:
    without = load().situations["length-300"]
    padded = [case for case in beyond("post-gelu").values() if case.situation.mask.padding is not None]
    assert max(case.situation.sequence for case in padded) == without.sequence


def test_more_features_than_are_quickly_asked_are_not_the_number_of_positions() -> None:
    layer = load().layers["post-gelu"]
    wide: Layer = layer.model_copy(update={"d_model": 2 * MOST_FEATURES * layer.attention.num_heads})
    lengths = [case.situation.sequence for case in cases_beyond(wide, ["float32"], padded=True)]
    assert max(lengths) < wide.d_model


@pytest.mark.parametrize("features", [16, 32, 24])
def test_a_variance_of_squares_loses_what_a_mean_is_larger(features: int) -> None:
    """Also where the number of features is a power of two, of which the situation large-mean shows nothing."""
    layer = load().layers["post-gelu"].model_copy(update={"d_model": features})
    [case] = (each for each in cases_beyond(layer, ["float32"], padded=True) if "mean" in each.situation.situation)
    x = case.given_x(np.dtype(np.float32))
    cancelled = np.mean(x * x, -1, dtype=np.float32) - np.mean(x, -1, dtype=np.float32) ** 2
    right = x.astype(np.float64).var(-1)
    assert (np.abs(cancelled - right) > 1e-3 * right).mean() > 0.5


@pytest.mark.parametrize("name", ["post-gelu", "pre-gelu"])
def test_each_norm_is_asked_a_large_mean(name: str) -> None:
    case = beyond(name)["large-mean-raised"]
    shown = stages(case)
    for normed in (case.given_x(np.dtype(np.float64)), shown["residual1"]):
        assert (np.abs(normed.mean(-1)) > 100 * normed.std(-1)).all()


@pytest.mark.parametrize("name", LAYERS)
def test_values_are_beyond_usual_bounds(name: str) -> None:
    shown = stages(beyond(name)["large-values"])
    assert np.abs(shown["ffn_hidden"]).max() > 64
    assert np.abs(shown["value"]).max() > 64
