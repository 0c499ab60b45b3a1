"""The plan of an encoder: every step, in the order in which it is taken (clauses E-3 to E-17, T-1, R-1).

This module alone knows the order. Stages, parameters, shapes, equations, the oracle's forward and backward pass,
liveness, residual sums and the sites of dropout are read off it. What a step computes is its form's (`oracle/forms`).

Axes: B batch, S sequence, T keys (S without a memory), D d_model, H num_heads, d head_dim, P = H·d, K kv_heads,
G = K·d, F d_ff, R buckets of relative positions, V vocabulary, U types of tokens, L rows of learned positions.
An adapter has a layer as a dict: `with_attributes` makes of it what the plan reads.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from encoder_conformance.spec.attention_choices import by_distance, cap_of, is_global, qk_norm, rotation

if TYPE_CHECKING:  # adapters import this module, and have numpy and safetensors only
    from encoder_conformance.spec.layer import Layer


@dataclass(frozen=True)
class Step:
    """One step. It `reads` stages and inputs, and `makes` a stage, or a value of its own where it is not `shown`."""

    makes: str
    form: str
    """What it computes: a key of `oracle.forms.FORMS`."""
    reads: tuple[str, ...]
    axes: str
    owner: str = ""
    """The name that its parameters begin with."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """The last word of each parameter's name → its axes."""
    right: str = "standard"
    """The variant of the form that is right in this layer."""
    choices: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of every variant of the form."""
    beside: Mapping[str, str] = field(default_factory=dict)
    """Argument → the stage or input that it is. No gradient goes there."""
    shown: bool = True
    at: str = ""
    """The name of the step in a deviation's patch, where it is not `makes`."""

    @property
    def step(self) -> str:
        """The name of the step in a deviation's patch."""
        return self.at or self.makes

    def parameter_axes(self) -> dict[str, str]:
        """Parameter name → its axes."""
        return {f"{self.owner}.{role}": axes for role, axes in self.parameters.items()}


@lru_cache(maxsize=512)
def plan(layer: "Layer", number: int = 0) -> tuple[Step, ...]:
    """The steps of one encoder layer, from x to output (E-3, E-4, E-41), or of attention alone (E-17).

    `number`: the layer's in a stack, from 0.
    """
    return tuple(_steps(layer, number))


@lru_cache(maxsize=512)
def stack_plan(layer: "Layer") -> tuple[Step, ...]:
    """The steps of a stack, from x or token ids to output (E-14 to E-16). Its layers are one of them."""
    return tuple(_steps_of_stack(layer))


def _steps(layer: "Layer", number: int) -> Iterator[Step]:
    if layer.part == "attention":
        yield from _attention(layer, "x", "memory")
        yield Step("output", "same", ("attention_output",), "B S D")
        return
    placement, x, given, attention = layer.norm.placement, "x", "x", partial(_attention, number=number)
    for place, sublayer, branch in ((1, attention, "attention_output"), (2, _feed_forward, "ffn_output")):
        total, norm = f"residual{place}", f"norm{place}"
        if place == 1 or layer.parallel != "one_norm":
            given = x if layer.parallel is None else "x"
            if placement in _NORMS_BEFORE and (layer.norm.first is not False or (number, place) != (0, 1)):
                yield _norm(layer, norm, given)
                given = norm
        yield from sublayer(layer, given)
        for step in _after_branch(layer, place, x, branch):
            yield step
            branch = step.makes
        shown, beside = layer.parallel is None or place == 2, {"normed": given, "first": "x"}
        yield Step(total, "sum", (x, branch), "B S D", beside=beside, shown=shown)
        x = total
        if placement == "post":
            yield _norm(layer, norm, total)
            x = norm
    last = "ffn_output_norm" if placement == "res_post" else "norm1" if layer.parallel == "one_norm" else "norm2"
    yield Step("output", "same", (x,), "B S D") if placement == "post" else _end(layer, x, "end", last, "final_norm")


_NORMS_BEFORE, _NORMS_AFTER = ("pre", "sandwich"), ("sandwich", "res_post")
"""The placements with a norm before each sub-layer (E-3, E-25), and with one after it (E-25, E-40)."""


def _after_branch(layer: "Layer", place: int, skip: str, branch: str) -> Iterator[Step]:
    """A sub-layer's output up to its residual sum: a norm of it (E-25, E-40), a gain (E-31), a factor (E-29).

    `skip`: what it is added to there.
    """
    x, beside = branch, {"skip": skip}
    if layer.norm.placement in _NORMS_AFTER:
        yield _norm(layer, f"{branch}_norm", x)
        x = f"{branch}_norm"
    if ("attention", "feed_forward")[place - 1] in (layer.layer_scale or ()):
        gain = {"gain": "D"}
        yield Step(f"{branch}_scaled", "by_feature", (x,), "B S D", f"layer_scale{place}", gain, beside=beside)
        x = f"{branch}_scaled"
    if (layer.residual_scale or 1.0) != 1.0:
        weight = {"factor": layer.residual_scale}
        yield Step(f"{branch}_weighed", "times", (x,), "B S D", choices=weight, beside=beside, shown=False)


def _steps_of_stack(layer: "Layer") -> Iterator[Step]:
    x = "x"
    if layer.embedding is not None:
        for step in _embedding(layer):
            yield step
            x = step.makes
    if layer.stack.global_layers is not None:
        yield Step("global_layers", "global_layers", (x,), "B S D", shown=False)
    yield Step("layers", "layers", (x,), "B S D", shown=False, at="layer_order")
    if layer.stack.final_norm:
        yield replace(_norm(layer, "final_norm", "layers"), form="stack_norm", at="stack_norm")
        yield Step("output", "same", ("final_norm",), "B S D")
    else:
        yield _end(layer, "layers", "stack_end", "final_norm", "stack_end")


def _embedding(layer: "Layer") -> Iterator[Step]:
    """From token ids, or from x, to what the first layer takes (E-15, E-16, E-35 to E-39)."""
    embedding, x = layer.embedding, "x"
    assert embedding is not None
    if embedding.vocabulary is not None:
        own, right = {"weight": "V D"}, "by-root" if embedding.scale == "sqrt_d_model" else "standard"
        yield Step("tokens", "tokens", (), "B S D", "embedding", own, right, beside={"ids": "ids"}, shown=False)
        x = "tokens"
    if embedding.token_types is not None:
        own, beside = {"weight": "U D"}, {"types": "token_types"}
        yield Step("typed", "token_types", (x,), "B S D", "token_type_embedding", own, beside=beside, shown=False)
        x = "typed"
    if embedding.positions == "sinusoidal":
        yield Step("positions", "positions", (x,), "B S D", shown=False)
        x = "positions"
    elif (table := embedding.position_table) is not None:
        own, choices = {"weight": "L D"}, {"first": table.first, "counted": table.counted}
        form, owner = "learned_positions", "position_embedding"
        yield Step(form, form, (x,), "B S D", owner, own, choices=choices, shown=False)
        x = form
    if embedding.norm:
        yield Step("embedding_sum", "same", (x,), "B S D")
        yield replace(_norm(layer, "embedding_norm", "embedding_sum"), shown=False)
        x = "embedding_norm"
    dropout = {"dropout": layer.dropout.embedded}
    yield Step("embedded", "after_embedding", (x,), "B S D", choices=dropout, at="after_embedding")


def between_layers(layer: "Layer") -> Iterator[Step]:
    """The step before each layer of a stack but the first: nothing, where positions are added once (E-16)."""
    if layer.embedding is not None and layer.embedding.positions == "sinusoidal":
        yield Step("between_layers", "between_layers", ("x",), "B S D", shown=False)


def _norm(layer: "Layer", makes: str, x: str) -> Step:
    """A norm over the features (E-1), or one without a shift (E-9)."""
    shift = layer.norm.kind == "layer_norm" and layer.norm.shift is not False
    parameters = {"gain": "D", "shift": "D"} if shift else {"gain": "D"}
    choices = {"epsilon": layer.norm.epsilon}
    return Step(makes, "norm", (x,), "B S D", makes, parameters, right=_right_norm(layer), choices=choices)


def _end(layer: "Layer", x: str, form: str, norm: str, at: str) -> Step:
    """The output, where one norm too many may be taken, with the parameters of `norm`."""
    choices = {"epsilon": layer.norm.epsilon}
    return Step("output", form, (x,), "B S D", norm, right=_right_norm(layer), choices=choices, at=at)


def _right_norm(layer: "Layer") -> str:
    return "standard" if layer.norm.kind == "layer_norm" else layer.norm.kind


def _attention(layer: "Layer", queries: str, memory: str = "", number: int = 0) -> Iterator[Step]:
    """Multi-head attention (E-5, E-12, E-13, M-1 to M-7). Without a memory keys are of what queries are of."""
    own = dict.fromkeys(("query", "key", "value"), "")
    yield from _projections(layer, queries, memory or queries, own)
    yield from _positioned(layer, own, number)
    yield from _scores(layer, own, number)
    yield from _masked(layer, number)
    beside, turned = {"weights": "attention_weights"}, rotation(layer, head_dim(layer), number)
    yield Step("context", "attend", ("biased", own["value"]), "B H S d", choices=turned, beside=beside, at="attend")
    yield Step("context_merged", "merge_heads", ("context",), "B S P", at="merge_heads")
    yield _linear(layer, "attention_output", "context_merged", "B S D", "attention.output", ("P", "D"))


_QUERY_KEY_VALUE = (("query", "S", "H", "P"), ("key", "T", "K", "G"), ("value", "T", "K", "G"))
"""What is projected, and the axes of its positions, of its heads and of the features of all its heads."""


def _projections(layer: "Layer", queries: str, keys: str, own: dict[str, str]) -> Iterator[Step]:
    """Query, key and value by heads (E-2, E-12, E-28), normed (E-27). `own`: set to the stage that each ends as."""
    attention = layer.attention
    heads = {"query": attention.num_heads, "key": attention.kv_heads or attention.num_heads}
    heads["value"] = heads["key"]
    shared = attention.projections == "shared_by_heads"
    for name, axis, _, wide in _QUERY_KEY_VALUE:
        x, fan = queries if name == "query" else keys, ("d", "d") if shared else ("D", wide)
        sizes = {"num_heads": heads[name], "scaled_by": scaled_by(layer)}
        map = _linear(layer, name, x, f"B {axis} {wide}", f"attention.{name}", fan)
        yield replace(map, form="projection", right="shared_by_heads" if shared else "standard", choices=sizes)
        own[name] = name
    yield from _head_norms(layer, own, "all")
    for name, axis, letter, _ in _QUERY_KEY_VALUE:
        made = f"{name}_heads"
        yield Step(made, "split_heads", (own[name],), f"B {letter} {axis} d", choices={"num_heads": heads[name]})
        own[name] = made
    yield from _head_norms(layer, own, "head")


def _head_norms(layer: "Layer", own: dict[str, str], over: str) -> Iterator[Step]:
    """The norms of queries and keys, over the features of each head, or of all heads (E-27)."""
    chosen, choices = layer.attention.qk_norm, qk_norm(layer, over)
    if chosen is None or not choices:
        return
    right = choices.pop("norm")
    for name, axis, letter, wide in _QUERY_KEY_VALUE[:2]:
        axes, size = (f"B {axis} {wide}", wide) if over == "all" else (f"B {letter} {axis} d", "d")
        parameters, made = {"gain": size} | ({"shift": size} if chosen.shift else {}), f"{own[name]}_norm"
        yield Step(made, "norm", (own[name],), axes, f"attention.{name}_norm", parameters, right, choices)
        own[name] = made


def _positioned(layer: "Layer", own: dict[str, str], number: int) -> Iterator[Step]:
    """Queries and keys turned by their positions (E-22); a key and a value that are no position's beside the others
    (E-44); keys and values repeated for the heads that share them."""
    attention = layer.attention
    if attention.rope is not None:
        choices = rotation(layer, head_dim(layer), number)
        right, normed = choices.pop("right"), qk_norm(layer, "head")
        for name, axis, letter, _ in _QUERY_KEY_VALUE[:2]:
            made, axes = f"{name}_rotated", f"B {letter} {axis} d"
            owner = f"attention.{name}_norm" if normed else ""
            yield Step(made, "rotation", (own[name],), axes, owner, right=right, choices=choices | normed)
            own[name] = made
    for name in ("key", "value") if attention.appended_key else ():  # E-44
        made, vector = f"appended_{name}", {"vector": "G"} if attention.appended_key == "learned" else {}
        yield Step(made, "append", (own[name],), "B K T d", f"attention.{made}", vector, shown=False)
        own[name] = made
    if (times := attention.num_heads // (attention.kv_heads or attention.num_heads)) > 1:
        for name in ("key", "value"):
            repeated = f"{name}_repeated"
            yield Step(repeated, "repeat_heads", (own[name],), "B H T d", choices={"times": times}, shown=False)
            own[name] = repeated


def _scores(layer: "Layer", own: dict[str, str], number: int) -> Iterator[Step]:
    """Scores (E-5, E-13), and what is done with them before the mask (E-23, E-30, M-7)."""
    attention = layer.attention
    right = {"head_dim": "standard", "d_model": "by-d-model"}.get(str(attention.scale), "by-number")
    choices = {"divisor": attention.scale} if right == "by-number" else {}
    choices |= {"width": layer.d_model} if attention.head_dim else {}
    yield Step("attention_scores", "scores", (own["query"], own["key"]), "B H S T", right=right, choices=choices)
    scores = "attention_scores"
    if attention.position_bias is not None:
        right, distances = by_distance(attention.position_bias)
        distances["head_dim"] = head_dim(layer)
        owner, table = ("", {}) if right == "linear" else ("attention.position_bias", {"table": "R H"})
        if number and layer.stack.shared_position_bias:  # layer 0 holds the table (E-34)
            distances, table = distances | {"of_layer_0": True}, {}
        yield Step("position_biased", "position_bias", (scores,), "B H S T", owner, table, right, distances)
        scores = "position_biased"
    if cap := cap_of(layer):
        yield Step("capped", "softcap", (scores,), "B H S T", choices=cap | {"divisor": scaled_by(layer)})
        scores = "capped"
    beside = {"bias": "bias"}
    yield Step("biased", "bias", (scores,), "B H S T", choices=cap, beside=beside, shown=False, at="attention_bias")


def _masked(layer: "Layer", number: int) -> Iterator[Step]:
    """The weights of keys that the mask and the window leave (M-1 to M-6, E-26)."""
    attention = layer.attention
    fill = float("-inf") if attention.masked_score == "minus_infinity" else float(attention.masked_score)
    row, dropout = attention.fully_masked_row, layer.dropout.attention_weights
    softmax: dict[str, Any] = {"fill": fill, "empty_row": row, "dropout": dropout} | cap_of(layer)
    if attention.window is not None and not is_global(layer, number):
        softmax["window"] = (attention.window.left, attention.window.right)
    yield Step("attention_weights", "softmax", ("biased",), "B H S T", choices=softmax, at="masked_softmax")


def _feed_forward(layer: "Layer", x: str) -> Iterator[Step]:
    """The position-wise feed-forward network (E-6, E-7, E-10, E-11), or a gated one (E-19)."""
    activation, inner = layer.feed_forward.activation, "ffn_activation"
    hidden = _linear(layer, "ffn_hidden", x, "B S F", "feed_forward.hidden", ("D", "F"))
    if layer.feed_forward.gated:
        yield _linear(layer, "ffn_gate", x, "B S F", "feed_forward.gate", ("D", "F"))
        yield Step("ffn_activation", "activation", ("ffn_gate",), "B S F", right=activation, at="activation")
        yield hidden
        inner = "ffn_gated"
        yield Step(inner, "product", ("ffn_activation", "ffn_hidden"), "B S F", choices={"activation": activation})
    else:
        yield hidden
        yield Step("ffn_activation", "activation", ("ffn_hidden",), "B S F", right=activation, at="activation")
    last = _linear(layer, "ffn_mapped", inner, "B S D", "feed_forward.output", ("F", "D"))
    yield replace(last, shown=False, at="ffn_output")
    dropout = {"dropout": layer.dropout.ffn_output}
    yield Step("ffn_output", "after_ffn", ("ffn_mapped",), "B S D", choices=dropout, at="after_ffn")


def _linear(layer: "Layer", makes: str, x: str, axes: str, owner: str, fan: tuple[str, str]) -> Step:
    """A linear map (E-2). `fan`: the axis of its weight that goes in, and the one that comes out."""
    parameters = {"weight": " ".join(fan)} | ({"bias": fan[1]} if has_bias(layer, owner) else {})
    return Step(makes, "linear", (x,), axes, owner, parameters)


def has_bias(layer: "Layer", owner: str) -> bool:
    """Whether a linear map, such as attention.key, has a bias (L-3): by its own key, else by that of its like."""
    part, _, name = owner.partition(".")
    own, common = (getattr(getattr(layer, part), key) for key in (f"{name}_bias", COMMON_BIAS[part]))
    return bool(common if own is None else own)


COMMON_BIAS = {"attention": "qkv_bias", "feed_forward": "bias"}
"""Part of a layer → the key that says of its linear maps whether any has a bias; the output of attention has its own.
A map that has none where another has one says so by its own key."""
OWN_BIAS = {
    f"{part}.{name}_bias": f"{part}.{name}"
    for part, names in (("attention", ("query", "key", "value")), ("feed_forward", ("gate", "hidden", "output")))
    for name in names
}
"""The own key of a linear map's bias → the map."""


def unlike_layers(layer: "Layer") -> tuple[int, ...]:
    """Numbers of layers of a stack among which there is one of each that takes other steps than the others."""
    those = layer.stack.global_layers
    numbers = {0, 1} | ({those.first, those.first + 1} if those is not None else set())
    return tuple(sorted(number for number in numbers if number < layer.stack.layers))


def head_dim(layer: "Layer") -> int:
    """The features of a head (E-20)."""
    return layer.attention.head_dim or layer.d_model // layer.attention.num_heads


def scaled_by(layer: "Layer") -> float:
    """The number by whose square root scores are divided (E-5, E-13)."""
    scale = layer.attention.scale
    if isinstance(scale, str):
        return layer.d_model if scale == "d_model" else head_dim(layer)
    return scale


def layer_sizes(layer: "Layer") -> dict[str, int]:
    """The letter of each axis that does not depend on the input → its size."""
    attention, d = layer.attention, head_dim(layer)
    kv_heads, bias = attention.kv_heads or attention.num_heads, attention.position_bias
    embedding = layer.embedding
    table = embedding.position_table if embedding is not None else None
    return {
        "D": layer.d_model,
        "H": attention.num_heads,
        "d": d,
        "P": attention.num_heads * d,
        "K": kv_heads,
        "G": kv_heads * d,
        "F": layer.feed_forward.d_ff,
        "R": bias.buckets or 0 if bias is not None else 0,
        "V": embedding.vocabulary or 0 if embedding is not None else 0,
        "U": embedding.token_types or 0 if embedding is not None else 0,
        "L": table.rows if table is not None else 0,
    }


class _Attributes(SimpleNamespace):
    __hash__ = object.__hash__  # type: ignore[assignment]

    def __getattr__(self, name: str) -> None:
        """A key that is not written down is at its plain choice."""
        return


def with_attributes(layer: Mapping[str, Any]) -> "Layer":
    """The layer that an adapter was given as a dict, as `plan` reads it: its keys are attributes."""
    tree = {key: with_attributes(value) if isinstance(value, Mapping) else value for key, value in layer.items()}
    return cast("Layer", _Attributes(**tree))
