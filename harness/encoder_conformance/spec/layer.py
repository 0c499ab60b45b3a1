"""The layer language: the sizes and choices of a correct encoder layer (clauses L-*)."""

import struct
from collections.abc import Collection
from functools import lru_cache
from math import inf
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, NonNegativeInt, PositiveInt, model_validator

from encoder_conformance.spec.additions import ADDITIONS, Addition
from encoder_conformance.spec.attention_choices import is_global, theta_of
from encoder_conformance.spec.contradictions import CONTRADICTIONS, contradictions
from encoder_conformance.spec.families import UNFIT_FAMILIES, Family
from encoder_conformance.spec.plain import plain
from encoder_conformance.spec.plan import OWN_BIAS, has_bias, scaled_by
from encoder_conformance.spec.strict import ClauseId, Identifier, Link, Sentence, Strict

Part = Literal["encoder_layer", "attention"]
Placement = Literal["pre", "post", "sandwich", "res_post"]
Parallel = Literal["one_norm", "two_norms"]
NormKind = Literal["layer_norm", "rms_norm"]
Projections = Literal["full", "shared_by_heads"]
FullyMaskedRow = Literal["unspecified", "zero", "uniform", "nan"]
Activation = Literal["relu", "gelu", "gelu_tanh", "silu", "quick_gelu"]
Distances = Literal["logarithmic", "clipped", "linear"]
Slopes = Literal["interpolated"]
AppendedKey = Literal["learned", "zero"]
PaddingContent = Literal["finite", "any"]
SubLayerName = Literal["attention", "feed_forward"]


def _as_float32(value: float) -> float:
    """The float32 nearest to `value`: float32 attributes and float64 code then have the same number (clause L-2)."""
    rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    if not rounded:
        raise ValueError(f"{value} is 0 in float32")
    return rounded


Epsilon = Annotated[float, Field(gt=0, lt=1e6), AfterValidator(_as_float32)]
Factor = Annotated[float, Field(gt=0, lt=1e6)]


class Norm(Strict):
    placement: Placement = Field(
        description="before each sub-layer, after each residual sum, before and after each sub-layer (clause E-25), "
        "or after each sub-layer alone (clause E-40)"
    )
    kind: NormKind = Field(description="clause E-1, or clause E-9, which has no shift")
    epsilon: Epsilon = Field(description="added under the root; rounded to float32 (clause L-2)")
    shift: bool = plain(True, "whether a LayerNorm has a shift (clause E-21)")
    first: bool = plain(True, "whether the very first sub-layer, of layer 0, has a norm before it (clause E-24)")

    @property
    def placed(self) -> str:
        """`pre-norm`, `res-post-norm`: the placement as it is called."""
        return f"{self.placement.replace('_', '-')}-norm"


MaskedScore = Literal["minus_infinity"] | Annotated[float, Field(lt=-1e4, gt=-1e38)]


class HeadNorm(Strict):
    """The norm of queries, and that of keys, before their product (clause E-27)."""

    kind: NormKind
    over: Literal["head", "all"] = Field(description="the features of each head, or of all heads together")
    shift: bool = Field(description="whether it has a shift")


Theta = Annotated[float, Field(gt=1, lt=1e12)]


class Rope(Strict):
    """Rotary position embedding of queries and keys (clause E-22; Su et al., 2021, arXiv 2104.09864)."""

    theta: Theta = Field(description="the base of the frequencies")
    pairing: Literal["halves", "interleaved"] = Field(
        description="the pair of feature i: i + n / 2, or the next one, where n features are rotated"
    )
    rotated: PositiveInt | None = plain(None, "the number of each head's first features that turn; null: all")


class PositionBias(Strict):
    """A bias of scores by the distance from query to key: learned for each bucket (E-23), or a slope times it."""

    buckets: Annotated[int, Field(ge=3)] | None = plain(None, "the rows of the table; null: no table (clause E-43)")
    max_distance: PositiveInt | None = plain(None, "the distance from which on all share the last bucket")
    distances: Distances = plain("logarithmic", "far ones share a bucket, or none up to max_distance (E-42); or linear")
    slopes: Slopes | None = plain(None, "of linear distances, two sequences over the heads; null: one (clause E-43)")


class Window(Strict):
    """The keys that a query may attend to, by position, whatever the mask says (clause E-26)."""

    left: NonNegativeInt = Field(description="keys before the query")
    right: NonNegativeInt = Field(description="keys after it")


class Attention(Strict):
    num_heads: PositiveInt
    head_dim: PositiveInt | None = plain(None, "features of a head; null: d_model / num_heads (clause E-20)")
    kv_heads: PositiveInt | None = plain(None, "heads of key and value, in groups; null: num_heads (clause E-28)")
    qk_norm: HeadNorm | None = plain(None, "the norm of queries and of keys; null: none")
    rope: Rope | None = plain(None, "the rotation of queries and keys by position; null: none")
    position_bias: PositionBias | None = plain(None, "what is added to scores by relative position; null: nothing")
    window: Window | None = plain(None, "the keys near a query that it may attend to; null: all")
    appended_key: AppendedKey | None = plain(None, "a key and value that no position has (clause E-44); null: none")
    softcap: Factor | None = plain(None, "scores become c · tanh(score / c), before the mask (clause E-30); null: none")
    projections: Projections = Field(
        description="query, key and value: a D × D map each, or a d × d map each, shared by all heads (clause E-12)"
    )
    qkv_bias: bool = Field(description="whether query, key and value have a bias, all or some of them")
    query_bias: bool | None = plain(None, "false: query has none, though key or value has; null: what qkv_bias says")
    key_bias: bool | None = plain(None, "false: key has none, though query or value has; null: what qkv_bias says")
    value_bias: bool | None = plain(None, "false: value has none, though query or key has; null: what qkv_bias says")
    output_bias: bool = Field(description="whether the output projection has a bias")
    scale: Literal["head_dim", "d_model"] | Factor = Field(
        description="scores are divided by the square root of this size, or of this number (clauses E-13, E-32)"
    )
    masked_score: MaskedScore = Field(description="the value of a score where the mask is false (M-1, M-6)")
    fully_masked_row: FullyMaskedRow = Field(description="the weights of a query with no key to attend to (M-4)")


class FeedForward(Strict):
    d_ff: PositiveInt
    activation: Activation = Field(description="gelu is the exact GELU, with erf")
    gated: bool = plain(
        False,
        "whether the activation is of a map of its own, the gate, by which the hidden features "
        "are multiplied (clause E-19)",
    )
    bias: bool = Field(description="whether its linear maps have biases, all or some of them")
    gate_bias: bool | None = plain(None, "false: the gate has none, though another map has; null: what bias says")
    hidden_bias: bool | None = plain(None, "false: the first map has none, though the second has; null: what bias says")
    output_bias: bool | None = plain(None, "false: the second map has none, though the first has; null: what bias says")


Rate = Annotated[float, Field(ge=0, lt=1)]


class Dropout(Strict):
    """Dropout rates in training, by stage: the probability that an element becomes 0 (clause A-1)."""

    attention_weights: Rate
    attention_output: Rate = Field(description="before the first residual sum")
    ffn_activation: Rate = Field(description="inside the feed-forward network")
    ffn_output: Rate = Field(description="before the second residual sum")
    embedded: Rate = Field(
        default=0.0, description="of the embedded tokens with their positions, before the first layer of a stack"
    )

    def rates(self) -> dict[str, float]:
        """Stage → dropout rate, without the stages whose rate is 0."""
        return {name: rate for name, rate in self.model_dump().items() if rate}


class GlobalLayers(Strict):
    """The layers of a stack that attend without the window that the others have (clause E-33)."""

    first: NonNegativeInt = Field(description="the number of the first of them, from 0")
    every: PositiveInt = Field(description="from one of them to the next")
    theta: Theta | None = Field(description="the base of the frequencies of their rotation; null: that of the others")

    def count(self, layers: int) -> int:
        """How many of so many layers they are."""
        return len(range(self.first, layers, self.every))


class Stack(Strict):
    layers: PositiveInt = Field(le=4096, description="the number of encoder layers in sequence (clause E-14)")
    final_norm: bool = Field(description="whether a norm follows the last layer (clause E-14)")
    global_layers: GlobalLayers | None = plain(
        None, "the layers without the window that the others have (clause E-33); null: all layers attend alike"
    )
    shared_position_bias: bool = plain(
        False, "whether all layers add the position bias of layer 0 (clause E-34), and not each its own"
    )

    @property
    def is_several(self) -> bool:
        """Whether it is more than one layer by itself: several layers, or a norm after the last."""
        return self.layers > 1 or self.final_norm


class PositionTable(Strict):
    """Positions that are parameters: a row of a table for each (clause E-37)."""

    rows: PositiveInt
    first: NonNegativeInt = Field(description="the row of position 0; rows before it are no position's")
    counted: Literal["all", "valid"] = Field(description="the positions that count: all, or none of padding's")


class Embedding(Strict):
    """What stands before the first layer: token ids in place of x (clause E-15), and what is added to their rows."""

    vocabulary: PositiveInt | None = Field(
        description="the number of token ids; null: x is given, embedded already but for what follows (clause E-39)"
    )
    positions: Literal["none", "sinusoidal", "learned"] = Field(
        description="the position encoding added to the embedded tokens (clauses E-16, E-37)"
    )
    position_table: PositionTable | None = plain(None, "the table of learned positions; null where they are not")
    token_types: PositiveInt | None = plain(None, "the number of types of tokens, a second input (E-36); null: none")
    norm: bool = plain(False, "whether the sum of all is normed (clause E-38)")
    scale: Literal["one", "sqrt_d_model"] = plain("one", "what the tokens' rows are multiplied by (clause E-35)")


def _each_once(named: tuple[SubLayerName, ...]) -> tuple[SubLayerName, ...]:
    if len({*named}) < len(named):
        raise ValueError(f"{', '.join(named)}: each sub-layer is named once")
    return named


ScaledSubLayers = Annotated[
    tuple[SubLayerName, ...], AfterValidator(_each_once), Field(json_schema_extra={"uniqueItems": True})
]


class Layer(Strict):
    """One encoder layer, or a stack of layers with equal sizes and choices.

    An adapter receives `model_dump(mode="json")`.
    """

    layer: Identifier = Field(description="the id, equal to the file's name, stable for ever")
    title: Sentence
    source: Link | None = plain(None, "the model card or paper of the encoder that has this layer; null: nobody's")
    clauses: tuple[ClauseId, ...] = Field(min_length=1, description="clauses of specs/README.md this layer tests")
    family: Family = Field(description="selects the situations that apply: each situation lists its families")
    part: Part = Field(
        default="encoder_layer", description="a whole layer, or attention alone, which takes a memory (clause E-17)"
    )
    d_model: PositiveInt
    norm: Norm
    attention: Attention
    feed_forward: FeedForward
    layer_scale: ScaledSubLayers = plain(
        (), "the sub-layers whose output is multiplied by a gain of its own before the sum (clause E-31)"
    )
    residual_scale: Factor = plain(1.0, "what a sub-layer adds to the residual sum is multiplied by this (clause E-29)")
    parallel: Parallel | None = plain(
        None,
        "the norms before the sub-layers where both read x: one that both share, or one each (clause E-41); null: the "
        "feed-forward network follows attention",
    )
    dropout: Dropout
    stack: Stack
    embedding: Embedding | None
    padded_rows: Literal["unspecified"] = Field(description="the output at padded positions")
    padding_content: PaddingContent = Field(
        description="the values that padded positions of x may have without an effect on other rows (clause M-8)"
    )

    @property
    def head_dim(self) -> int:
        return self.attention.head_dim or self.d_model // self.attention.num_heads

    @property
    def scaled_by(self) -> float:
        """The number by whose square root scores are divided (clauses E-5, E-13)."""
        return scaled_by(self)

    @property
    def is_stack(self) -> bool:
        """Whether it has several layers, a final norm or an embedding (clause E-14)."""
        return self.stack.is_several or self.embedding is not None

    def has_bias(self, linear: str) -> bool:
        """Whether a linear map, such as `attention.key`, has a bias (clause L-3)."""
        return has_bias(self, linear)

    @property
    def lacks_bias(self) -> tuple[str, ...]:
        """The linear maps without a bias whose like have one, such as `attention.key` (clause L-3)."""
        common = {"attention": self.attention.qkv_bias, "feed_forward": self.feed_forward.bias}
        maps = OWN_BIAS.values()
        return tuple(each for each in maps if common[each.partition(".")[0]] and not self.has_bias(each))

    def lacking(self, maps: Collection[str]) -> "Layer":
        """The layer in which these linear maps lack the bias that their like have, and no others do."""
        own: dict[str, dict[str, bool | None]] = {"attention": {}, "feed_forward": {}}
        for key, linear in OWN_BIAS.items():
            part, _, name = key.partition(".")
            own[part][name] = False if linear in maps else None
        parts = {part: getattr(self, part).model_copy(update=keys) for part, keys in own.items()}
        return self.model_copy(update=parts)

    @property
    def with_decimal_epsilon(self) -> "Layer":
        """The layer with the decimal that its epsilon's float32 stands for: what code in float64 has (1e-5, L-2)."""
        norm = self.norm.model_copy(update={"epsilon": float(f"{self.norm.epsilon:.6g}")})
        return self.model_copy(update={"norm": norm})

    @property
    def unfit_family(self) -> str:
        """The reason why the layer does not fit its family's situations; "" if it does."""
        return next(contradictions(self, UNFIT_FAMILIES), "")

    @property
    def one_of_it(self) -> "Layer":
        """A single encoder layer of the stack, without embedding and final norm."""
        alone = Stack(layers=1, final_norm=False)
        dropout = self.dropout.model_copy(update={"embedded": 0.0})
        update = {"stack": alone, "embedding": None, "dropout": dropout}
        return self.model_copy(update=update) if self.is_stack else self

    @property
    def additions(self) -> tuple[Addition, ...]:
        """What it uses of that which the language was extended by."""
        return _additions(self)

    @property
    def takes_ids(self) -> bool:
        """Whether token ids come in the place of x (clause E-15)."""
        return self.embedding is not None and self.embedding.vocabulary is not None

    @property
    def last_position(self) -> float:
        """The last position that x may have: as far as there are rows of positions (clause E-37), or ∞."""
        table = None if self.embedding is None else self.embedding.position_table
        return inf if table is None else table.rows - table.first - 1

    def of_number(self, number: int) -> "Layer":
        """Layer `number` of a stack by itself, with the choices that it has there (clauses E-24, E-33)."""
        one, described = self.one_of_it, self.attention
        norm = one.norm.model_copy(update={"first": one.norm.first or number > 0})
        theta = theta_of(self, number)
        rope = None if described.rope is None else described.rope.model_copy(update={"theta": theta})
        window = None if is_global(self, number) else described.window
        attention = one.attention.model_copy(update={"rope": rope, "window": window})
        return one.model_copy(update={"norm": norm, "attention": attention})

    @property
    def reads_positions(self) -> bool:
        """Whether its output depends on where a position stands, and not on what the others hold alone (I-4)."""
        attention = self.attention
        return any(each is not None for each in (attention.rope, attention.position_bias, attention.window))

    @property
    def takes_memory(self) -> bool:
        """Whether keys and values come from a second input, the memory (clause E-17)."""
        return self.part == "attention"

    @model_validator(mode="after")
    def _without_contradictions(self) -> "Layer":
        if found := [*contradictions(self, CONTRADICTIONS)]:
            raise ValueError("; ".join(found))
        return self


@lru_cache(maxsize=512)
def _additions(layer: Layer) -> tuple[Addition, ...]:
    return tuple(name for name, is_used in ADDITIONS.items() if is_used(layer))
