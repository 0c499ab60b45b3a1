"""Splitting features into heads and merging them again (E-5), and the wrong forms of both."""

from collections.abc import Callable

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.forms.form import Form
from encoder_conformance.oracle.forms.forward_only import forward_only
from encoder_conformance.oracle.forms.needs import MANY_HEADS, MANY_KV_HEADS, ONE_SEQUENCE, WIDE_HEADS, Need
from encoder_conformance.oracle.tape import ByOperands, Pullback, Step
from encoder_conformance.spec.axes import BSD, Array, BHSd, BHTd


def split_heads(a: Arithmetic, x: BSD, num_heads: int) -> tuple[BHSd, Pullback]:
    """Head h holds features h·d … (h+1)·d − 1 (E-5)."""
    return _split(x, num_heads), lambda g: (_merge(g),)


def merge_heads(a: Arithmetic, x: BHSd) -> tuple[BSD, Pullback]:
    """The inverse of `split_heads` (E-5)."""
    return _merge(x), lambda g: (_split(g, x.shape[1]),)


def _split(x: BSD, num_heads: int) -> BHSd:
    batch, sequence, d_model = x.shape
    return x.reshape(batch, sequence, num_heads, d_model // num_heads).transpose(0, 2, 1, 3)


def _merge(x: BHSd) -> BSD:
    batch, heads, sequence, head_dim = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, sequence, heads * head_dim)


def _wrong(arrange: Callable[..., Array]) -> Step:
    return forward_only(lambda a, x, **sizes: arrange(x, **sizes))


def repeat_heads(a: Arithmetic, x: BHTd, *, times: int) -> tuple[BHTd, Pullback]:
    """[B, K, T, d] → [B, K · times, T, d]: each head `times` times, one after the other (E-28; Ainslie et al., 2023,
    arXiv 2305.13245)."""
    B, K, T, d = x.shape

    def pullback(g: BHTd) -> ByOperands:
        return (a.sum(g.reshape(B, K, times, T, d), 2, keepdims=False),)

    return np.repeat(x, times, axis=1), pullback


def tiled_heads(a: Arithmetic, x: BHTd, *, times: int) -> BHTd:
    """All heads one after the other, `times` times."""
    return np.tile(x, (1, times, 1, 1))


def first_head_repeated(a: Arithmetic, x: BHTd, *, times: int) -> BHTd:
    """The first head for all."""
    return np.repeat(x[:, :1], x.shape[1] * times, axis=1)


def append(a: Arithmetic, x: BHTd, vector: Array) -> tuple[BHTd, Pullback]:
    """[B, H, T, d] → [B, H, T + 1, d]: each head's share of a vector [H · d] behind its keys, or its values (E-44)."""
    B, H, _, d = x.shape
    last = vector.reshape(1, -1, 1, d)  # [1, H or 1, 1, d]: a layer that has no vector has 0 in its place

    def pullback(g: BHTd) -> ByOperands:
        by_vector = a.sum(g[:, :, -1], 0, keepdims=False)
        return g[:, :, :-1], by_vector.reshape(H * d) if vector.size == H * d else by_vector.sum(0)

    return np.concatenate([x, np.broadcast_to(last, (B, H, 1, d)).astype(x.dtype)], axis=2), pullback


SPLIT: dict[str, Step] = {
    "standard": split_heads,
    # Head h holds features h, h + H, h + 2H, …
    "interleaved": _wrong(
        lambda x, num_heads: x.reshape(_split(x, num_heads).transpose(0, 2, 3, 1).shape).transpose(0, 3, 1, 2)
    ),
    # [B, S, D] read as [B, H, S, d] with no transpose: heads are runs of positions.
    "by-reshape": _wrong(lambda x, num_heads: x.reshape(_split(x, num_heads).shape)),
    # Batch and sequence taken for each other: [S, H, B, d].
    "across-batch": _wrong(lambda x, num_heads: _split(x.swapaxes(0, 1), num_heads)),
}
MERGE: dict[str, Step] = {
    "standard": merge_heads,
    "interleaved": _wrong(lambda x: x.transpose(0, 2, 3, 1).reshape(_merge(x).shape)),
    "by-reshape": _wrong(lambda x: x.reshape(_merge(x).shape)),
    "across-batch": _wrong(lambda x: _merge(x).swapaxes(0, 1)),
    "reversed": _wrong(lambda x: _merge(x[:, ::-1])),  # the heads in the opposite order
    "without-last": _wrong(lambda x: _merge(np.where(np.arange(x.shape[1])[:, None, None] == x.shape[1] - 1, 0, x))),
}
"""Three of them are the inverses of the wrong ways to split; the last leaves the last head's context at zero."""

_SEVERAL = Need(
    lambda case, step: step.choices.get("num_heads", 2) > 1 and MANY_HEADS.met(case, step), MANY_HEADS.otherwise
)
"""There are several heads, of what is split: one head of keys may serve all queries (E-28)."""
_HEADS: dict[str, tuple[Need, ...]] = {"interleaved": (_SEVERAL, WIDE_HEADS), "by-reshape": (_SEVERAL,)}
SPLIT_HEADS = Form(
    SPLIT, {"standard": "split_heads({0})"}, makes_no_tensor=True, needs={**_HEADS, "across-batch": (ONE_SEQUENCE,)}
)
MERGE_HEADS = Form(MERGE, {"standard": "merge_heads({0})"}, needs={**_HEADS, "reversed": (MANY_HEADS,)})
REPEAT_HEADS = Form(
    {
        "standard": repeat_heads,
        "tiled": forward_only(tiled_heads),
        "first-head-for-all": forward_only(first_head_repeated),
    },
    {"standard": "repeat_heads({0}, {times})"},
    needs=dict.fromkeys(("tiled", "first-head-for-all"), (MANY_KV_HEADS,)),
)
APPEND = Form({"standard": append}, {"standard": "append({0}[, {vector}])"}, ("vector",), keeps="nothing")
