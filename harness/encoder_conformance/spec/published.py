"""The choices of published encoders (`specs/published.yaml`), and those of a layer that none of them makes.

A layer that no encoder has may be meant so. Far more often a constant was lost on the way: 1e-3 for 1e-5 in a port from
Keras, ReLU where a configuration said nothing.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, reduce
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from encoder_conformance.platform.paths import SPECS
from encoder_conformance.spec.layer import HeadNorm, Layer, PositionBias
from encoder_conformance.spec.load import load, published_layers
from encoder_conformance.spec.plain import whole
from encoder_conformance.spec.plan import OWN_BIAS
from encoder_conformance.spec.strict import Identifier, Link, Strict
from encoder_conformance.spec.words import listed
from encoder_conformance.spec.yaml_file import read_model

SHOWN = 3
"""How many names a message gives."""
_DEFAULTS = (
    (1e-3, "Keras' default"),
    (1e-8, "that of x-transformers' RMSNorm"),
    (1e-7, "DeBERTa's"),
    (2**-23, "float32's own, which nn.RMSNorm takes where it is given none"),
)
"""Epsilons that are known to be somebody's."""
_SELDOM = {
    "gelu_tanh": "BERT, RoBERTa, ViT and Whisper have erf",
    "silu": "most encoders have gelu or relu",
    "quick_gelu": "BERT, RoBERTa, ViT and Whisper have erf",
}
"""Activation that some have, and that another may have been meant for → what is usual."""


class ComparedChoice(NamedTuple):
    """A key by which encoders differ, and what a layer has there, without its sizes."""

    key: str
    of: Callable[[Layer], object]

    def differs(self, own: Layer, layer: Layer) -> bool:
        one, other = self.of(own), self.of(layer)
        if isinstance(one, float) and isinstance(other, float):  # in float32, or as the decimal that this stands for
            return not _is_near(one, other)
        return one != other


def _is_given(key: str) -> ComparedChoice:
    part, _, name = key.partition(".")
    return ComparedChoice(key, lambda layer: "given" if getattr(getattr(layer, part), name) is not None else "none")


def _value(key: str) -> ComparedChoice:
    return ComparedChoice(key, lambda layer: reduce(getattr, key.split("."), layer))


CHOICES = (
    *map(_value, ("norm.placement", "norm.kind", "norm.epsilon", "norm.shift", "norm.first", "attention.scale")),
    *map(_value, ("attention.qkv_bias", "attention.output_bias", "feed_forward.bias", "feed_forward.activation")),
    _value("feed_forward.gated"),
    *map(_is_given, ("attention.kv_heads", "attention.window", "attention.softcap")),
    ComparedChoice("attention.position_bias", lambda layer: _distances(layer.attention.position_bias)),
    ComparedChoice("attention.rope", lambda layer: layer.attention.rope.pairing if layer.attention.rope else "none"),
    ComparedChoice("attention.qk_norm", lambda layer: _norm_of(layer.attention.qk_norm)),
    ComparedChoice("layer_scale", lambda layer: " and ".join(layer.layer_scale) or "none"),
    ComparedChoice("residual_scale", lambda layer: "none" if layer.residual_scale == 1.0 else "given"),
    ComparedChoice("parallel", lambda layer: layer.parallel or "none"),
)
"""What is compared with published encoders: no sizes, and of a rotation and a window no number, as depth and
checkpoints have their own."""


def _norm_of(norm: HeadNorm | None) -> str:
    return f"{norm.kind} over {'a head' if norm.over == 'head' else 'all heads'}" if norm else "none"


def _distances(bias: PositionBias | None) -> str:
    return bias.distances if bias else "none"


Inside = Literal["rope_2d", "position_buckets", "position_table", "disentangled", "value_norm", "windows_2d"]


class Variant(BaseModel):
    """A layer that has other choices than one of `specs/layers`, or of its `published`: its `base`, and those keys."""

    model_config = ConfigDict(frozen=True, extra="allow")
    base: Identifier

    @property
    def layer(self) -> Layer:
        keys = whole(_layer_called(self.base))
        own = {
            key: {**keys[key], **value} if isinstance(value, dict) and key in keys else value
            for key, value in (self.model_extra or {}).items()
        }
        return Layer.model_validate(keys | own)


class PublishedEncoder(Strict):
    """A published encoder, or a layer of a library (`kind`)."""

    encoder: str
    kind: Literal["model", "framework"]
    source: Link = Field(description="the code that it was read in")
    layers: tuple[Identifier | Variant, ...] = Field(
        min_length=1, description="what it chooses, by code or in checkpoints: layers of specs/layers, or of published/"
    )
    head_dim: tuple[int, ...] = Field(description="features of a head, as published; empty: free")
    inside: tuple[Inside, ...] = Field(
        default=(), description="what its layer does besides, which the layer language has no key for"
    )

    @cached_property
    def choices(self) -> tuple[Layer, ...]:
        return tuple(_layer_called(each) if isinstance(each, str) else each.layer for each in self.layers)

    def differences(self, layer: Layer) -> dict[str, str]:
        """Choice of `layer` that this encoder does not make → what the nearest of its layers has there."""
        return min((_differences(own, layer) for own in self.choices), key=_distance)


def _layer_called(name: str) -> Layer:
    published = published_layers()
    return published[name] if name in published else load().layers[name]


def _differences(own: Layer, layer: Layer) -> dict[str, str]:
    """A bias too many is no difference: Whisper with a bias of its keys is still Whisper, as no output shows it."""
    found = {each.key: _text(each.of(own)) for each in CHOICES if each.differs(own, layer)}
    lacking = {key: "true" for key, linear in OWN_BIAS.items() if linear in layer.lacks_bias and own.has_bias(linear)}
    return found | lacking


class Published(Strict):
    encoders: tuple[PublishedEncoder, ...]


def _is_near(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-4)


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


@cache
def published() -> tuple[PublishedEncoder, ...]:
    return read_model(SPECS / "published.yaml", Published).encoders


COMBINATION = "the combination"
_EPSILON = "norm.epsilon"


@dataclass(frozen=True)
class Unusual:
    """A choice of a layer, or a combination of choices, that no published encoder makes, or few do. `usual`: what goes
    on to say what others have."""

    choice: str
    said: str
    usual: str

    def at(self, where: str) -> str:
        """With the line of source that makes it so; "" for none."""
        return f"{self.said}{where}{self.usual}"

    def __str__(self) -> str:
        return self.at("")


def unusual(layer: Layer) -> tuple[Unusual, ...]:
    """Warnings of `validate` and `check` for a layer that nobody stated: choices that no published encoder makes; where
    each but the epsilon has its encoder, their combination; where some encoder makes all, a choice that few make."""
    choices = tuple(_unusual_choices(layer))
    if all(each.choice == _EPSILON for each in choices):
        alike = _of_usual_epsilon(layer) if choices else layer
        choices += tuple(_unusual_combination(layer, alike)) or tuple(_seldom(alike))
    return (*choices, *_unusual_end(layer))


def _of_usual_epsilon(layer: Layer) -> Layer:
    """The layer as it is but for an epsilon that a published encoder has: of these the one that is nearest to some."""
    epsilons = sorted({own.norm.epsilon for each in published() for own in each.choices})
    alike = [
        layer.model_copy(update={"norm": layer.norm.model_copy(update={"epsilon": epsilon})}) for epsilon in epsilons
    ]
    return min(alike, key=lambda other: min(_distance(each.differences(other)) for each in published()))


def _no_encoder_has(choice: str, value: str, usual: str) -> Unusual:
    return Unusual(choice, f"{choice} is {value}", f", which no published encoder known here has; usual: {usual}")


def epsilon_of(value: float, rounded: Callable[[float], float]) -> float:
    """The published epsilon that a format rounds to this value; the value itself where there is none."""
    known = {own.norm.epsilon for each in published() for own in each.choices}
    return next((epsilon for epsilon in sorted(known) if value in (epsilon, rounded(epsilon))), value)


class Kin(NamedTuple):
    """A published encoder, and one of the layers that it has."""

    encoder: PublishedEncoder
    layer: Layer


def _unusual_choices(layer: Layer) -> Iterator[Unusual]:
    norm, every = layer.norm, [Kin(each, own) for each in published() for own in each.choices]
    kin = [each for each in every if (each.layer.norm.kind, each.layer.norm.placement) == (norm.kind, norm.placement)]
    yield from _unusual_norm(layer, kin, every)
    yield from _unusual_scale(layer, every)
    if layer.attention.projections != "full":
        yield _no_encoder_has("attention.projections", layer.attention.projections, "a projection for each head")
    sizes = sorted({size for each in kin or every for size in each.encoder.head_dim})
    if layer.head_dim not in sizes and layer.d_model >= LEAST_D_MODEL:
        value = f"{layer.attention.num_heads}, of {layer.head_dim} features each"
        yield _no_encoder_has("attention.num_heads", value, ", ".join(map(str, sizes)))


def _unusual_norm(layer: Layer, kin: Sequence[Kin], every: Sequence[Kin]) -> Iterator[Unusual]:
    """`kin`: those of `every` published layer that have such a norm at such a place."""
    own = layer.norm
    if not kin:
        families: dict[str, str] = {}
        for each in every:
            families.setdefault(f"{each.layer.norm.placed} {each.layer.norm.kind}", each.encoder.encoder)
        usual = ", ".join(f"{name} ({who})" for name, who in sorted(families.items()))
        yield _no_encoder_has("norm", f"{own.placed} {own.kind}", usual)
    elif not any(_is_near(own.epsilon, each.layer.norm.epsilon) for each in kin):
        having: dict[str, dict[str, None]] = {}
        for each in kin:
            having.setdefault(f"{each.layer.norm.epsilon:.6g}", {})[each.encoder.encoder] = None
        usual = ", ".join(f"{text} ({_names(who)})" for text, who in having.items())
        usual += "".join(
            f"; {own.epsilon:.6g} is {whose}" for value, whose in _DEFAULTS if _is_near(own.epsilon, value)
        )
        yield _no_encoder_has(_EPSILON, f"{own.epsilon:.6g} in a {own.placed} {own.kind}", usual)


def _unusual_scale(layer: Layer, every: Sequence[Kin]) -> Iterator[Unusual]:
    """A scale that none of `every` published layer has; or those alone that have something beside it, and not this
    layer, as T5's position bias."""
    scale = layer.attention.scale
    having = [each for each in every if each.layer.attention.scale == scale]
    usual = f"1/√head_dim = 1/√{layer.head_dim}"
    if not having:
        usual += f" ({_names(each.encoder for each in published())})"
        sizes = layer.head_dim, layer.d_model, layer.attention.num_heads
        known = size_under_root(layer.scaled_by, *sizes)
        divided = " = ".join((f"1/√{layer.scaled_by:g}", *known))
        value = f"1/√{scale} = {divided}" if isinstance(scale, str) else divided
        yield _no_encoder_has("attention.scale", value, usual)
    elif not any(_beside_scores(each.layer) <= _beside_scores(layer) for each in having):
        whose = _names({each.encoder.encoder: None for each in having})
        beside = " or ".join(sorted({word for each in having for word in _beside_scores(each.layer)}))
        said = f"attention.scale is {_text(scale)}"
        yield Unusual("attention.scale", said, f", which {whose} have beside {beside}; usual: {usual}")


def size_under_root(number: float, head_dim: int, d_model: int, heads: int) -> tuple[str, ...]:
    """`1/head_dim`: what scores are multiplied by that are divided by the square root of this number, where it is of
    another size than E-5's. Of 1/head_dim the root was forgotten; of 1/√num_heads two axes were taken for each other.
    """
    sizes = {"1/head_dim": head_dim**2, "1/d_model": d_model**2, "1/√num_heads": heads}
    return tuple(word for word, size in sizes.items() if size > 1 and abs(number / size - 1) < _ROUNDED)[:1]


def _beside_scores(layer: Layer) -> set[str]:
    """What a layer has that takes the place of a scale, or is learned beside it."""
    found = {"a position bias": layer.attention.position_bias, "normed queries and keys": layer.attention.qk_norm}
    return {word for word, value in found.items() if value is not None}


_ROUNDED = 1e-6
"""Relative error of a number that was read of a scale in float32."""
LEAST_D_MODEL = 128
"""A narrower layer is nobody's published encoder: the sizes of its heads say nothing."""


def _unusual_combination(layer: Layer, compared: Layer) -> Iterator[Unusual]:
    """Nothing where some encoder makes every choice of `compared`, which is the layer, if for another epsilon."""
    differences = {each.encoder: each.differences(compared) for each in published()}
    least = min(map(_distance, differences.values()))
    if not least[0]:
        return
    nearest = {name: found for name, found in differences.items() if _distance(found) == least}
    found = next(iter(nearest.values()))
    alike = [other for other, its in nearest.items() if its == found]
    chosen = {each.key: _text(each.of(layer)) for each in CHOICES}
    value = listed([f"{choice} {chosen.get(choice, 'false')}" for choice in _no_encoder_makes(layer, found)])
    usual = " and ".join(f"{choice} {has}" for choice, has in found.items())
    yield _no_encoder_has(COMBINATION, f"{_described(layer)}, with {value}", f"{usual} ({_names(alike)})")


def _no_encoder_makes(layer: Layer, found: Iterable[str]) -> list[str]:
    """What differs from the nearest encoder, which another may have; and so many of its other choices that, beside the
    norm, none has all of them."""
    named = list(found)
    apart = [_differences(own, layer).keys() for each in published() for own in each.choices]
    while left := [keys for keys in apart if keys.isdisjoint({*_DESCRIBED, *named})]:
        named.append(Counter(key for keys in left for key in keys).most_common(1)[0][0])
    return named


def _distance(differences: dict[str, str]) -> tuple[int, int]:
    """How far an encoder is: a step that it has otherwise is nearer than one that it has not."""
    return len(differences), sum(has == "none" for has in differences.values())


def _seldom(layer: Layer) -> Iterator[Unusual]:
    """An activation that some encoder has, and that stands more often for another by a slip; none of a gate."""
    activation = layer.feed_forward.activation
    if activation in _SELDOM and not layer.feed_forward.gated:
        own = _names(each.encoder for each in published() if not each.differences(layer))
        said = f"feed_forward.activation is {activation}"
        yield Unusual("feed_forward.activation", said, f", as in {own}; {_SELDOM[activation]}")


def _unusual_end(layer: Layer) -> Iterator[Unusual]:
    if layer.stack.final_norm and layer.norm.placement == "post":
        yield Unusual("stack.final_norm", "a norm after the last layer", ", which post-norm stacks do not have")
    elif layer.stack.layers > 1 and not layer.stack.final_norm and layer.norm.placement == "pre":
        yield Unusual("stack.final_norm", "a pre-norm stack without a norm after its last layer", "; is it outside?")


_DESCRIBED = ("norm.placement", "norm.kind", "norm.epsilon")


def _described(layer: Layer) -> str:
    return f"{layer.norm.placed} {layer.norm.kind} ε {layer.norm.epsilon:.6g}"


def _names(names: Iterable[str]) -> str:
    several = list(names)
    return ", ".join(several[:SHOWN]) + (" …" if len(several) > SHOWN else "")
