"""Linear maps (E-2): x [B, S, in] @ weight [in, out] + bias [out], and the ways to get them wrong.

Query, key and value are linear maps too; their forms may know how many heads the result is split into, and by the root
of which size the scores are divided.
"""

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic, Array
from encoder_conformance.oracle.steps.forward_only import forward_only, in_narrower, own_forms
from encoder_conformance.oracle.tape import Pullback, Step


def linear(a: Arithmetic, x: Array, weight: Array, bias: Array) -> tuple[Array, Pullback]:
    """x [B, S, in] @ weight [in, out] + bias [out] (E-2)."""
    y = a.affine(x, weight, bias)

    def pullback(g: Array) -> tuple[Array, ...]:
        rows, g_rows = x.reshape(-1, x.shape[-1]), g.reshape(-1, g.shape[-1])
        return a.matmul(g, weight.T), a.matmul(rows.T, g_rows), a.sum(g_rows, axis=0, keepdims=False)

    return y, pullback


def not_applied(a: Arithmetic, x: Array, weight: Array, bias: Array) -> Array:
    """The map is declared and never used."""
    return x


def bias_twice(a: Arithmetic, x: Array, weight: Array, bias: Array) -> Array:
    """The bias added two times."""
    return a.add(a.add(a.matmul(x, weight), bias), bias)


VARIANTS: dict[str, Step] = {
    "standard": linear,
    "not-applied": forward_only(not_applied),
    "bias-twice": forward_only(bias_twice),
    **in_narrower(linear),
}


def _told(form: Step) -> Step:
    """A form that need not know what a projection is told."""

    def projection(a: Arithmetic, x: Array, weight: Array, bias: Array, **told: int) -> tuple[Array, Pullback]:
        return form(a, x, weight, bias)

    projection.__doc__ = form.__doc__
    return projection


def shared_by_heads(
    a: Arithmetic, x: Array, weight: Array, bias: Array, num_heads: int, **told: int
) -> tuple[Array, Pullback]:
    """One map [d, d] for each head's slice of x [B, S, H·d] (E-12)."""
    slices = x.reshape(*x.shape[:-1], num_heads, -1)
    y, pull_back = linear(a, slices, weight, bias)

    def pullback(g: Array) -> tuple[Array, ...]:
        by_slices, by_weight, by_bias = pull_back(g.reshape(slices.shape))
        return by_slices.reshape(x.shape), by_weight, by_bias

    return y.reshape(x.shape), pullback


def by_heads(wrong: Step) -> Step:
    """A wrong form of a linear map, of each head's slice of x [B, S, H·d]."""

    def projection(a: Arithmetic, x: Array, weight: Array, bias: Array, num_heads: int, **told: int) -> Array:
        slices = x.reshape(*x.shape[:-1], num_heads, -1)
        return np.reshape(wrong(a, slices, weight, bias, num_heads=num_heads, **told)[0], x.shape)

    return forward_only(projection)


def first_head_for_all(a: Arithmetic, x: Array, weight: Array, bias: Array, num_heads: int, **told: int) -> Array:
    """One map [d, d], that of head 0's own features, for every head's slice of x [B, S, H, d]."""
    d = x.shape[-1] // num_heads
    return shared_by_heads(a, x, weight[:d, :d], bias[:d], num_heads)[0]


def scaled(a: Arithmetic, x: Array, weight: Array, bias: Array, num_heads: int, scaled_by: int) -> Array:
    """(x @ weight + bias) / √d, or / √D where the layer divides its scores by that."""
    return a.divide(linear(a, x, weight, bias)[0], a.sqrt(a.exact(float(scaled_by))))


def scaled_before_bias(a: Arithmetic, x: Array, weight: Array, bias: Array, num_heads: int, scaled_by: int) -> Array:
    """x @ weight / √d + bias, or / √D likewise."""
    return a.add(a.divide(a.matmul(x, weight), a.sqrt(a.exact(float(scaled_by)))), bias)


_SCALED: dict[str, Step] = {"scaled": forward_only(scaled), "scaled-before-bias": forward_only(scaled_before_bias)}
_OF_ANY_MAP = {name: _told(VARIANTS[name]) for name in ("not-applied", "bias-twice")} | _SCALED

PROJECTION: dict[str, Step] = {
    **{name: _told(form) for name, form in VARIANTS.items()},
    "shared_by_heads": shared_by_heads,
    **own_forms("shared_by_heads", in_narrower(shared_by_heads)),
    **own_forms("shared_by_heads", {name: by_heads(form) for name, form in _OF_ANY_MAP.items()}),
    "first-head-for-all": forward_only(first_head_for_all),
    **_SCALED,
}
"""The forms of query, key and value, which are told `num_heads` and `scaled_by`."""
