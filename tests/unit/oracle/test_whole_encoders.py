"""What stands around the layers of an encoder, and what they do by their number (E-33 to E-39)."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from products import daily

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.deviant import changes, deviant
from encoder_conformance.oracle.encoder import evaluate, forward
from encoder_conformance.oracle.inputs import given
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.load import load

Array = np.ndarray[Any, Any]
CASES = {name: case for name, case in load().cases.items() if case.layer.family == "whole_encoders"}
WHOLE = [name for name in CASES if name.endswith("/whole")]
LONG = Arithmetic(np.longdouble)
STEP = np.longdouble(2) ** -14


@cache
def right(name: str) -> Array:
    return forward(CASES[name].layer, given(CASES[name]), Arithmetic())["output"]


def stages_of(case: Case, **changed: Any) -> dict[str, Array]:
    return forward(case.layer, replace(given(case), **changed), Arithmetic())


@pytest.mark.parametrize("name", daily(WHOLE[:2], WHOLE))
def test_every_gradient_agrees_with_differences_along_a_direction(name: str) -> None:
    case = CASES[name]
    cotangent, inputs = case.cotangent().astype(np.longdouble), given(case)
    gradients = evaluate(case, LONG, cotangent, inputs).gradients
    assert set(gradients) == set(inputs.parameters) | (set() if case.layer.takes_ids else {"x"})
    draw = np.random.default_rng(7)
    for tensor, gradient in gradients.items():
        held = inputs.x if tensor == "x" else inputs.parameters[tensor]
        along = draw.standard_normal(held.shape).astype(np.longdouble)

        def loss(steps: int, tensor: str = tensor, held: Array = held, along: Array = along) -> Any:
            moved = held + steps * STEP * along
            at = {"x": moved} if tensor == "x" else {"parameters": {**inputs.parameters, tensor: moved}}
            return (forward(case.layer, replace(inputs, **at), LONG)["output"] * cotangent).sum()

        slope = (8 * (loss(1) - loss(-1)) - (loss(2) - loss(-2))) / (12 * STEP)
        size = np.sqrt((gradient**2).sum()) * np.sqrt(along.size)
        assert abs(slope - (gradient * along).sum()) <= 1e-8 * size + 1e-12, tensor  # of key biases it is 0


def test_a_global_layer_sees_beyond_the_window_and_the_others_do_not() -> None:
    case = CASES["encoder-alternating/whole"]
    weights = {k: stages_of(case)[f"layer_{k}.attention_weights"] for k in range(3)}
    apart = np.abs(np.arange(9)[:, None] - np.arange(9))
    assert (weights[0] > 0).all()
    assert (weights[2] > 0).all()
    assert ((weights[1] > 0) == (apart <= 2)).all()


def test_a_shared_bias_is_a_parameter_of_layer_0_alone_and_added_in_both() -> None:
    case = CASES["encoder-shared-bias/whole"]
    tables = {name: value for name, value in case.parameters().items() if name.endswith("position_bias.table")}
    assert list(tables) == ["layers.0.attention.position_bias.table"]
    stages = stages_of(case)
    added = [stages[f"layer_{k}.position_biased"] - stages[f"layer_{k}.attention_scores"] for k in range(2)]
    assert np.abs(added[0]).max() > 0.01
    assert np.allclose(added[0], added[1], atol=1e-12)


def test_positions_that_skip_padding_are_the_same_wherever_padding_stands() -> None:
    case = CASES["encoder-shared-bias/whole-padding-left"]
    rows = case.parameters()["position_embedding.weight"]
    added = stages_of(case)["embedding_sum"] - case.parameters()["embedding.weight"][case.ids()]
    assert np.allclose(added[1], rows[2:13], atol=1e-15)  # 11 of 11 are valid, and begin with row 2
    assert np.allclose(added[0][4:], rows[2:9], atol=1e-15)  # the last 7 are


def test_positions_that_count_padding_stand_where_they_stand() -> None:
    case = CASES["encoder-patches/whole-padding-left"]
    added = stages_of(case)["embedded"] - case.x()
    assert np.allclose(added, case.parameters()["position_embedding.weight"][:11][None], atol=1e-15)


def test_without_types_of_tokens_all_are_of_type_0() -> None:
    case = CASES["encoder-token-types/whole"]
    zeros = np.zeros(case.x_shape[:2], np.int64)
    none, zero, drawn = (stages_of(case, token_types=each)["output"] for each in (None, zeros, case.token_types()))
    assert np.array_equal(none, zero)
    assert not np.allclose(none, drawn)


def test_a_token_is_multiplied_by_the_root_before_anything_is_added() -> None:
    case = CASES["encoder-scaled/whole"]
    expected = np.sqrt(12) * case.parameters()["embedding.weight"][case.ids()]
    assert np.allclose(stages_of(case)["embedded"], expected, rtol=1e-15)


def test_a_position_without_a_row_is_refused() -> None:
    case = CASES["encoder-patches/whole"]
    longer = replace(case, situation=case.situation.model_copy(update={"sequence": 15}))
    with pytest.raises(ValueError, match="position 14 has no row of the 14, where position 0 has row 0"):
        stages_of(longer)


WRONG = [
    ("encoder-alternating", "global-layers-with-window"),
    ("encoder-alternating", "windows-missing"),
    ("encoder-alternating", "global-layers-theta-of-others"),
    ("encoder-alternating", "global-layers-one-later"),
    ("encoder-alternating", "embedding-norm-missing"),
    ("encoder-scaled", "embedding-scale-missing"),
    ("encoder-scaled", "global-layers-one-later"),
    ("encoder-shared-bias", "position-bias-of-layer-0-alone"),
    ("encoder-shared-bias", "positions-table-from-row-0"),
    ("encoder-shared-bias", "positions-table-one-back"),
    ("encoder-token-types", "positions-table-one-on"),
    ("encoder-token-types", "positions-table-missing"),
    ("encoder-token-types", "token-types-missing"),
    ("encoder-token-types", "token-types-all-0"),
    ("encoder-patches", "positions-table-missing"),
]
"""Layer, and what its output shows."""
WRONG_WITH_PADDING = [
    ("encoder-shared-bias", "positions-table-padding-counted"),
    ("encoder-token-types", "positions-table-padding-skipped"),
    ("encoder-patches", "positions-table-padding-skipped"),
]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [(f"{layer}/whole", wrong) for layer, wrong in WRONG]
    + [(f"{layer}/whole-padding-left", wrong) for layer, wrong in WRONG_WITH_PADDING],
)
def test_the_output_shows_a_wrong_form(name: str, wrong: str) -> None:
    case, deviation = CASES[name], catalogue()[wrong]
    assert changes(case, deviation)
    found = deviant(case, [deviation]).stages(Arithmetic())["output"]
    rows = case.specified()
    assert np.abs(found - right(name))[rows].max() > 1e-4


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("encoder-scaled/whole", "global-layers-theta-of-others"),  # they have no theta of their own
        ("encoder-token-types/whole", "positions-table-from-row-0"),  # it begins there
        ("encoder-token-types/whole", "positions-table-padding-skipped"),  # there is no padding
        ("encoder-shared-bias/whole-padding-left", "positions-table-padding-skipped"),  # the layer's own choice
        ("encoder-scaled/whole", "embedding-scaled"),  # the layer's own choice
        ("encoder-patches/whole", "embedding-scale-missing"),
    ],
)
def test_what_changes_nothing_does_not_apply(name: str, other: str) -> None:
    assert not changes(CASES[name], catalogue()[other])


@pytest.mark.parametrize("name", daily(WHOLE[:2], WHOLE))
def test_every_wrong_form_that_applies_can_be_played(name: str) -> None:
    case = CASES[name]
    played = [each for each in catalogue().values() if changes(case, each)]
    assert len(played) > 80
    for deviation in played:
        assert deviant(case, [deviation]).stages(Arithmetic())["output"].shape == case.x_shape, deviation.deviation
