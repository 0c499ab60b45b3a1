"""The plan of an encoder: every step, in the order in which it is taken (clauses E-3 to E-17, T-1, R-1).

This module alone knows the order. Stages, parameters, shapes, equations, the oracle's forward and backward pass,
liveness, residual sums and the sites of dropout are read off it. What a step computes is its form's (`oracle/forms`).

Axes: B batch, S sequence, T keys (S without a memory), D d_model, H num_heads, d head_dim, P = H·d, F d_ff,
V vocabulary.
An adapter has a layer as a dict: `with_attributes` makes of it what the plan reads.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

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
    """The steps of one encoder layer, from x to output (E-3, E-4), or of attention alone (E-17).

    `number`: the layer's in a stack, from 0. Nothing that a layer chooses differs by it yet.
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
    pre, x = layer.norm.placement == "pre", "x"
    for place, sublayer, branch in ((1, _attention, "attention_output"), (2, _feed_forward, "ffn_output")):
        given, total, norm = x, f"residual{place}", f"norm{place}"
        if pre:
            yield _norm(layer, norm, x)
            given = norm
        yield from sublayer(layer, given)
        yield Step(total, "sum", (x, branch), "B S D", beside={"normed": given, "first": "x"})
        x = total
        if not pre:
            yield _norm(layer, norm, total)
            x = norm
    yield _end(layer, x, "end", "norm2", "final_norm") if pre else Step("output", "same", (x,), "B S D")


def _steps_of_stack(layer: "Layer") -> Iterator[Step]:
    x = "x"
    if layer.embedding is not None:
        yield Step("tokens", "tokens", (), "B S D", "embedding", {"weight": "V D"}, beside={"ids": "ids"}, shown=False)
        x = "tokens"
        if layer.embedding.positions == "sinusoidal":
            yield Step("positions", "positions", (x,), "B S D", shown=False)
            x = "positions"
        dropout = {"dropout": layer.dropout.embedded}
        yield Step("embedded", "after_embedding", (x,), "B S D", choices=dropout, at="after_embedding")
        x = "embedded"
    yield Step("layers", "layers", (x,), "B S D", shown=False, at="layer_order")
    if layer.stack.final_norm:
        yield replace(_norm(layer, "final_norm", "layers"), form="stack_norm", at="stack_norm")
        yield Step("output", "same", ("final_norm",), "B S D")
    else:
        yield _end(layer, "layers", "stack_end", "final_norm", "stack_end")


def between_layers(layer: "Layer") -> Iterator[Step]:
    """The step before each layer of a stack but the first: nothing, where positions are added once (E-16)."""
    if layer.embedding is not None and layer.embedding.positions == "sinusoidal":
        yield Step("between_layers", "between_layers", ("x",), "B S D", shown=False)


def _norm(layer: "Layer", makes: str, x: str) -> Step:
    """A norm over the features (E-1), or one without a shift (E-9)."""
    parameters = {"gain": "D", "shift": "D"} if layer.norm.kind == "layer_norm" else {"gain": "D"}
    choices = {"epsilon": layer.norm.epsilon}
    return Step(makes, "norm", (x,), "B S D", makes, parameters, right=_right_norm(layer), choices=choices)


def _end(layer: "Layer", x: str, form: str, norm: str, at: str) -> Step:
    """The output, where one norm too many may be taken, with the parameters of `norm`."""
    choices = {"epsilon": layer.norm.epsilon}
    return Step("output", form, (x,), "B S D", norm, right=_right_norm(layer), choices=choices, at=at)


def _right_norm(layer: "Layer") -> str:
    return "standard" if layer.norm.kind == "layer_norm" else layer.norm.kind


def _attention(layer: "Layer", queries: str, memory: str = "") -> Iterator[Step]:
    """Multi-head attention (E-5, E-12, E-13, M-1 to M-7). Without a memory keys are of what queries are of."""
    keys = memory or queries
    attention, heads = layer.attention, {"num_heads": layer.attention.num_heads}
    by_d_model = attention.scale == "d_model"
    sizes = heads | {"scaled_by": layer.d_model if by_d_model else layer.d_model // attention.num_heads}
    right, fan = ("standard", ("D", "P")) if attention.projections == "full" else ("shared_by_heads", ("d", "d"))
    for name, x, axis in (("query", queries, "S"), ("key", keys, "T"), ("value", keys, "T")):
        map = _linear(layer, name, x, f"B {axis} P", f"attention.{name}", fan)
        yield replace(map, form="projection", right=right, choices=sizes)
    for name, axis in (("query", "S"), ("key", "T"), ("value", "T")):
        yield Step(f"{name}_heads", "split_heads", (name,), f"B H {axis} d", choices=heads)
    right = "by-d-model" if by_d_model else "standard"
    yield Step("attention_scores", "scores", ("query_heads", "key_heads"), "B H S T", right=right)
    yield Step(
        "biased", "bias", ("attention_scores",), "B H S T", beside={"bias": "bias"}, shown=False, at="attention_bias"
    )
    fill = float("-inf") if attention.masked_score == "minus_infinity" else float(attention.masked_score)
    row, dropout = attention.fully_masked_row, layer.dropout.attention_weights
    softmax = {"fill": fill, "empty_row": row, "dropout": dropout}
    yield Step("attention_weights", "softmax", ("biased",), "B H S T", choices=softmax, at="masked_softmax")
    beside = {"weights": "attention_weights"}
    yield Step("context", "attend", ("biased", "value_heads"), "B H S d", beside=beside, at="attend")
    yield Step("context_merged", "merge_heads", ("context",), "B S P", at="merge_heads")
    yield _linear(layer, "attention_output", "context_merged", "B S D", "attention.output", ("P", "D"))


def _feed_forward(layer: "Layer", x: str) -> Iterator[Step]:
    """The position-wise feed-forward network (E-6, E-7, E-10, E-11)."""
    activation = layer.feed_forward.activation
    yield _linear(layer, "ffn_hidden", x, "B S F", "feed_forward.hidden", ("D", "F"))
    yield Step("ffn_activation", "activation", ("ffn_hidden",), "B S F", right=activation, at="activation")
    last = _linear(layer, "ffn_mapped", "ffn_activation", "B S D", "feed_forward.output", ("F", "D"))
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
    for part, names in (("attention", ("query", "key", "value")), ("feed_forward", ("hidden", "output")))
    for name in names
}
"""The own key of a linear map's bias → the map."""


def layer_sizes(layer: "Layer") -> dict[str, int]:
    """The letter of each axis that does not depend on the input → its size."""
    D, H, F = layer.d_model, layer.attention.num_heads, layer.feed_forward.d_ff
    V = layer.embedding.vocabulary if layer.embedding is not None else 0
    return {"D": D, "H": H, "d": D // H, "P": H * (D // H), "F": F, "V": V}


class _Attributes(SimpleNamespace):
    __hash__ = object.__hash__  # type: ignore[assignment]

    def __getattr__(self, name: str) -> None:
        """A key that is not written down is at its plain choice."""
        return


def with_attributes(layer: Mapping[str, Any]) -> "Layer":
    """The layer that an adapter was given as a dict, as `plan` reads it: its keys are attributes."""
    tree = {key: with_attributes(value) if isinstance(value, Mapping) else value for key, value in layer.items()}
    return cast("Layer", _Attributes(**tree))


def _layers() -> Iterator["Layer"]:
    """Layers that together take every step that there is."""
    for placement, part, embedding, final_norm in product(("pre", "post"), ("", "attention"), (0, 1), (False, True)):
        keys = {
            "d_model": 1,
            "part": part,
            "norm": {"placement": placement, "kind": "layer_norm"},
            "attention": {"num_heads": 1, "projections": "full", "masked_score": 0, "qkv_bias": 1, "output_bias": 1},
            "feed_forward": {"bias": True},
            "dropout": {},
            "stack": {"final_norm": final_norm},
            "embedding": {"positions": "sinusoidal"} if embedding else None,
        }
        yield with_attributes(keys)


STEPS_OF_LAYERS: Mapping[str, Step] = {each.step: each for layer in _layers() for each in plan(layer)}
"""Step's name in a patch → the step, as some layer takes it."""
STEPS: Mapping[str, Step] = {
    **{each.step: each for layer in _layers() for each in (*stack_plan(layer), *between_layers(layer))},
    **STEPS_OF_LAYERS,
}
"""The steps of stacks too."""
MAKING: Mapping[str, Step] = {each.makes: each for each in STEPS.values()}
"""Stage, or another result → the step that makes it."""


def stage_of(name: str) -> str:
    """The first stage that shows the result of a step, such as `attention_weights` for `masked_softmax`."""
    step: Step | None = STEPS[name]
    while step is not None and not step.shown:
        step = next((each for each in STEPS.values() if step.makes in each.reads), None)
    return name if step is None else step.makes


def form_of(stage: str) -> str:
    """The form of the step that makes a stage: `norm` for `norm2`; "" for what is no stage."""
    return MAKING[stage].form if stage in MAKING else ""
