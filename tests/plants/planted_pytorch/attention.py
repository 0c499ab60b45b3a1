"""The attention steps of the PyTorch encoder: each as impls/pytorch takes it and, beside it, its wrong forms.

q, k, v [B, H, S, d]; scores and weights [B, H, S, S]; mask None or bool, true where a key may be seen.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from planted_pytorch.made_of import NARROW, Form, dropped, in_float32, narrowed


def scaled_scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-2, -1) / q.new_tensor(q.size(-1)).sqrt()


def scores_in(to: str) -> Form:
    return lambda q, k: scaled_scores(narrowed(q, to), narrowed(k, to))


SCORES: dict[str, Form] = {
    "standard": scaled_scores,
    "scale-in-float32": lambda q, k: q @ k.transpose(-2, -1) * torch.tensor(q.size(-1) ** -0.5).float().item(),
    "by-d-model": lambda q, k: q @ k.transpose(-2, -1) / (q.size(1) * q.size(-1)) ** 0.5,
    "by-head-dim": scaled_scores,
    "not-scaled": lambda q, k: q @ k.transpose(-2, -1),
    "scaled-twice": lambda q, k: q @ k.transpose(-2, -1) / q.size(-1),
    "multiplied": lambda q, k: q @ k.transpose(-2, -1) * q.size(-1) ** 0.5,
    "key-by-reshape": lambda q, k: q @ k.reshape(*k.shape[:2], k.size(3), k.size(2)) / q.size(-1) ** 0.5,
    "in-bfloat16": scores_in("bfloat16"),
    "in-float16": scores_in("float16"),
    "in-tf32": scores_in("tf32"),
    "in-float32": in_float32(scaled_scores),
}


BIAS: dict[str, Form] = {
    "standard": lambda scores, bias: scores + bias,
    "missing": lambda scores, bias: scores,
    "subtracted": lambda scores, bias: scores - bias,
    "added-twice": lambda scores, bias: scores + bias + bias,
    "of-head-0": lambda scores, bias: scores + bias[:, :1],
    "as-mask": lambda scores, bias: scores.masked_fill(bias != 0, float("-inf")),
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


def filled_and_zeroed(scores: Tensor, mask: Tensor | None) -> Tensor:
    weights = softmax(scores, mask, value=-1e9)
    return weights if mask is None else weights * mask


def masked_after_renormalised(scores: Tensor, mask: Tensor | None) -> Tensor:
    weights = masked_after(scores, mask)
    return weights / weights.sum(dim=-1, keepdim=True)


def without_largest(scores: Tensor, mask: Tensor | None) -> Tensor:
    exponentials = filled(scores, mask).float().exp()
    return (exponentials / exponentials.sum(dim=-1, keepdim=True)).to(scores.dtype)


def without_largest_flushed(scores: Tensor, mask: Tensor | None) -> Tensor:
    exponentials = flush(filled(scores, mask).float().exp())
    return (exponentials * flush(exponentials.sum(dim=-1, keepdim=True).reciprocal())).to(scores.dtype)


def flush(x: Tensor) -> Tensor:
    return x.where(x.isnan() | (x >= torch.finfo(x.dtype).tiny), 0)


def dropped_broadcast(weights: Tensor) -> Tensor:
    return weights * dropped(torch.ones_like(weights[:1, :1]))


def plus_one(scores: Tensor, mask: Tensor | None) -> Tensor:
    """A key with score 0 and nothing to say, beside the others."""
    return F.pad(filled(scores, mask), (0, 1)).softmax(dim=-1)[..., :-1]


def softmax_in(to: str) -> Form:
    """In a narrower format, and right but for that: who plants it gives a query with no key what the layer does."""

    def narrow(scores: Tensor, mask: Tensor | None) -> Tensor:
        return filled(scores.to(NARROW[to]), mask).softmax(dim=-1).to(scores.dtype)

    return narrow


def with_empty_rows(weights: Tensor, mask: Tensor | None, value: float = 0.0) -> Tensor:
    return weights if mask is None else weights.masked_fill(~mask.any(dim=-1, keepdim=True), value)


EMPTY_ROW: dict[str, Callable[[Tensor], float]] = {
    "zero": lambda weights: 0.0,
    "uniform": lambda weights: 1 / weights.size(-1),
    "nan": lambda weights: torch.nan,
}
"""What a layer gives a query with no key → its weights."""


def empty_row_zero(scores: Tensor, mask: Tensor | None) -> Tensor:
    return with_empty_rows(softmax(scores, mask), mask)


SOFTMAX: dict[str, Form] = {
    "standard": softmax,
    "empty-row-zero": empty_row_zero,
    "empty-row-uniform": softmax,  # the fill is finite
    "empty-row-nan": partial(softmax, value=-torch.inf),
    "filled-minus-10": partial(softmax, value=-10.0),
    "filled-minus-1e4": partial(softmax, value=-1e4),
    "filled-minus-1e9": partial(softmax, value=-1e9),
    "filled-minus-1e9-zeroed": filled_and_zeroed,
    "filled-minus-1e20": partial(softmax, value=-1e20),
    "filled-lowest": partial(softmax, value=torch.finfo(torch.float32).min),
    "added-minus-10": partial(softmax, fill=added, value=-10.0),
    "added-minus-1e4": partial(softmax, fill=added, value=-1e4),
    "added-minus-1e9": partial(softmax, fill=added, value=-1e9),
    "added-minus-1e10": partial(softmax, fill=added, value=-1e10),
    "added-minus-1e12": partial(softmax, fill=added, value=-1e12),
    "multiplied": lambda scores, mask: (scores if mask is None else scores * mask).softmax(dim=-1),
    "masked-after": masked_after,
    "masked-after-renormalised": masked_after_renormalised,
    "over-queries": partial(over_axis, axis=-2),
    "over-heads": partial(over_axis, axis=1),
    "without-largest": without_largest,
    "without-largest-flushed": without_largest_flushed,
    "plus-one": plus_one,
    "dropout": lambda scores, mask: dropped(empty_row_zero(scores, mask)),
    "dropout-broadcast": lambda scores, mask: dropped_broadcast(empty_row_zero(scores, mask)),
    "in-bfloat16": softmax_in("bfloat16"),
    "in-float16": softmax_in("float16"),
    "in-float32": softmax_in("float32"),
}


def attend_in(to: str) -> Form:
    return lambda weights, v: narrowed(weights, to) @ narrowed(v, to)


ATTEND: dict[str, Form] = {
    "standard": torch.matmul,
    "identity": lambda weights, v: v,
    "scaled-behind": lambda weights, v: weights @ v / v.shape[-1] ** 0.5,
    "scaled-behind-by-d-model": lambda weights, v: weights @ v / (v.shape[1] * v.shape[-1]) ** 0.5,
    "in-bfloat16": attend_in("bfloat16"),
    "in-float16": attend_in("float16"),
    "in-tf32": attend_in("tf32"),
    "in-float32": in_float32(torch.matmul),
}
