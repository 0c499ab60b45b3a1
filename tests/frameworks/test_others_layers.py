"""The oracle against transformers' own encoder layers, in float64: the output, and the gradients by x and by each
parameter.

The plan, the oracle and our encoders have one author; these layers have others. Our side of a comparison is made of
`specs/published.yaml` alone and theirs of its class and configuration, which holds the entries of that file, too.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from others_layers import LAYERS, Place, Theirs
from pydantic import ValidationError
from torch import Tensor, nn

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.encoder import evaluate
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import load
from encoder_conformance.spec.plain import whole
from encoder_conformance.spec.published import Bias, PublishedEncoder, published

LIMITS = {"no-mask": 1e-13, "padding-right": 1e-13, "low-variance": 1e-10}
"""Situation → the relative error that is allowed. Found were 1.2e-15, and 8e-12 in the last, where the norms' epsilon
decides: its keys are alike, and the query's gradient sums their differences."""
QUERY_BIAS, KEY_BIAS = "attention.query.bias", "attention.key.bias"
"""A key's bias adds one number to all scores of a query, and changes no weight: its gradient is 0. The roundings found
there are compared with the gradient by the query's bias."""


def layers_of(encoder: PublishedEncoder) -> Iterator[Layer]:
    """A layer for each combination of the encoder's choices, at the sizes of pre-gelu, as code in float64 has it; none
    where the layer language cannot say them."""
    norm, biases, network = encoder.norm, encoder.biases, encoder.feed_forward
    if encoder.kind != "model" or encoder.inside or network.gated:
        return
    own = {f"{name}_bias": False for name in ("query", "key", "value") if getattr(biases, name) is False}
    combinations = product(norm.placement, norm.epsilon, network.activation, _either(biases.query))
    for placement, epsilon, activation, qkv_bias in combinations:
        attention = {"qkv_bias": qkv_bias, "output_bias": biases.output, "scale": encoder.attention.scale}
        attention |= own if qkv_bias else {}
        try:
            layer = changed(
                load().layers["pre-gelu"],
                norm={"placement": placement, "kind": norm.kind, "epsilon": epsilon},
                attention=attention,
                feed_forward={"activation": activation, "bias": biases.feed_forward},
            )
        except ValidationError:  # a value that its key does not have
            continue
        yield layer.with_decimal_epsilon


def _either(bias: Bias) -> tuple[bool, ...]:
    return (True, False) if bias == "either" else (bias,)


def changed(layer: Layer, **parts: Mapping[str, object]) -> Layer:
    """The layer with other values of keys. Raises ValidationError for values that a key does not have."""
    keys = whole(layer)
    return Layer.model_validate(keys | {name: {**keys[name], **part} for name, part in parts.items()})


@dataclass(frozen=True)
class Comparison:
    """A layer of the specification, a module that should be it, and the place of each parameter in that."""

    layer: Layer
    module: nn.Module
    places: Mapping[str, Place]
    needs_mask: bool

    def errors(self, situation: str) -> dict[str, float]:
        """Output, "x" or parameter → the largest difference over the largest number; of outputs at valid positions."""
        case = Case(self.layer, load().situations[situation])
        due = self.theirs(case)
        evaluation = evaluate(case, Arithmetic(np.float64), case.cotangent())
        found = {**evaluation.gradients, "output": evaluation.stages["output"][case.valid()]}
        assert set(found) == set(due)
        sizes = {name: np.abs(value).max() for name, value in due.items()}
        if KEY_BIAS in sizes:
            sizes[KEY_BIAS] = sizes[QUERY_BIAS]
        return {name: float(np.abs(found[name] - due[name]).max() / sizes[name]) for name in due}

    def theirs(self, case: Case) -> dict[str, Array]:
        """Their output at valid positions, and their gradients by x and by each parameter, as the specification has
        their names and axes."""
        drawn = {self.places[name].name: self.places[name].turned(value) for name, value in case.parameters().items()}
        self.module.load_state_dict({name: torch.tensor(value) for name, value in drawn.items()})  # all, and no other
        self.module.zero_grad()
        x = torch.tensor(case.x(), requires_grad=True)
        answer = self.module(x, self.mask(case))
        output = answer[0] if isinstance(answer, tuple) else answer
        output.backward(torch.tensor(case.cotangent()))
        own = dict(self.module.named_parameters())
        gradients = {name: place.turned(own[place.name].grad.numpy()) for name, place in self.places.items()}
        return {**gradients, "x": x.grad.numpy(), "output": output.detach().numpy()[case.valid()]}

    def mask(self, case: Case) -> Tensor | None:
        """What is added to the scores, [B, 1, S, S]: a form that all of their layers take, by sdpa and by hand."""
        B, S, _ = case.x_shape
        if (allowed := case.mask()) is None and not self.needs_mask:
            return None
        added = np.where(True if allowed is None else allowed, 0.0, -np.inf)
        return torch.tensor(np.broadcast_to(added, (B, 1, S, S)).copy())


@cache
def comparisons(encoder: str) -> tuple[Comparison, ...]:
    (entry,) = (each for each in published() if each.encoder == encoder)
    rows = zip(layers_of(entry), LAYERS[encoder], strict=True)
    return tuple(_comparison(encoder, layer, theirs) for layer, theirs in rows)


def _comparison(encoder: str, layer: Layer, theirs: Theirs) -> Comparison:
    module = theirs.made(encoder, layer)
    return Comparison(layer, module, theirs.places(module), theirs.needs_mask)


def test_every_encoder_that_the_layer_language_describes_is_compared() -> None:
    described = {each.encoder: count for each in published() if (count := len([*layers_of(each)]))}
    assert {encoder: len(layers) for encoder, layers in LAYERS.items()} == described


@pytest.mark.parametrize("encoder", LAYERS)
def test_the_oracle_agrees_with_their_layer(encoder: str) -> None:
    for comparison, situation in product(comparisons(encoder), LIMITS):
        errors = comparison.errors(situation)
        wrong = {name: error for name, error in errors.items() if not error <= LIMITS[situation]}
        assert not wrong, (comparison.layer.norm, comparison.layer.feed_forward, situation)


Mistake = Callable[[Comparison], Comparison]


def _chosen(**parts: dict[str, Any]) -> Mistake:
    return lambda right: replace(right, layer=changed(right.layer, **parts))


def _other_activation(right: Comparison) -> Comparison:
    return _chosen(feed_forward={"activation": _not("gelu", right.layer.feed_forward.activation, "gelu_tanh")})(right)


def _other_placement(right: Comparison) -> Comparison:
    return _chosen(norm={"placement": _not("pre", right.layer.norm.placement, "post")})(right)


def _not(one: str, own: str, other: str) -> str:
    return other if own == one else one


def _query_as_it_is(right: Comparison) -> Comparison:
    return _placed(right, {"attention.query.weight": Place(right.places["attention.query.weight"].name)})


def _exchanged(one: str, other: str) -> Mistake:
    return lambda right: _placed(right, {one: right.places[other], other: right.places[one]})


def _placed(right: Comparison, places: Mapping[str, Place]) -> Comparison:
    return replace(right, places={**right.places, **places})


MISTAKES: dict[str, Mistake] = {
    "another epsilon": _chosen(norm={"epsilon": 3e-6}),
    "another activation": _other_activation,
    "another placement of norms": _other_placement,
    "another scale of scores": _chosen(attention={"scale": "d_model"}),
    "query as it is, and not transposed": _query_as_it_is,
    "key for query, and query for key": _exchanged("attention.query.weight", "attention.key.weight"),
    "second norm for the first": _exchanged("norm1.gain", "norm2.gain"),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_seen_at_every_layer(mistake: Mistake) -> None:
    unseen = [
        encoder
        for encoder in LAYERS
        for right in comparisons(encoder)
        if max(mistake(right).errors("low-variance").values()) < 1000 * LIMITS["low-variance"]
    ]
    assert not unseen
