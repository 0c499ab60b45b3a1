"""A learned bias of scores by the bucket of the distance from query to key (E-23), and its wrong forms."""

from collections.abc import Callable
from typing import Any

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.forms.form import Form
from encoder_conformance.oracle.forms.forward_only import forward_only
from encoder_conformance.oracle.forms.needs import Inapplicable, of_layer
from encoder_conformance.oracle.tape import ByOperands, Pullback, Step
from encoder_conformance.spec.axes import BHST, RH, ST

Buckets = Callable[[ST, int, int], ST]
"""(key − query, the number of buckets, the largest distance) → the bucket of each."""


def both_ways(apart: ST, buckets: int, max_distance: int) -> ST:
    """The bucket of each distance (Raffel et al., 2020, arXiv 1910.10683, as T5's encoder has it).

    The upper half is for keys after the query. Of a half, the first half has a bucket for each distance, and in the
    second buckets grow as the logarithm does, up to `max_distance`.
    """
    half = buckets // 2
    return np.where(apart > 0, half, 0) + _growing(np.abs(apart), half, max_distance)


def _growing(distance: ST, buckets: int, max_distance: int) -> ST:
    exact = buckets // 2
    beyond = np.log(np.maximum(distance, 1) / max(exact, 1)) / np.log(max_distance / max(exact, 1))
    far = exact + (beyond * (buckets - exact)).astype(np.int64)
    return np.where(distance < exact, distance, np.minimum(far, buckets - 1))


def one_way(apart: ST, buckets: int, max_distance: int) -> ST:
    """All buckets for keys before the query, as a decoder has it."""
    return _growing(np.maximum(-apart, 0), buckets, max_distance)


def turned_about(apart: ST, buckets: int, max_distance: int) -> ST:
    """query − key for key − query."""
    return both_ways(-apart, buckets, max_distance)


def clipped(apart: ST, buckets: int, max_distance: int) -> ST:
    """A bucket for each distance, and the last for all that are further: no logarithm."""
    half = buckets // 2
    return np.where(apart > 0, half, 0) + np.minimum(np.abs(apart), half - 1)


def by_bucket(of: Buckets) -> Step:
    """The bias [R, H] of the bucket of key − query added to each score [B, H, S, T]."""

    def biased(
        a: Arithmetic, scores: BHST, table: RH, *, buckets: int, max_distance: int, of_layer_0: bool = False
    ) -> tuple[BHST, Pullback]:
        S, T = scores.shape[-2:]
        bucket = of(np.arange(T)[None] - np.arange(S)[:, None], buckets, max_distance)

        def pullback(g: BHST) -> ByOperands:
            by_table = np.zeros_like(table)
            by_position = a.sum(g, 0, keepdims=False)
            for row in np.unique(bucket):
                by_table[row] = a.sum(by_position[:, bucket == row], 1, keepdims=False)
            return g, by_table

        return a.add(scores, table[bucket].transpose(2, 0, 1)[None]), pullback

    return biased


def missing(a: Arithmetic, scores: BHST, table: RH, **choices: object) -> BHST:
    """No bias at all."""
    return scores


def of_head_0(a: Arithmetic, scores: BHST, table: RH, **choices: Any) -> BHST:
    """The first head's bias for all."""
    first = np.broadcast_to(table[:, :1], table.shape)
    return by_bucket(both_ways)(a, scores, first, **choices)[0]


def in_layer_0_alone(a: Arithmetic, scores: BHST, table: RH, *, of_layer_0: bool = False, **choices: int) -> BHST:
    """The bias of layer 0 is handed on to no other layer."""
    return scores if of_layer_0 else by_bucket(both_ways)(a, scores, table, **choices)[0]


def _value_of(buckets: Buckets) -> Callable[..., BHST]:
    return lambda *operands, **choices: by_bucket(buckets)(*operands, **choices)[0]


_SHARED = of_layer(lambda layer: layer.stack.shared_position_bias and layer.stack.layers > 1, Inapplicable.NO_STEP)

POSITION_BIAS = Form(
    {
        "standard": by_bucket(both_ways),
        "one-way": forward_only(_value_of(one_way)),
        "turned-about": forward_only(_value_of(turned_about)),
        "clipped": forward_only(_value_of(clipped)),
        "missing": forward_only(missing),
        "of-head-0": forward_only(of_head_0),
        "in-layer-0-alone": forward_only(in_layer_0_alone),
    },
    {"standard": "{0} + by_bucket({table}, {max_distance})"},
    ("table",),
    needs={"in-layer-0-alone": (_SHARED,)},
)
