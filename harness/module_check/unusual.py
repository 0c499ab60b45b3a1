"""What is unusual in a layer that was read off a module: its choices against those that published encoders make.

A file was exported from something that somebody else can be asked for; a module is all there is. So this says more than
`spec.published` does of a file: also what some encoder has and most have not.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.published import SHOWN, PublishedEncoder, published

_DEFAULTS = {1e-3: "Keras' default", 1e-8: "x-transformers' RMSNorm", 1e-7: "DeBERTa's"}
"""Epsilon → whose it is, where it is known for that."""
_SELDOM = {
    "gelu_tanh": ("GELU by tanh", "BERT, RoBERTa, ViT and Whisper have erf"),
    "silu": ("silu", "most encoders have gelu or relu"),
}
"""Activation that some have, and that another may have been meant for → its name, and what is usual."""
_HEAD_DIMS = (32, 64, 96, 128)
_WIDE = 256
"""A d_model from which heads of other sizes are said."""


@dataclass(frozen=True)
class Unusual:
    """`key`: the choice in the layer language."""

    key: str
    text: str


def unusual(layer: Layer) -> tuple[Unusual, ...]:
    """The choices of an encoder that none, or few, of the published ones make."""
    alike = [each for each in published() if _is_alike(each, layer)]
    return (*_of_norm(layer, alike), *_of_activation(layer, alike), *_of_attention(layer), *_of_stack(layer))


def _is_alike(each: PublishedEncoder, layer: Layer) -> bool:
    norm, activation = layer.norm, layer.feed_forward.activation
    same_norm = norm.kind == each.norm.kind and norm.placement in each.norm.placement
    return same_norm and activation in each.feed_forward.activation and not each.feed_forward.gated


def _of_norm(layer: Layer, alike: Sequence[PublishedEncoder]) -> Iterator[Unusual]:
    epsilon = layer.norm.epsilon
    if any(_near(known, epsilon) for each in alike for known in each.norm.epsilon):
        return
    whose = next((f": {name}" for value, name in _DEFAULTS.items() if _near(value, epsilon)), "")
    if any(_near(known, epsilon) for each in published() for known in each.norm.epsilon):
        activation = layer.feed_forward.activation  # alone each is usual: which of the two is wrong nobody can tell
        whose = f" with {activation} in a {layer.norm.placement}-norm layer{whose}"
    others = "; ".join(f"{each.encoder} has {_listed(each.norm.epsilon)}" for each in alike[:SHOWN])
    yield Unusual("norm.epsilon", f"epsilon {epsilon:g}{whose}{'; ' if others else ''}{others}")


def _of_activation(layer: Layer, alike: Sequence[PublishedEncoder]) -> Iterator[Unusual]:
    activation, placement = layer.feed_forward.activation, layer.norm.placement
    with_it = [each.encoder for each in published() if activation in each.feed_forward.activation]
    if not alike:
        whose = f"; {', '.join(with_it[:SHOWN])} has it otherwise" if with_it else ""
        text = f"{activation} in a {placement}-norm {layer.norm.kind} layer: no published encoder here has it{whose}"
        yield Unusual("feed_forward.activation", text)
    elif activation in _SELDOM:
        named, others = _SELDOM[activation]
        names = ", ".join(each.encoder for each in alike[:SHOWN])
        yield Unusual("feed_forward.activation", f"{named}, as {names}; {others}")


def _of_attention(layer: Layer) -> Iterator[Unusual]:
    attention = layer.attention
    if attention.scale != "head_dim":
        yield Unusual("attention.scale", f"scores over the root of {attention.scale}, and not of head_dim")
    if attention.projections != "full":
        yield Unusual("attention.projections", "all heads share one projection")
    if attention.qkv_bias != attention.output_bias:
        with_bias = "query, key and value have" if attention.qkv_bias else "the output projection has"
        yield Unusual("attention.qkv_bias", f"only {with_bias} a bias, and not all of attention")
    if layer.head_dim < 8 or (layer.d_model >= _WIDE and layer.head_dim not in _HEAD_DIMS):
        text = f"{attention.num_heads} heads of {layer.head_dim} features; 64 is usual"
        yield Unusual("attention.num_heads", text)


def _of_stack(layer: Layer) -> Iterator[Unusual]:
    if layer.stack.final_norm and layer.norm.placement == "post":
        yield Unusual("stack.final_norm", "a norm after the last layer, which post-norm stacks do not have")
    elif layer.stack.layers > 1 and not layer.stack.final_norm and layer.norm.placement == "pre":
        yield Unusual("stack.final_norm", "a pre-norm stack without a norm after its last layer; is it outside?")


def _listed(values: Sequence[float]) -> str:
    return " or ".join(f"{value:g}" for value in values)


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= 1e-4 * other
