"""The steps of the PyTorch encoder: each as impls/pytorch takes it and, beside it, its wrong forms."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Form = Callable[..., Tensor]
NARROW = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def narrowed(x: Tensor, to: str) -> Tensor:
    """To a narrower format and back. A CPU has no tf32: 11 significant bits, rounded to nearest even."""
    if to == "tf32":
        fraction, exponent = torch.frexp(x)
        return torch.ldexp(torch.round(fraction * 2**11) / 2**11, exponent)
    return x.to(NARROW[to]).to(x.dtype)


def dropped(x: Tensor, seed: int) -> Tensor:
    """Dropout of 0.1 left on, the same each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return F.dropout(x, 0.1, training=True)


# LayerNorm: (n, x), n an nn.LayerNorm, x [B, S, D].


def normed(x: Tensor, axes: int | tuple[int, ...], epsilon: float) -> Tensor:
    variance, mean = torch.var_mean(x, axes, correction=0, keepdim=True)
    return (x - mean) / torch.sqrt(variance + epsilon)


def scaled(n: nn.LayerNorm, normal: Tensor) -> Tensor:
    return normal * n.weight + n.bias


def over(*axes: int) -> Form:
    return lambda n, x: scaled(n, normed(x, axes, n.eps))


def epsilon_outside_root(n: nn.LayerNorm, x: Tensor) -> Tensor:
    return scaled(n, (x - x.mean(-1, keepdim=True)) / (x.std(-1, correction=0, keepdim=True) + n.eps))


def unbiased_variance(n: nn.LayerNorm, x: Tensor) -> Tensor:
    return scaled(n, (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, correction=1, keepdim=True) + n.eps))


def fast_variance(n: nn.LayerNorm, x: Tensor) -> Tensor:
    """E[x²] − E[x]² in float32."""
    narrow = x.float()
    variance = narrow.square().mean(-1, keepdim=True) - narrow.mean(-1, keepdim=True).square()
    return scaled(n, (x - x.mean(-1, keepdim=True)) / torch.sqrt(variance.clamp(min=0).to(x.dtype) + n.eps))


def not_centred(n: nn.LayerNorm, x: Tensor) -> Tensor:
    return scaled(n, x / torch.sqrt(x.var(-1, correction=0, keepdim=True) + n.eps))


def norm_in(to: str) -> Form:
    """The normalised values rounded, and again after gain and shift."""

    def narrow(n: nn.LayerNorm, x: Tensor) -> Tensor:
        normal = F.layer_norm(x.to(NARROW[to]), n.normalized_shape, eps=n.eps)
        return narrowed(scaled(n, normal.to(x.dtype)), to)

    return narrow


NORM: dict[str, Form] = {
    "standard": lambda n, x: n(x),
    "epsilon-outside-root": epsilon_outside_root,
    "no-epsilon": lambda n, x: F.layer_norm(x, n.normalized_shape, n.weight, n.bias, eps=0.0),
    "unbiased-variance": unbiased_variance,
    "fast-variance": fast_variance,
    "over-positions": over(1),
    "over-positions-and-features": over(1, 2),
    "over-batch": over(0, 1),
    "root-mean-square": lambda n, x: F.rms_norm(x, n.normalized_shape, n.weight, n.eps) + n.bias,
    "not-centred": not_centred,
    "gain-before-norm": lambda n, x: F.layer_norm(scaled(n, x), n.normalized_shape, eps=n.eps),
    "gain-plus-one": lambda n, x: F.layer_norm(x, n.normalized_shape, n.weight + 1, n.bias, n.eps),
    "skipped": lambda n, x: x,
    "in-bfloat16": norm_in("bfloat16"),
    "in-float16": norm_in("float16"),
    "in-float32": norm_in("float32"),
}
FINAL_NORM: dict[str, Form] = {
    "standard": lambda norm2, x: x,
    "extra": lambda norm2, x: norm2(x),
}

# Linear maps: (m, x), m an nn.Linear. A narrow product has narrow operands and a wide sum, as on matrix hardware.


def linear_in(to: str) -> Form:
    return lambda m, x: F.linear(narrowed(x, to), narrowed(m.weight, to)) + m.bias


LINEAR: dict[str, Form] = {
    "standard": lambda m, x: m(x),
    "not-applied": lambda m, x: x,
    "bias-twice": lambda m, x: m(x) + m.bias,
    "in-bfloat16": linear_in("bfloat16"),
    "in-float16": linear_in("float16"),
    "in-tf32": linear_in("tf32"),
    "in-float32": linear_in("float32"),
}

# Heads: split is (x [B, S, D], H) → [B, H, S, d], merge the way back.


def split(x: Tensor, num_heads: int) -> Tensor:
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def merge(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


SPLIT: dict[str, Form] = {
    "standard": split,
    "interleaved": lambda x, H: x.unflatten(-1, (-1, H)).permute(0, 3, 1, 2),
    "by-reshape": lambda x, H: x.reshape(x.size(0), H, x.size(1), -1),
    "across-batch": lambda x, H: split(x.transpose(0, 1), H),
}
MERGE: dict[str, Form] = {
    "standard": merge,
    "interleaved": lambda x: x.permute(0, 2, 3, 1).flatten(2),
    "by-reshape": lambda x: x.reshape(x.size(0), x.size(2), -1),
    "across-batch": lambda x: merge(x).transpose(0, 1),
    "reversed": lambda x: merge(x.flip(1)),
    "without-last": lambda x: merge(torch.cat([x[:, :-1], torch.zeros_like(x[:, -1:])], dim=1)),
}

# Attention: q, k, v [B, H, S, d]; scores and weights [B, H, S, S]; mask None or bool, true where a key may be seen.

SCORES: dict[str, Form] = {
    "standard": lambda q, k: q @ k.transpose(-2, -1) / q.new_tensor(q.size(-1)).sqrt(),
    "by-d-model": lambda q, k: q @ k.transpose(-2, -1) / (q.size(1) * q.size(-1)) ** 0.5,
    "not-scaled": lambda q, k: q @ k.transpose(-2, -1),
    "scaled-twice": lambda q, k: q @ k.transpose(-2, -1) / q.size(-1),
    "multiplied": lambda q, k: q @ k.transpose(-2, -1) * q.size(-1) ** 0.5,
}


def filled(scores: Tensor, mask: Tensor | None, value: float = -torch.inf) -> Tensor:
    return scores if mask is None else scores.masked_fill(~mask, value)


def added(scores: Tensor, mask: Tensor | None, value: float) -> Tensor:
    return scores if mask is None else scores + value * (~mask).to(scores.dtype)


def softmax(scores: Tensor, mask: Tensor | None, fill: Any = filled, value: float = -1e30) -> Tensor:
    return fill(scores, mask, value).softmax(dim=-1)


def over_axis(scores: Tensor, mask: Tensor | None, axis: int) -> Tensor:
    return filled(scores, mask).softmax(dim=axis).nan_to_num(0.0)


def masked_after(scores: Tensor, mask: Tensor | None) -> Tensor:
    return scores.softmax(dim=-1) if mask is None else scores.softmax(dim=-1) * mask


def masked_after_renormalised(scores: Tensor, mask: Tensor | None) -> Tensor:
    weights = masked_after(scores, mask)
    return weights / weights.sum(dim=-1, keepdim=True)


def without_largest(scores: Tensor, mask: Tensor | None) -> Tensor:
    exponentials = filled(scores, mask).float().exp()
    return (exponentials / exponentials.sum(dim=-1, keepdim=True)).to(scores.dtype)


def plus_one(scores: Tensor, mask: Tensor | None) -> Tensor:
    """A key with score 0 and nothing to say, beside the others."""
    return F.pad(filled(scores, mask), (0, 1)).softmax(dim=-1)[..., :-1]


def softmax_in(to: str) -> Form:
    return lambda scores, mask: filled(scores.to(NARROW[to]), mask).softmax(dim=-1).to(scores.dtype)


SOFTMAX: dict[str, Form] = {
    "standard": softmax,
    "filled-minus-10": partial(softmax, value=-10.0),
    "filled-minus-1e4": partial(softmax, value=-1e4),
    "filled-minus-1e9": partial(softmax, value=-1e9),
    "filled-lowest": partial(softmax, value=torch.finfo(torch.float32).min),
    "added-minus-10": partial(softmax, fill=added, value=-10.0),
    "added-minus-1e4": partial(softmax, fill=added, value=-1e4),
    "added-minus-1e9": partial(softmax, fill=added, value=-1e9),
    "multiplied": lambda scores, mask: (scores if mask is None else scores * mask).softmax(dim=-1),
    "masked-after": masked_after,
    "masked-after-renormalised": masked_after_renormalised,
    "over-queries": partial(over_axis, axis=-2),
    "over-heads": partial(over_axis, axis=1),
    "without-largest": without_largest,
    "plus-one": plus_one,
    "dropout": lambda scores, mask: dropped(softmax(scores, mask), seed=1),
    "in-bfloat16": softmax_in("bfloat16"),
    "in-float16": softmax_in("float16"),
    "in-float32": softmax_in("float32"),
}
ATTEND: dict[str, Form] = {
    "standard": lambda weights, v: weights @ v,
    "identity": lambda weights, v: v,
    "in-bfloat16": lambda weights, v: narrowed(weights, "bfloat16") @ narrowed(v, "bfloat16"),
    "in-tf32": lambda weights, v: narrowed(weights, "tf32") @ narrowed(v, "tf32"),
}

# Activation: (the layer's own, x). Residual: (x, the sub-layer's result, its normed input, the layer's input).

ACTIVATION: dict[str, Form] = {
    "standard": lambda own, x: own(x),
    "relu": lambda own, x: F.relu(x),
    "gelu": lambda own, x: F.gelu(x),
    "gelu-tanh": lambda own, x: F.gelu(x, approximate="tanh"),
    "gelu-quick": lambda own, x: x * torch.sigmoid(1.702 * x),
    "silu": lambda own, x: F.silu(x),
    "leaky-relu": lambda own, x: F.leaky_relu(x),
    "none": lambda own, x: x,
}
AFTER_FFN: dict[str, Form] = {
    "standard": lambda x: x,
    "relu": F.relu,
    "gelu": F.gelu,
    "dropout": partial(dropped, seed=2),
}
RESIDUAL: dict[str, Form] = {
    "standard": lambda x, change, normed, first: x + change,
    "missing": lambda x, change, normed, first: change,
    "from-normed": lambda x, change, normed, first: normed + change,
    "from-first": lambda x, change, normed, first: first + change,
    "twice": lambda x, change, normed, first: x + x + change,
    "subtracted": lambda x, change, normed, first: x - change,
}

WAYS: dict[str, dict[str, Form]] = {
    **dict.fromkeys(("norm1", "norm2"), NORM),
    "final_norm": FINAL_NORM,
    **dict.fromkeys(("query", "key", "value", "attention_output", "ffn_hidden", "ffn_output"), LINEAR),
    **dict.fromkeys(("query_heads", "key_heads", "value_heads"), SPLIT),
    "merge_heads": MERGE,
    "attention_scores": SCORES,
    "masked_softmax": SOFTMAX,
    "attend": ATTEND,
    "activation": ACTIVATION,
    "after_ffn": AFTER_FFN,
    **dict.fromkeys(("residual1", "residual2"), RESIDUAL),
}
