"""The softmax over the keys, and attention around it, in the forms that people write.

`largest` is where most of them differ: detached, or with the gradient going through it. That gradient is 0 but for
rounding.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.rewritings.layer import Allowed, Steps, Tensors
from benchmarks.rewritings.layer import attend as written_out
from benchmarks.rewritings.sums import Sum

Softmax = Callable[[Tensor], Tensor]


def library_sum(x: Tensor) -> Tensor:
    return x.sum(-1)


def divided(add: Sum = library_sum, *, detached: bool = False, base_2: bool = False, amax: bool = True) -> Softmax:
    """exp(s − max) / Σ exp(s − max)."""

    def softmax(kept: Tensor) -> Tensor:
        largest = kept.amax(-1, keepdim=True) if amax else kept.max(dim=-1, keepdim=True).values
        above = kept - (largest.detach() if detached else largest)
        raised = torch.exp2(above * math.log2(math.e)) if base_2 else torch.exp(above)
        return raised / add(raised).unsqueeze(-1)

    return softmax


def by_reciprocal(kept: Tensor) -> Tensor:
    raised = torch.exp(kept - kept.amax(-1, keepdim=True))
    return raised * raised.sum(-1, keepdim=True).reciprocal()


def by_log_softmax(kept: Tensor) -> Tensor:
    return torch.log_softmax(kept, dim=-1).exp()


def twice_shifted(kept: Tensor) -> Tensor:
    """The logarithm of the sum is of scores that are shifted already."""
    above = kept - kept.amax(-1, keepdim=True)
    return torch.exp(above - torch.logsumexp(above, dim=-1, keepdim=True))


def by_logsumexp(kept: Tensor) -> Tensor:
    return torch.exp(kept - torch.logsumexp(kept, dim=-1, keepdim=True))


def without_largest(kept: Tensor) -> Tensor:
    raised = torch.exp(kept)
    return raised / raised.sum(-1, keepdim=True)


def less_a_bound(kept: Tensor) -> Tensor:
    """In place of the largest score, the largest integer power of two steps above it that one pass may know."""
    above = kept - kept.detach().amax(-1, keepdim=True).ceil()
    raised = torch.exp(above)
    return raised / raised.sum(-1, keepdim=True)


def in_wider(kept: Tensor) -> Tensor:
    """In float64, or from a 16-bit format in float32, and rounded once."""
    wider = torch.float64 if kept.dtype in (torch.float32, torch.float64) else torch.float32
    return torch.softmax(kept.to(wider), dim=-1).to(kept.dtype)


def without_key(context: Tensor, v: Tensor, allowed: Allowed) -> Tensor:
    """The context [B, H, S, d] with what is specified in the rows of queries that have no key (M-4)."""
    if allowed.mask is None:
        return context
    nothing = v.new_tensor(math.nan if allowed.empty_row == "nan" else 0.0)
    given = v.mean(-2, keepdim=True) if allowed.empty_row == "uniform" else nothing
    return torch.where(allowed.no_key(), given, context)


def deferred(add: Sum = library_sum, *, detached: bool = False) -> Callable[..., Tensors]:
    """The exponentials weigh the values, and the context is divided by their sum."""

    def attend(steps: Steps, q: Tensor, k: Tensor, v: Tensor, size: int, allowed: Allowed) -> Tensors:
        found = steps.scores(q, k, size)
        kept = allowed.kept(found)
        largest = kept.amax(-1, keepdim=True)
        raised = torch.exp(kept - (largest.detach() if detached else largest))
        context = raised @ v / add(raised).unsqueeze(-1)
        context = without_key(context, v, allowed)
        return {"attention_scores": found, "context": context}

    return attend


def online(block: int) -> Callable[..., Tensors]:
    """Keys in blocks, with a running maximum and sum (Milakov and Gimelshein, 2018; Dao et al., 2022)."""

    def attend(steps: Steps, q: Tensor, k: Tensor, v: Tensor, size: int, allowed: Allowed) -> Tensors:
        found = steps.scores(q, k, size)
        kept = allowed.kept(found)
        largest = kept.new_full((*kept.shape[:-1], 1), torch.finfo(kept.dtype).min)
        total, context = torch.zeros_like(largest), torch.zeros(())
        for some, values in zip(kept.split(block, dim=-1), v.split(block, dim=-2), strict=True):
            higher = torch.maximum(largest, some.amax(-1, keepdim=True))
            earlier, raised = torch.exp(largest - higher), torch.exp(some - higher)
            total = total * earlier + raised.sum(-1, keepdim=True)
            context = context.to(kept.dtype) * earlier + raised @ values
            largest = higher
        context = context / total
        context = without_key(context, v, allowed)
        return {"attention_scores": found, "context": context}

    return attend


def merged_by_logarithms(steps: Steps, q: Tensor, k: Tensor, v: Tensor, size: int, allowed: Allowed) -> Tensors:
    """Two halves of the keys by themselves, merged by the logarithms of their sums (ring attention, split KV).

    Liu, Zaharia and Abbeel, 2023, arXiv 2310.01889.
    """
    found = steps.scores(q, k, size)
    kept = allowed.kept(found)
    half = max(1, kept.shape[-1] // 2)
    parts, logs = [], []
    for some, values in zip(kept.split(half, dim=-1), v.split(half, dim=-2), strict=True):
        some = some.clamp(min=torch.finfo(some.dtype).min)  # a half without a key weighs nothing, and is not NaN
        logs.append(torch.logsumexp(some, dim=-1, keepdim=True))
        parts.append(torch.softmax(some, dim=-1) @ values)
    shares = torch.softmax(torch.cat(logs, dim=-1), dim=-1)
    context = sum(share * part for share, part in zip(shares.split(1, dim=-1), parts, strict=True))
    context = without_key(context, v, allowed)
    return {"attention_scores": found, "context": context}


def dot_product_attention(backend: SDPBackend | None) -> Callable[..., Tensors]:
    """F.scaled_dot_product_attention, by one of its kernels or by the one that it chooses."""

    def attend(steps: Steps, q: Tensor, k: Tensor, v: Tensor, size: int, allowed: Allowed) -> Tensors:
        mask = allowed.kept(torch.zeros(*q.shape[:-1], k.shape[-2], dtype=q.dtype))
        how: dict[str, Any] = {"attn_mask": mask, "scale": 1 / math.sqrt(size)}
        if backend is None:
            context = F.scaled_dot_product_attention(q, k, v, **how)
        else:
            with sdpa_kernel(backend):
                context = F.scaled_dot_product_attention(q, k, v, **how)
        context = without_key(context, v, allowed)
        return {"context": context}

    return attend


def one_at_a_time(steps: Steps, q: Tensor, k: Tensor, v: Tensor, size: int, allowed: Allowed) -> Tensors:
    """Each item and head by itself."""
    whole = [None if each is None else each.expand(*q.shape[:-1], k.shape[-2]) for each in (allowed.mask, allowed.bias)]
    rows = []
    for b in range(q.shape[0]):
        heads = []
        for h in range(q.shape[1]):
            mask, bias = (None if each is None else each[b : b + 1, h : h + 1] for each in whole)
            own = Allowed(mask, bias, allowed.fill, allowed.empty_row)
            heads.append(written_out(steps, *(t[b : b + 1, h : h + 1] for t in (q, k, v)), size, own))
        rows.append({name: torch.cat([head[name] for head in heads], dim=1) for name in heads[0]})
    return {name: torch.cat([row[name] for row in rows]) for name in rows[0]}
