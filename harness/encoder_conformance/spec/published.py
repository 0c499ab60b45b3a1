"""The choices of published encoders (`specs/published.yaml`), and those of a layer that none of them makes.

A layer that no encoder has may be meant so. Far more often a constant was lost on the way: 1e-3 for 1e-5 in a port from
Keras, ReLU where a configuration said nothing.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from pydantic import Field

from encoder_conformance.platform.paths import SPECS
from encoder_conformance.spec.layer import Activation, Epsilon, Layer, NormKind
from encoder_conformance.spec.plain import whole
from encoder_conformance.spec.plan import OWN_BIAS
from encoder_conformance.spec.strict import Link, Strict
from encoder_conformance.spec.yaml_file import read_model

Bias = bool | Literal["either"]
SHOWN = 3
"""How many names a message gives."""
_DEFAULTS = ((1e-3, "Keras' default"), (1e-8, "that of x-transformers' RMSNorm"), (1e-7, "DeBERTa's"))
"""Epsilons that are known to be somebody's."""
_SELDOM = {
    "gelu_tanh": "BERT, RoBERTa, ViT and Whisper have erf",
    "silu": "most encoders have gelu or relu",
    "quick_gelu": "BERT, RoBERTa, ViT and Whisper have erf",
}
"""Activation that some have, and that another may have been meant for → what is usual."""


class PublishedNorm(Strict):
    placement: tuple[Literal["pre", "post", "sandwich"], ...] = Field(min_length=1)
    kind: NormKind
    epsilon: tuple[Epsilon, ...] = Field(min_length=1)

    def has_epsilon(self, value: float) -> bool:
        """Whether it is one of its own, in float32 or as the decimal that this stands for."""
        return any(_is_near(value, own) for own in self.epsilon)


class PublishedAttention(Strict):
    scale: Literal["head_dim", "one", "head_dim_and_terms"] = Field(description="scores are divided by its square root")
    head_dim: tuple[int, ...] = Field(description="features of a head, as published; empty: free")


class PublishedBiases(Strict):
    query: Bias
    key: Bias
    value: Bias
    output: Bias
    feed_forward: Bias


class PublishedFeedForward(Strict):
    activation: tuple[Activation, ...] = Field(min_length=1)
    gated: bool


Inside = Literal[
    "rope", "position_buckets", "position_table", "disentangled", "softcap", "window", "qk_norm", "layer_scale",
]  # fmt: skip


class PublishedEncoder(Strict):
    """One layer of a published encoder, or of a library (`kind`)."""

    encoder: str
    kind: Literal["model", "framework"]
    source: Link
    norm: PublishedNorm
    attention: PublishedAttention
    biases: PublishedBiases
    feed_forward: PublishedFeedForward
    inside: tuple[Inside, ...] = Field(description="what it does besides, which the layer language has no key for")

    def differences(self, layer: Layer) -> dict[str, str]:
        """Choice of `layer` that this encoder does not make → what it has there."""
        norm, own, biases = self.norm, layer.norm, self.biases
        qkv = "either" in (biases.query, biases.value) or biases.query is layer.attention.qkv_bias
        checked = {
            "norm.placement": (own.placement in norm.placement, " or ".join(norm.placement)),
            "norm.kind": (own.kind == norm.kind, norm.kind),
            "norm.epsilon": (norm.has_epsilon(own.epsilon), " or ".join(f"{value:.6g}" for value in norm.epsilon)),
            "attention.scale": (layer.attention.scale == self.attention.scale, self.attention.scale),
            "attention.qkv_bias": (qkv, _yes_no(biases.query)),
            "attention.output_bias": (biases.output in (layer.attention.output_bias, "either"), _yes_no(biases.output)),
            "feed_forward.bias": (
                biases.feed_forward in (layer.feed_forward.bias, "either"),
                _yes_no(biases.feed_forward),
            ),
            "feed_forward.activation": (
                layer.feed_forward.activation in self.feed_forward.activation,
                " or ".join(self.feed_forward.activation) + (", gated" if self.feed_forward.gated else ""),
            ),
        }
        checked |= self._own_biases(layer)
        if self.feed_forward.gated:
            checked["feed_forward.activation"] = False, checked["feed_forward.activation"][1]
        return {choice: has for choice, (same, has) in checked.items() if not same}

    def _own_biases(self, layer: Layer) -> dict[str, tuple[bool, str]]:
        """Own key of a bias → whether this encoder has none where the layer has none, and what it has there.

        A bias too many is no difference: Whisper with a bias of its keys is still Whisper, as no output shows it.
        """
        found = {}
        for key, linear in OWN_BIAS.items():
            part, _, name = linear.partition(".")
            bias: Bias = getattr(self.biases, name) if part == "attention" else self.biases.feed_forward
            if linear in layer.lacks_bias:
                found[key] = bias in (False, "either"), _yes_no(bias)
        return found


class Published(Strict):
    encoders: tuple[PublishedEncoder, ...]


def _is_near(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-4)


def _yes_no(bias: Bias) -> str:
    return str(bias).lower()


@cache
def published() -> tuple[PublishedEncoder, ...]:
    return read_model(SPECS / "published.yaml", Published).encoders


@dataclass(frozen=True)
class Unusual:
    """A choice of a layer, or a combination of choices, that no published encoder makes, or few do."""

    choice: str
    text: str

    def __str__(self) -> str:
        return self.text


def unusual(layer: Layer) -> tuple[Unusual, ...]:
    """Warnings of `validate` and `check` for a layer that nobody stated: choices that no published encoder makes; where
    each has its encoder, their combination; where some encoder makes all, a choice that few make."""
    found = tuple(_unusual_choices(layer)) or tuple(_unusual_combination(layer)) or tuple(_seldom(layer))
    return (*found, *_unusual_end(layer))


def _no_encoder_has(choice: str, value: str, usual: str) -> Unusual:
    return Unusual(choice, f"{choice} is {value}, which no published encoder has; usual: {usual}")


def epsilon_of(value: float, rounded: Callable[[float], float]) -> float:
    """The published epsilon that a format rounds to this value; the value itself where there is none."""
    known = {epsilon for each in published() for epsilon in each.norm.epsilon}
    return next((epsilon for epsilon in sorted(known) if value in (epsilon, rounded(epsilon))), value)


def _unusual_choices(layer: Layer) -> Iterator[Unusual]:
    norm = layer.norm
    kin = [each for each in published() if each.norm.kind == norm.kind and norm.placement in each.norm.placement]
    yield from _unusual_norm(layer, kin)
    if layer.attention.scale not in {each.attention.scale for each in published()}:
        usual = f"1/√head_dim = 1/√{layer.head_dim} ({_names(each.encoder for each in published())})"
        yield _no_encoder_has("attention.scale", f"1/√{layer.attention.scale} = 1/√{layer.scaled_by}", usual)
    if layer.attention.projections != "full":
        yield _no_encoder_has("attention.projections", layer.attention.projections, "a projection for each head")
    sizes = sorted({size for each in kin or published() for size in each.attention.head_dim})
    if layer.head_dim not in sizes and layer.d_model >= LEAST_D_MODEL:
        value = f"{layer.attention.num_heads}, of {layer.head_dim} features each"
        yield _no_encoder_has("attention.num_heads", value, ", ".join(map(str, sizes)))


def _unusual_norm(layer: Layer, kin: Sequence[PublishedEncoder]) -> Iterator[Unusual]:
    """`kin`: the encoders that have such a norm at such a place."""
    own = layer.norm
    if not kin:
        families: dict[str, str] = {}
        for each in published():
            for placement in each.norm.placement:
                families.setdefault(f"{placement}-norm {each.norm.kind}", each.encoder)
        usual = ", ".join(f"{name} ({who})" for name, who in sorted(families.items()))
        yield _no_encoder_has("norm", f"{own.placement}-norm {own.kind}", usual)
    elif not any(each.norm.has_epsilon(own.epsilon) for each in kin):
        usual = _who({f"{value:.6g}": each.encoder for each in kin for value in each.norm.epsilon}, kin)
        usual += "".join(
            f"; {own.epsilon:.6g} is {whose}" for value, whose in _DEFAULTS if _is_near(own.epsilon, value)
        )
        yield _no_encoder_has("norm.epsilon", f"{own.epsilon:.6g} in a {own.placement}-norm {own.kind}", usual)


LEAST_D_MODEL = 128
"""A narrower layer is nobody's published encoder: the sizes of its heads say nothing."""


def _unusual_combination(layer: Layer) -> Iterator[Unusual]:
    """Nothing where some encoder makes every choice."""
    differences = {each.encoder: each.differences(layer) for each in published()}
    least = min(map(len, differences.values()))
    if not least:
        return
    nearest = {name: found for name, found in differences.items() if len(found) == least}
    found = next(iter(nearest.values()))
    alike = [other for other, its in nearest.items() if its == found]
    keys = whole(layer)
    value = " and ".join(f"{choice} {_chosen(keys, choice)}" for choice in found)
    usual = " and ".join(f"{choice} {has}" for choice, has in found.items())
    yield _no_encoder_has("the combination", f"{_described(layer)}, with {value}", f"{usual} ({_names(alike)})")


def _seldom(layer: Layer) -> Iterator[Unusual]:
    """An activation that some encoder has, and that stands more often for another by a slip."""
    activation = layer.feed_forward.activation
    if activation in _SELDOM:
        own = _names(each.encoder for each in published() if not each.differences(layer))
        text = f"feed_forward.activation is {activation}, as in {own}; {_SELDOM[activation]}"
        yield Unusual("feed_forward.activation", text)


def _unusual_end(layer: Layer) -> Iterator[Unusual]:
    if layer.stack.final_norm and layer.norm.placement == "post":
        yield Unusual("stack.final_norm", "a norm after the last layer, which post-norm stacks do not have")
    elif layer.stack.layers > 1 and not layer.stack.final_norm and layer.norm.placement == "pre":
        yield Unusual("stack.final_norm", "a pre-norm stack without a norm after its last layer; is it outside?")


def _described(layer: Layer) -> str:
    return f"{layer.norm.placement}-norm {layer.norm.kind} ε {layer.norm.epsilon:.6g}"


def _chosen(layer: dict[str, dict[str, object]], choice: str) -> str:
    part, _, key = choice.partition(".")
    value = layer[part][key]
    return f"{value:.6g}" if isinstance(value, float) else str(value).lower()


def _who(having: dict[str, str], kin: Iterable[PublishedEncoder]) -> str:
    return ", ".join(
        f"{text} ({_names(e.encoder for e in kin if any(f'{v:.6g}' == text for v in e.norm.epsilon))})"
        for text in having
    )


def _names(names: Iterable[str]) -> str:
    several = list(names)
    return ", ".join(several[:SHOWN]) + (" …" if len(several) > SHOWN else "")
