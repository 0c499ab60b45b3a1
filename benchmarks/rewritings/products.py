"""Linear maps, scores and residual sums in other arrangements: fused, transposed, split among machines, folded."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.rewritings.layer import Parameters, Steps, Tensors, projections

QKV = ("query", "key", "value")


def by_einsum(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    product = torch.einsum("...i,io->...o", x, weight)
    return product if bias is None else product + bias


def library(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return F.linear(x, weight.T, bias)


def by_addmm(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    rows = x.reshape(-1, x.shape[-1])
    product = rows @ weight if bias is None else torch.addmm(bias, rows, weight)
    return product.reshape(*x.shape[:-1], -1)


def by_convolution(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A convolution with a kernel of one position."""
    rows = x.reshape(1, -1, x.shape[-1]).transpose(1, 2)
    return F.conv1d(rows, weight.T.unsqueeze(-1), bias).transpose(1, 2).reshape(*x.shape[:-1], -1)


def with_column_of_ones(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None:
        return x @ weight
    return torch.cat([x, torch.ones_like(x[..., :1])], dim=-1) @ torch.cat([weight, bias.unsqueeze(0)])


def transposed(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """(weightᵀ xᵀ)ᵀ"""
    product = (weight.T @ x.transpose(-2, -1)).transpose(-2, -1)
    return product if bias is None else product + bias


def bias_first(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Each product, rounded, added onto the bias."""
    total = x.new_zeros(weight.shape[1]) if bias is None else bias
    for k in range(len(weight)):
        total = total + x[..., k, None] * weight[k]
    return total


def in_two_parts(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The features of x in two parts, their products added (split K, row parallel)."""
    half = max(1, len(weight) // 2)
    total = sum(part @ rows for part, rows in zip(x.split(half, dim=-1), weight.split(half), strict=True))
    return total if bias is None else total + bias


def features_reversed(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    product = x.flip(-1) @ weight.flip(0)
    return product if bias is None else product + bias


def in_wider(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """In float64, or from a 16-bit format in float32, and rounded once."""
    wider = torch.float64 if x.dtype in (torch.float32, torch.float64) else torch.float32
    return F.linear(x.to(wider), weight.T.to(wider), None if bias is None else bias.to(wider)).to(x.dtype)


def fused(*, by_head: bool = False) -> Callable[..., tuple[Tensor, ...]]:
    """Query, key and value in one product; `by_head`: head by head, each head's three together."""

    def together(steps: Steps, x: Tensor, memory: Tensor, p: Parameters, heads: int) -> tuple[Tensor, ...]:
        weights = [p[f"attention.{name}.weight"] for name in QKV]
        biases = [p.get(f"attention.{name}.bias") for name in QKV]
        if x is not memory or len(weights[0]) != x.shape[-1]:
            return projections(steps, x, memory, p, heads)
        groups = heads if by_head else 1
        weight = torch.stack([each.unflatten(-1, (groups, -1)) for each in weights], dim=-2).flatten(1)
        stacked = [each.unflatten(-1, (groups, -1)) for each in biases if each is not None]
        bias = torch.stack(stacked, dim=-2).flatten() if stacked else None
        return tuple(
            each.flatten(-2) for each in steps.linear(x, weight, bias).unflatten(-1, (groups, 3, -1)).unbind(dim=-2)
        )

    return together


def scores_by_einsum(q: Tensor, k: Tensor, size: int) -> Tensor:
    return torch.einsum("bhsd,bhtd->bhst", q, k) / math.sqrt(size)


def scores_by_baddbmm(q: Tensor, k: Tensor, size: int) -> Tensor:
    rows, keys = q.flatten(0, 1), k.flatten(0, 1).transpose(-2, -1)
    nothing = q.new_zeros(1, 1, 1)
    return torch.baddbmm(nothing, rows, keys, beta=0, alpha=1 / math.sqrt(size)).unflatten(0, q.shape[:2])


def scores_transposed(q: Tensor, k: Tensor, size: int) -> Tensor:
    return (k @ q.transpose(-2, -1)).transpose(-2, -1) / math.sqrt(size)


def scores_multiplied(q: Tensor, k: Tensor, size: int) -> Tensor:
    return q @ k.transpose(-2, -1) * (1 / math.sqrt(size))


def scale_in_query(q: Tensor, k: Tensor, size: int) -> Tensor:
    return (q / math.sqrt(size)) @ k.transpose(-2, -1)


def scale_in_key(q: Tensor, k: Tensor, size: int) -> Tensor:
    return q @ (k * (1 / math.sqrt(size))).transpose(-2, -1)


def scale_in_both(q: Tensor, k: Tensor, size: int) -> Tensor:
    """Each by the fourth root."""
    root = size**0.25
    return (q / root) @ (k / root).transpose(-2, -1)


def heads_in_parallel(steps: Steps, context: Tensor, weight: Tensor, bias: Tensor | None) -> Tensors:
    """Each head's own rows of the output weight, and the products added: tensor parallel (Shoeybi et al., 2019)."""
    d = context.shape[-1]
    total = sum(context[:, h] @ rows for h, rows in enumerate(weight.split(d)))
    return {"attention_output": total if bias is None else total + bias}


def output_by_einsum(steps: Steps, context: Tensor, weight: Tensor, bias: Tensor | None) -> Tensors:
    """Heads and their features summed at once, without being merged."""
    product = torch.einsum("bhsd,hdo->bso", context, weight.unflatten(0, context.shape[1::2]))
    return {"attention_output": product if bias is None else product + bias}


def network_in_parallel(steps: Steps, x: Tensor, p: Parameters, activation: str) -> Tensors:
    """The hidden features in two parts, each with its own activation and product; then their sum, and the bias."""
    weight, out = p["feed_forward.hidden.weight"], p["feed_forward.output.weight"]
    half = weight.shape[1] // 2
    parts = [slice(0, half), slice(half, None)]
    bias, shared = p.get("feed_forward.hidden.bias"), p.get("feed_forward.output.bias")
    hidden = [steps.linear(x, weight[:, part], None if bias is None else bias[part]) for part in parts]
    activated = [steps.activations[activation](each) for each in hidden]
    total = activated[0] @ out[parts[0]] + activated[1] @ out[parts[1]]
    return {
        "ffn_hidden": torch.cat(hidden, dim=-1),
        "ffn_activation": torch.cat(activated, dim=-1),
        "ffn_output": total if shared is None else total + shared,
    }


def network_position_by_position(steps: Steps, x: Tensor, p: Parameters, activation: str) -> Tensors:
    """Each position by itself: a matrix times a vector."""
    rows = [Steps().feed_forward(steps, row.unsqueeze(-2), p, activation) for row in x.unbind(-2)]
    return {name: torch.cat([row[name] for row in rows], dim=-2) for name in rows[0]}


def residual_swapped(x: Tensor, change: Tensor, *rest: object) -> Tensor:
    return change + x


def residual_bias_last(x: Tensor, change: Tensor, inner: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """(x + inner @ weight) + bias."""
    total = x + inner @ weight
    return total if bias is None else total + bias


def residual_bias_first(x: Tensor, change: Tensor, inner: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """(x + bias) + inner @ weight."""
    return (x if bias is None else x + bias) + inner @ weight


def residual_by_addmm(x: Tensor, change: Tensor, inner: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The product accumulated onto the residual by the library."""
    start = x if bias is None else x + bias
    D = x.shape[-1]
    return torch.addmm(start.reshape(-1, D), inner.reshape(-1, len(weight)), weight).reshape(x.shape)


def residual_onto(x: Tensor, change: Tensor, inner: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Each product, rounded, added onto the residual."""
    return bias_first(inner, weight, x if bias is None else x + bias)
