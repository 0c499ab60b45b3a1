"""The steps of the PyTorch encoder: each as impls/pytorch takes it and, beside it, its wrong forms."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from planted_pytorch.attention import ATTEND, BIAS, SCORES, SOFTMAX
from planted_pytorch.made_of import NARROW, Form, dropped, in_float32, narrowed
from planted_pytorch.stack_steps import STACK

ROOT_IN_FLOAT32 = torch.tensor(0.5, dtype=torch.float32).sqrt().item()

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


def unbiased_epsilon_outside_root(n: nn.LayerNorm, x: Tensor) -> Tensor:
    """The Annotated Transformer's."""
    return scaled(n, (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + n.eps))


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
    "layer-norm": lambda n, x: F.layer_norm(x, n.normalized_shape, n.weight, getattr(n, "bias", None), n.eps),
    "epsilon-outside-root": epsilon_outside_root,
    "unbiased-epsilon-outside-root": unbiased_epsilon_outside_root,
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
    "in-float32": lambda n, x: in_float32(lambda x, w, b: F.layer_norm(x, w.shape, w, b, n.eps))(x, n.weight, n.bias),
}
FINAL_NORM: dict[str, Form] = {
    "standard": lambda norm2, x: x,
    "extra": lambda norm2, x: norm2(x),
}

# RMSNorm: what is wrong with it too, n an nn.RMSNorm, which has no bias.


def root_mean_square(x: Tensor, axes: int | tuple[int, ...] = -1) -> Tensor:
    return x.square().mean(axes, keepdim=True).sqrt()


def rms_over(*axes: int) -> Form:
    return lambda n, x: x / (root_mean_square(x, axes) ** 2 + n.eps).sqrt() * n.weight


def rms_norm_in(to: str) -> Form:
    return lambda n, x: narrowed(
        narrowed(F.rms_norm(narrowed(x, to), n.normalized_shape, eps=n.eps), to) * n.weight, to
    )


RMS_NORM: dict[str, Form] = {
    "standard": lambda n, x: n(x),
    "layer-norm": lambda n, x: F.layer_norm(x, n.normalized_shape, n.weight, None, n.eps),
    "epsilon-outside-root": lambda n, x: x / (root_mean_square(x) + n.eps) * n.weight,
    "no-epsilon": lambda n, x: x / root_mean_square(x) * n.weight,
    "over-positions": rms_over(1),
    "over-positions-and-features": rms_over(1, 2),
    "over-batch": rms_over(0, 1),
    "gain-before-norm": lambda n, x: F.rms_norm(x * n.weight, n.normalized_shape, eps=n.eps),
    "gain-plus-one": lambda n, x: F.rms_norm(x, n.normalized_shape, n.weight + 1, n.eps),
    "skipped": lambda n, x: x,
    "in-bfloat16": rms_norm_in("bfloat16"),
    "in-float16": rms_norm_in("float16"),
    "in-float32": lambda n, x: in_float32(lambda x, w: F.rms_norm(x, w.shape, w, n.eps))(x, n.weight),
}

# Linear maps: (m, x), m an nn.Linear. A narrow product has narrow operands and a wide sum, as on matrix hardware.


def bias_of(m: nn.Linear) -> Tensor:
    """Zeros where the layer has none."""
    return m.weight.new_zeros(m.out_features) if m.bias is None else m.bias


def linear_in(to: str) -> Form:
    return lambda m, x: F.linear(narrowed(x, to), narrowed(m.weight, to)) + bias_of(m)


LINEAR: dict[str, Form] = {
    "standard": lambda m, x: m(x),
    "not-applied": lambda m, x: x,
    "bias-twice": lambda m, x: m(x) + bias_of(m),
    "in-bfloat16": linear_in("bfloat16"),
    "in-float16": linear_in("float16"),
    "in-tf32": linear_in("tf32"),
    "in-float32": lambda m, x: in_float32(F.linear)(x, m.weight, bias_of(m)),
}

# Query, key and value: (m, x, H), forms of a linear map that may know how many heads are made of it.


def shared_by_heads(m: nn.Linear, x: Tensor, num_heads: int) -> Tensor:
    """An nn.Linear(head_dim, head_dim), head 0's, over x split into heads."""
    d = x.size(-1) // num_heads
    return F.linear(x.unflatten(-1, (num_heads, d)), m.weight[:d, :d], bias_of(m)[:d]).flatten(-2)


def root(x: Tensor, num_heads: int) -> float:
    return (x.size(-1) / num_heads) ** 0.5


PROJECTION: dict[str, Form] = {
    **{name: (lambda m, x, H, form=form: form(m, x)) for name, form in LINEAR.items()},
    "first-head-for-all": shared_by_heads,
    "scaled": lambda m, x, H: m(x) / root(x, H),
    "scaled-before-bias": lambda m, x, H: F.linear(x, m.weight) / root(x, H) + bias_of(m),
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

# Activation: (the layer's own, x). Residual: (x, the sub-layer's result, its normed input, the layer's input).

ACTIVATION: dict[str, Form] = {
    "standard": lambda own, x: own(x),
    "relu": lambda own, x: F.relu(x),
    "gelu": lambda own, x: F.gelu(x),
    "gelu_tanh": lambda own, x: F.gelu(x, approximate="tanh"),
    "gelu-quick": lambda own, x: x * torch.sigmoid(1.702 * x),
    "gelu-root-in-float32": lambda own, x: x * 0.5 * (1 + torch.erf(x * ROOT_IN_FLOAT32)) if own is F.gelu else own(x),
    "silu": lambda own, x: F.silu(x),
    "quick_gelu": lambda own, x: x * torch.sigmoid(1.702 * x),
    "leaky-relu": lambda own, x: F.leaky_relu(x),
    "none": lambda own, x: x,
}
AFTER_FFN: dict[str, Form] = {
    "standard": lambda x: x,
    "relu": F.relu,
    "gelu": F.gelu,
    "dropout": dropped,
}
RESIDUAL: dict[str, Form] = {
    "standard": lambda x, change, normed, first: x + change,
    "missing": lambda x, change, normed, first: change,
    "from-normed": lambda x, change, normed, first: normed + change,
    "from-first": lambda x, change, normed, first: first + change,
    "twice": lambda x, change, normed, first: x + x + change,
    "subtracted": lambda x, change, normed, first: x - change,
}

VARIANTS: dict[str, dict[str, Form]] = {
    **dict.fromkeys(("norm1", "norm2"), NORM),
    "final_norm": FINAL_NORM,
    **dict.fromkeys(("query", "key", "value"), PROJECTION),
    **dict.fromkeys(("attention_output", "ffn_hidden", "ffn_output"), LINEAR),
    **dict.fromkeys(("query_heads", "key_heads", "value_heads"), SPLIT),
    "merge_heads": MERGE,
    "attention_scores": SCORES,
    "attention_bias": BIAS,
    "masked_softmax": SOFTMAX,
    "attend": ATTEND,
    "activation": ACTIVATION,
    "after_ffn": AFTER_FFN,
    **dict.fromkeys(("residual1", "residual2"), RESIDUAL),
    **STACK,
}
