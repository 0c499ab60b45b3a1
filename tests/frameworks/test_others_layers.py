"""The oracle agrees with transformers' own encoder layers, in float64: the output, and the gradients by x and by each
parameter; and what would be a mistake there is seen.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from benchmarks.zoo.agreement import Comparison, comparison
from encoder_conformance.impls.hf_encoders.driving import Driven
from encoder_conformance.impls.hf_encoders.rows import ROWS
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import published_layers
from encoder_conformance.spec.plain import whole

LIMITS = {"no-mask": 1e-13, "padding-right": 1e-13, "low-variance": 1e-10, "length-100": 1e-13}
"""Situation → the relative error that is allowed. Found were 3e-15, and 9e-12 in the third, where the norms' epsilon
decides: its keys are alike, and the query's gradient sums their differences."""
TURNING = {"positions-restart": 1e-13}
TEN_DIGITS = {"vivit": 1e-11}
"""Layers whose activation, `gelu_fast`, has sqrt(2 / π) to ten digits: 2e-12 was found."""


def limits_of(name: str) -> dict[str, float]:
    limits = LIMITS | (TURNING if published_layers()[name].attention.rope else {})
    return {situation: max(limit, TEN_DIGITS.get(name, 0.0)) for situation, limit in limits.items()}


def test_every_published_layer_has_a_row_and_is_compared() -> None:
    assert list(published_layers().keys() - ROWS.keys()) == []
    assert list(ROWS.keys() - published_layers().keys()) == []


@pytest.mark.parametrize("name", ROWS)
def test_the_oracle_agrees_with_their_layer(name: str) -> None:
    for attention in ("sdpa", "eager"):
        limits = limits_of(name) if attention == "sdpa" else {"padding-right": limits_of(name)["padding-right"]}
        for situation, limit in limits.items():
            errors = comparison(name, attention).errors(situation)
            wrong = {tensor: error for tensor, error in errors.items() if not error <= limit}
            assert not wrong, (attention, situation)


def test_sdpa_caps_no_scores() -> None:
    layer = published_layers()["t5gemma"]
    module = Driven("t5gemma", layer.model_dump(mode="json"), "sdpa").double()
    with pytest.raises(ValueError, match="does not support `softcap`"):
        module(torch.zeros(1, 3, layer.d_model, dtype=torch.float64))


Mistake = Callable[[Comparison], Comparison]


def _chosen(**parts: dict[str, Any]) -> Mistake:
    return lambda right: replace(right, layer=changed(right.layer, **parts))


def changed(layer: Layer, **parts: Mapping[str, object]) -> Layer:
    """The layer with other values of keys. Raises ValidationError for values that a key does not have."""
    keys = whole(layer)
    return Layer.model_validate(keys | {name: {**keys[name], **part} for name, part in parts.items()})


def _other_activation(right: Comparison) -> Comparison:
    return _chosen(feed_forward={"activation": _not("gelu", right.layer.feed_forward.activation, "gelu_tanh")})(right)


def _not(one: str, own: str, other: str) -> str:
    return other if own == one else one


def _exchanged(one: str, other: str) -> Mistake:
    """Two parameters in each other's place, wherever a layer has both by themselves and they have one shape."""

    def mistaken(right: Comparison) -> Comparison:
        own = {take.sources: name for name, take in right.takes.items()}
        if (first := own.get((one,))) is None or (second := own.get((other,))) is None:
            raise LookupError(one)
        if right.module.state_dict()[first].shape != right.module.state_dict()[second].shape:
            raise LookupError(one)  # keys of fewer heads
        return replace(right, takes={**right.takes, first: right.takes[second], second: right.takes[first]})

    return mistaken


def _with(**keys: Callable[[Any], object]) -> Mistake:
    """Another value of a key of attention, wherever a layer has the key."""
    [(key, other)] = keys.items()

    def mistaken(right: Comparison) -> Comparison:
        if (own := getattr(right.layer.attention, key)) is None:
            raise LookupError(key)
        return _chosen(attention={key: other(own)})(right)

    return mistaken


MISTAKES: dict[str, Mistake] = {
    "another epsilon": _chosen(norm={"epsilon": 3e-6}),
    "another activation": _other_activation,
    "another scale of scores": _chosen(attention={"scale": 99.0}),
    "second norm for the first": _exchanged("norm1.gain", "norm2.gain"),
    "query for key": _exchanged("attention.query.weight", "attention.key.weight"),
    "another theta": _with(rope=lambda own: {**whole(own), "theta": own.theta / 2}),
    "the other pairing": _with(rope=lambda own: {**whole(own), "pairing": _not("halves", own.pairing, "interleaved")}),
    "a window one wider": _with(window=lambda own: {**whole(own), "right": own.right + 1}),
    "another largest distance": _with(position_bias=lambda own: {**whole(own), "max_distance": 64}),
    "another cap": _with(softcap=lambda own: own / 2),
    "norms of queries with another size": _with(
        qk_norm=lambda own: {**whole(own), "kind": _not("rms_norm", own.kind, "layer_norm")}
    ),
}
SEEN_IN = {"another largest distance": "length-100"}
HAVING = {
    "second norm for the first": 63, "query for key": 56, "another theta": 14, "the other pairing": 14,
    "a window one wider": 4, "another largest distance": 4, "another cap": 1, "norms of queries with another size": 4,
}  # fmt: skip
"""Mistake → the number of layers that have what it is of; the others are of every layer."""


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_seen_at_every_layer_that_can_have_it(mistake: str) -> None:
    situation = SEEN_IN.get(mistake, "low-variance")
    unseen, having = [], 0
    for name in ROWS:
        try:
            wrong = MISTAKES[mistake](comparison(name))
            largest = max(wrong.errors(situation).values())
        except LookupError:
            continue
        having += 1
        if largest < 1000 * limits_of(name)["low-variance"]:
            unseen.append((name, largest))
    assert (unseen, having) == ([], HAVING.get(mistake, len(ROWS)))
