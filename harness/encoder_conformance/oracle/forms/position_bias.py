"""A bias of scores by the distance from query to key: of its bucket, learned (E-23, E-42), or a slope times it (E-43);
and its wrong forms."""

from collections.abc import Callable
from typing import Any

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.forms.form import Form
from encoder_conformance.oracle.forms.forward_only import forms_of, forward_only
from encoder_conformance.oracle.forms.needs import MANY_HEADS, Inapplicable, not_its_distance, of_layer
from encoder_conformance.oracle.tape import ByOperands, Pullback, Step
from encoder_conformance.spec.axes import BHST, RH, ST, Array, Elementwise
from encoder_conformance.spec.layer import Distances

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


def clipped(apart: ST, buckets: int, max_distance: int) -> ST:
    """A bucket for each distance up to the largest, on each side (Shaw et al., 2018, arXiv 1803.02155, eq. 5)."""
    return np.clip(apart, -max_distance, max_distance) + max_distance


def one_way(apart: ST, buckets: int, max_distance: int) -> ST:
    """All buckets for keys before the query, as a decoder has it."""
    return _growing(np.maximum(-apart, 0), buckets, max_distance)


def turned_about(apart: ST, buckets: int, max_distance: int) -> ST:
    """query − key for key − query."""
    return both_ways(-apart, buckets, max_distance)


def unclamped(apart: ST, buckets: int, max_distance: int) -> ST:
    """The logarithm goes on beyond the largest distance, into the buckets of the other half."""
    half = buckets // 2
    exact, distance = half // 2, np.abs(apart)
    beyond = np.log(np.maximum(distance, 1) / max(exact, 1)) / np.log(max_distance / max(exact, 1))
    far = exact + (beyond * (half - exact)).astype(np.int64)
    return np.asarray(np.minimum(np.where(apart > 0, half, 0) + np.where(distance < exact, distance, far), buckets - 1))


def either_way(apart: ST, buckets: int, max_distance: int) -> ST:
    """All buckets for the distance, whichever of key and query is first."""
    return _growing(np.abs(apart), buckets, max_distance)


def own_position_after(apart: ST, buckets: int, max_distance: int) -> ST:
    """A query's own position among the keys after it."""
    return np.asarray(both_ways(apart, buckets, max_distance) + np.where(apart == 0, buckets // 2, 0))


def rounded_up(apart: ST, buckets: int, max_distance: int) -> ST:
    """The logarithm rounded up, as DeBERTa has it."""
    half = buckets // 2
    exact, distance = half // 2, np.abs(apart)
    beyond = np.log(np.maximum(distance, 1) / max(exact, 1)) / np.log(max_distance / max(exact, 1))
    far = exact + np.ceil(beyond * (half - exact)).astype(np.int64)
    near = np.where(distance < exact, distance, np.minimum(far, half - 1))
    return np.where(apart > 0, half, 0) + near


def up_to_128(apart: ST, buckets: int, max_distance: int) -> ST:
    """A largest distance of 128, T5's own, for the layer's."""
    return both_ways(apart, buckets, 128)


def up_to_length(apart: ST, buckets: int, max_distance: int) -> ST:
    """The length of the sequence for the largest distance."""
    return both_ways(apart, buckets, max(len(apart), buckets // 4 + 1))


def by_bucket(of: Buckets) -> Step:
    """The bias [R, H] of the bucket of key − query added to each score [B, H, S, T]."""

    def biased(
        a: Arithmetic,
        scores: BHST,
        table: RH,
        *,
        buckets: int,
        max_distance: int,
        of_layer_0: bool = False,
        **sizes: int,
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


GEOMETRIC, INTERPOLATED = SLOPES = "geometric", "interpolated"
"""How slopes follow from the number of heads: as a layer that names none has them, and as one that does."""
LN_2 = np.log(np.longdouble(2))


def exponents_of(slopes: str, heads: int) -> Array:
    """[H], the power of 2 that each head's slope is, in long double (Press, Smith and Lewis, 2022, arXiv 2108.12409).

    "geometric": −8(h + 1) / H. "interpolated", as the authors' code has it where H is no power of two: that of n heads,
    the largest power of two below H, and then every second one of 2n heads.
    """
    if slopes == GEOMETRIC:
        return np.asarray(-8 * np.arange(1, heads + 1, dtype=np.longdouble) / heads)
    most = 1 << heads.bit_length() - 1
    between = exponents_of(GEOMETRIC, 2 * most)[::2][: heads - most]
    return np.concatenate([exponents_of(GEOMETRIC, most), between])


def slopes_of(a: Arithmetic, slopes: str, heads: int) -> Array:
    """[H], what each head's scores lose by a step of distance."""
    return a.exp(a.exact(exponents_of(slopes, heads) * LN_2))


def _same(a: Arithmetic, slopes: Elementwise, head_dim: float) -> Elementwise:
    return slopes


def _lines(
    change: Callable[[Arithmetic, Array, float], Array] = _same, distance: Callable[[ST], ST] = np.abs
) -> Callable[..., BHST]:
    """−slope · distance added to each score. `change`: (arithmetic, the right slopes [H], features of a head) → those
    that are taken, [H] or [1]. `distance`: of key − query."""

    def biased(a: Arithmetic, scores: BHST, table: RH, *, slopes: str, head_dim: float) -> BHST:
        H, S, T = scores.shape[1:]
        apart = np.arange(T)[None] - np.arange(S)[:, None]
        taken = change(a, slopes_of(a, slopes, H), float(head_dim))
        return a.add(scores, -a.multiply(taken[:, None, None], a.exact(distance(apart))))

    return biased


def linear(a: Arithmetic, scores: BHST, table: RH, **choices: Any) -> tuple[BHST, Pullback]:
    """−slope · |key − query| added to each score [B, H, S, T] (E-43). There is no table."""
    return _lines()(a, scores, table, **choices), lambda g: (g, np.zeros_like(table))


def missing(a: Arithmetic, scores: BHST, table: RH, **choices: object) -> BHST:
    """No bias at all."""
    return scores


def _of_table(right: Buckets, change: Callable[..., RH]) -> Step:
    """The right buckets of another table. `change`: (arithmetic, table, features of a head) → it."""

    def biased(a: Arithmetic, scores: BHST, table: RH, *, head_dim: int, **choices: Any) -> BHST:
        return by_bucket(right)(a, scores, change(a, table, head_dim), **choices)[0]

    return forward_only(biased)


_TABLES: dict[str, Callable[..., RH]] = {
    "of-head-0": lambda a, table, head_dim: np.broadcast_to(table[:, :1], table.shape),
    # [R, H] read as [H, R].
    "by-reshape": lambda a, table, head_dim: table.reshape(table.shape[::-1]).T,
    # The bias divided by √d, as scores are.
    "over-root": lambda a, table, head_dim: a.divide(table, a.sqrt(a.exact(float(head_dim)))),
    "added-twice": lambda a, table, head_dim: a.add(table, table),
    "subtracted": lambda a, table, head_dim: -table,
}
BUCKETS: dict[str, Buckets] = {"standard": both_ways, "clipped": clipped}
"""The right buckets, by the name under which a layer chooses them."""
_WRONG_BUCKETS: dict[str, Buckets] = {
    "one-way": one_way,
    "either-way": either_way,
    "turned-about": turned_about,
    "own-position-after": own_position_after,
    "unclamped": unclamped,
    "rounded-up": rounded_up,
    "up-to-128": up_to_128,
    "up-to-length": up_to_length,
}
_WRONG_CLIPPED: dict[str, Buckets] = {
    "one-way": lambda apart, buckets, most: clipped(np.minimum(apart, 0), buckets, most),
    "either-way": lambda apart, buckets, most: clipped(np.abs(apart), buckets, most),
    "turned-about": lambda apart, buckets, most: clipped(-apart, buckets, most),
}
"""What these are of distances that are clipped; the others are mistakes of a logarithm, or of its buckets."""
WRONG_BUCKETS: dict[Distances, dict[str, Buckets]] = {
    "logarithmic": _WRONG_BUCKETS,
    "clipped": forms_of("clipped", _WRONG_CLIPPED),
}
"""`position_bias.distances` → the variants by wrong buckets."""


def _in_layer_0_alone(right: Buckets) -> Step:
    """The bias of layer 0 is handed on to no other layer."""

    def biased(a: Arithmetic, scores: BHST, table: RH, *, of_layer_0: bool = False, **choices: Any) -> BHST:
        return scores if of_layer_0 else by_bucket(right)(a, scores, table, **choices)[0]

    return forward_only(biased)


def _value_of(buckets: Buckets) -> Callable[..., BHST]:
    return lambda *operands, **choices: by_bucket(buckets)(*operands, **choices)[0]


_SHARED = of_layer(lambda layer: layer.stack.shared_position_bias and layer.stack.layers > 1, Inapplicable.NO_STEP)


def _wrong_of_all(right: Buckets) -> dict[str, Step]:
    """The wrong forms that say nothing of which distances share a bucket."""
    return {
        **{name: _of_table(right, change) for name, change in _TABLES.items()},
        "missing": forward_only(missing),
        "in-layer-0-alone": _in_layer_0_alone(right),
    }


_LINEAR: dict[str, Callable[..., BHST]] = {
    "missing": missing,
    "of-head-0": _lines(lambda a, slopes, head_dim: slopes[:1]),
    "over-root": _lines(lambda a, slopes, head_dim: a.divide(slopes, a.sqrt(a.exact(head_dim)))),
    "added-twice": _lines(lambda a, slopes, head_dim: a.add(slopes, slopes)),
    "subtracted": _lines(lambda a, slopes, head_dim: -slopes),
    "one-way": _lines(distance=lambda apart: np.maximum(-apart, 0)),
    # Key − query in place of how far they are apart: a key behind the query gains.
    "turned-about": _lines(distance=lambda apart: -apart),
}
WRONG_DISTANCES: dict[Distances, tuple[str, ...]] = {
    **{distances: tuple(wrong) for distances, wrong in WRONG_BUCKETS.items()},
    "linear": tuple(
        f"linear-{wrong}" for wrong in ("subtracted", "turned-about", "one-way", "of-head-0", "added-twice")
    ),
}
"""The variants with which a layer is read whose numbers by distance are its own but for a mistake."""
POSITION_BIAS = Form(
    {
        "linear": linear,
        **forms_of("linear", {name: forward_only(form) for name, form in _LINEAR.items()}),
        **{name: by_bucket(buckets) for name, buckets in BUCKETS.items()},
        **{name: forward_only(_value_of(each)) for wrong in WRONG_BUCKETS.values() for name, each in wrong.items()},
        **_wrong_of_all(both_ways),
        **forms_of("clipped", _wrong_of_all(clipped)),
    },
    {
        "standard": "{0} + by_bucket({table}, {max_distance})",
        "clipped": "{0} + by_clipped({table}, {max_distance})",
        "linear": "{0} + by_slopes({slopes!r})",
    },
    ("table",),
    needs={
        "of-head-0": (MANY_HEADS,),
        "by-reshape": (MANY_HEADS,),
        "up-to-128": (not_its_distance(128),),
        "in-layer-0-alone": (_SHARED,),
    },
)
