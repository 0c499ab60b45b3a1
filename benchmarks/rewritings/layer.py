"""The encoder layer of specs/README.md over exchangeable steps: functions of tensors, differentiated by PyTorch.

Shapes: B batch, S sequence, T keys, D d_model, H num_heads, d = D / H, F d_ff.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from encoder_conformance import shows_inside

Tensors = dict[str, Tensor]
Parameters = Mapping[str, Tensor]


@dataclass(frozen=True)
class Allowed:
    """Which query may attend to which key: `mask` None or bool and `bias` None or numbers, both broadcastable to
    [B, H, S, T]; `fill` in place of a masked score; `empty_row`, what a query with no key has for weights."""

    mask: Tensor | None
    bias: Tensor | None
    fill: float
    empty_row: str

    def kept(self, scores: Tensor) -> Tensor:
        """Scores with the bias added and masked ones replaced; 0 in the row of a query with no key."""
        if self.bias is not None:
            scores = scores + self.bias
        if self.mask is None:
            return scores
        filled = scores.masked_fill(~self.mask, max(self.fill, self.least(scores)))
        return filled.masked_fill(self.no_key(), 0.0)

    def weights(self, weights: Tensor) -> Tensor:
        """Weights [B, H, S, T] of which the rows without a key are as specified."""
        if self.mask is None or self.empty_row == "uniform":
            return weights
        return weights.masked_fill(self.no_key(), math.nan if self.empty_row == "nan" else 0.0)

    def no_key(self) -> Tensor:
        assert self.mask is not None
        return ~self.mask.any(dim=-1, keepdim=True)

    def least(self, scores: Tensor) -> float:
        return -math.inf if math.isinf(self.fill) else torch.finfo(scores.dtype).min


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x [..., in] @ weight [in, out] + bias [out]."""
    product = x @ weight
    return product if bias is None else product + bias


def projections(steps: "Steps", x: Tensor, memory: Tensor, p: Parameters, heads: int) -> tuple[Tensor, ...]:
    """Query [B, S, D], key and value [B, T, D]."""

    def projected(name: str, taken: Tensor) -> Tensor:
        weight, bias = p[f"attention.{name}.weight"], p.get(f"attention.{name}.bias")
        if len(weight) == taken.shape[-1]:
            return steps.linear(taken, weight, bias)
        return steps.linear(taken.unflatten(-1, (heads, -1)), weight, bias).flatten(-2)  # shared by the heads (E-12)

    return projected("query", x), projected("key", memory), projected("value", memory)


def scores(q: Tensor, k: Tensor, size: int) -> Tensor:
    return q @ k.transpose(-2, -1) / q.new_tensor(float(size)).sqrt()


def softmax(kept: Tensor) -> Tensor:
    return torch.softmax(kept, dim=-1)


def attend(steps: "Steps", q: Tensor, k: Tensor, v: Tensor, size: int, allowed: Allowed) -> Tensors:
    """Scores, weights and context, from queries, keys and values that are split into heads."""
    found = steps.scores(q, k, size)
    weights = allowed.weights(steps.softmax(allowed.kept(found)))
    return {"attention_scores": found, "attention_weights": weights, "context": steps.weigh(weights, v)}


def attention_output(steps: "Steps", context: Tensor, weight: Tensor, bias: Tensor | None) -> Tensors:
    merged = context.transpose(1, 2).flatten(2)
    return {"context_merged": merged, "attention_output": steps.linear(merged, weight, bias)}


def layer_norm(x: Tensor, gain: Tensor, shift: Tensor, epsilon: float) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    variance = (centred * centred).mean(-1, keepdim=True)
    return centred / (variance + epsilon).sqrt() * gain + shift


def rms_norm(x: Tensor, gain: Tensor, epsilon: float) -> Tensor:
    return x / ((x * x).mean(-1, keepdim=True) + epsilon).sqrt() * gain


def gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2.0)))


def gelu_tanh(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))


def silu(x: Tensor) -> Tensor:
    return x / (1 + torch.exp(-x))


def feed_forward(steps: "Steps", x: Tensor, p: Parameters, activation: str) -> Tensors:
    hidden = steps.linear(x, p["feed_forward.hidden.weight"], p.get("feed_forward.hidden.bias"))
    activated = steps.activations[activation](hidden)
    output = steps.linear(activated, p["feed_forward.output.weight"], p.get("feed_forward.output.bias"))
    return {"ffn_hidden": hidden, "ffn_activation": activated, "ffn_output": output}


def residual(x: Tensor, change: Tensor, inner: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x + change. `change` is the linear map of `inner` by `weight` and `bias`, for who computes both at once."""
    return x + change


@dataclass(frozen=True)
class Steps:
    """How each step is done; the defaults are the equations as specs/README.md has them."""

    linear: Callable[[Tensor, Tensor, Tensor | None], Tensor] = linear
    projections: Callable[..., tuple[Tensor, ...]] = projections
    scores: Callable[[Tensor, Tensor, int], Tensor] = scores
    softmax: Callable[[Tensor], Tensor] = softmax
    weigh: Callable[[Tensor, Tensor], Tensor] = torch.matmul
    attend: Callable[..., Tensors] = attend
    attention_output: Callable[..., Tensors] = attention_output
    layer_norm: Callable[[Tensor, Tensor, Tensor, float], Tensor] = layer_norm
    rms_norm: Callable[[Tensor, Tensor, float], Tensor] = rms_norm
    activations: Mapping[str, Callable[[Tensor], Tensor]] = field(
        default_factory=lambda: {"relu": torch.relu, "gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu}
    )
    feed_forward: Callable[..., Tensors] = feed_forward
    residual: Callable[..., Tensor] = residual
    one_layer: Callable[..., Any] = lambda one, *given: one(*given)
    """How the function that is one layer is called: checkpointed, for instance."""


def layer_stages(
    layer: Any, steps: Steps, given: Tensor, memory: Tensor | None, p: Parameters, allowed: Allowed
) -> Tensors:
    """Every stage of a layer or stack that a rewriting has; `given` is x, or token ids."""
    if not layer.is_stack:
        return steps.one_layer(partial(encoder_layer, layer, steps, allowed=allowed), given, memory, p)
    stages: Tensors = {}
    x = given
    if layer.embedding is not None:
        x = F.embedding(given, p["embedding.weight"])
        if layer.embedding.positions == "sinusoidal":
            x = x + sinusoidal(x)
        stages["embedded"] = x
    for number in range(layer.stack.layers):
        prefix = f"layers.{number}."
        own = {name.removeprefix(prefix): value for name, value in p.items() if name.startswith(prefix)}
        inner = steps.one_layer(partial(encoder_layer, layer, steps, allowed=allowed), x, None, own)
        if shows_inside(layer.stack.layers):
            stages |= {f"layer_{number}.{name}": stage for name, stage in inner.items() if name != "output"}
        x = stages[f"layer_{number}"] = inner["output"]
    if layer.stack.final_norm:
        x = stages["final_norm"] = normed(layer, steps, "final_norm", x, p)
    stages["output"] = x
    return stages


def normed(layer: Any, steps: Steps, name: str, x: Tensor, p: Parameters) -> Tensor:
    if layer.norm.kind == "rms_norm":
        return steps.rms_norm(x, p[f"{name}.gain"], layer.norm.epsilon)
    return steps.layer_norm(x, p[f"{name}.gain"], p[f"{name}.shift"], layer.norm.epsilon)


def encoder_layer(
    layer: Any, steps: Steps, x: Tensor, memory: Tensor | None, p: Parameters, allowed: Allowed
) -> Tensors:
    heads, stages = layer.attention.num_heads, Tensors()

    def show(name: str, stage: Tensor) -> Tensor:
        stages[name] = stage
        return stage

    def attention(x: Tensor, keys: Tensor) -> Tensor:
        projected = steps.projections(steps, x, keys, p, heads)
        split = [each.unflatten(-1, (heads, -1)).transpose(1, 2) for each in projected]
        for name, whole, of_heads in zip(("query", "key", "value"), projected, split, strict=True):
            stages[name], stages[f"{name}_heads"] = whole, of_heads
        stages.update(steps.attend(steps, *split, layer.scaled_by, allowed))
        weight, bias = p["attention.output.weight"], p.get("attention.output.bias")
        stages.update(steps.attention_output(steps, stages["context"], weight, bias))
        return stages["attention_output"]

    def norm(name: str, x: Tensor) -> Tensor:
        return show(name, normed(layer, steps, name, x, p))

    def network(x: Tensor) -> Tensor:
        stages.update(steps.feed_forward(steps, x, p, layer.feed_forward.activation))
        return stages["ffn_output"]

    def after_attention(x: Tensor, change: Tensor) -> Tensor:
        merged = stages["context"].transpose(1, 2).flatten(2)
        bias = p.get("attention.output.bias")
        return show("residual1", steps.residual(x, change, merged, p["attention.output.weight"], bias))

    def after_network(x: Tensor, change: Tensor) -> Tensor:
        weight, bias = p["feed_forward.output.weight"], p.get("feed_forward.output.bias")
        return show("residual2", steps.residual(x, change, stages["ffn_activation"], weight, bias))

    if memory is not None:
        show("output", attention(x, memory))
    elif layer.norm.placement == "pre":
        normal = norm("norm1", x)
        x = after_attention(x, attention(normal, normal))
        show("output", after_network(x, network(norm("norm2", x))))
    else:
        x = norm("norm1", after_attention(x, attention(x, x)))
        show("output", norm("norm2", after_network(x, network(x))))
    return stages


def sinusoidal(x: Tensor) -> Tensor:
    """[S, D]: sin(s / 10000^(2i / D)) at feature 2i, the cosine at 2i + 1 (E-16)."""
    S, D = x.shape[-2:]
    rates = torch.exp(-(math.log(10000.0) / D) * torch.arange(0, D, 2, dtype=x.dtype))
    angles = torch.arange(S, dtype=x.dtype)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :D]
