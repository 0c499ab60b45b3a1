"""Linear maps (E-2), x @ weight + bias, and their wrong forms.

Query, key and value are linear maps too. Their forms take `num_heads`, into which the result is split, and `scaled_by`,
the size by whose root the scores are divided.
"""

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.forms.form import Form
from encoder_conformance.oracle.forms.forward_only import forms_of, forward_only, in_narrower
from encoder_conformance.oracle.forms.needs import HAS_BIAS, MANY_HEADS, SCALED, SQUARE
from encoder_conformance.oracle.tape import ByOperands, Pullback, Step
from encoder_conformance.spec.axes import KM, M, Mapped, Rows


def linear(a: Arithmetic, x: Rows, weight: KM, bias: M) -> tuple[Mapped, Pullback]:
    """x @ weight + bias (E-2)."""
    y = a.affine(x, weight, bias)

    def pullback(g: Mapped) -> ByOperands:
        rows, g_rows = x.reshape(-1, x.shape[-1]), g.reshape(-1, g.shape[-1])
        return a.matmul(g, weight.T), a.matmul(rows.T, g_rows), a.sum(g_rows, axis=0, keepdims=False)

    return y, pullback


VARIANTS: dict[str, Step] = {
    "standard": linear,
    "not-applied": forward_only(lambda a, x, weight, bias: x),  # the map is declared and never used
    "bias-twice": forward_only(lambda a, x, weight, bias: a.add(a.add(a.matmul(x, weight), bias), bias)),
    **in_narrower(linear),
}


def _ignoring_sizes(form: Step) -> Step:
    """A form that takes the sizes of a projection and does nothing with them."""

    return lambda a, x, weight, bias, **sizes: form(a, x, weight, bias)


def shared_by_heads(
    a: Arithmetic, x: Rows, weight: KM, bias: M, num_heads: int, **sizes: int
) -> tuple[Mapped, Pullback]:
    """One map [d, d] for each head's slice of x [B, S, H·d] (E-12)."""
    slices = x.reshape(*x.shape[:-1], num_heads, -1)
    y, pull_back = linear(a, slices, weight, bias)

    def pullback(g: Mapped) -> ByOperands:
        by_slices, by_weight, by_bias = pull_back(g.reshape(slices.shape))
        return by_slices.reshape(x.shape), by_weight, by_bias

    return y.reshape(x.shape), pullback


def by_heads(wrong: Step) -> Step:
    """A wrong form of a linear map, of each head's slice of x [B, S, H·d]."""

    def projection(a: Arithmetic, x: Rows, weight: KM, bias: M, num_heads: int, **sizes: int) -> Mapped:
        slices = x.reshape(*x.shape[:-1], num_heads, -1)
        return np.reshape(wrong(a, slices, weight, bias, num_heads=num_heads, **sizes)[0], x.shape)

    return forward_only(projection)


def first_head_for_all(a: Arithmetic, x: Rows, weight: KM, bias: M, num_heads: int, **sizes: int) -> Mapped:
    """One map [d, d], that of head 0's own features, for every head's slice of x [B, S, H, d]."""
    d = x.shape[-1] // num_heads
    return shared_by_heads(a, x, weight[:d, :d], bias[:d], num_heads)[0]


def scaled(a: Arithmetic, x: Rows, weight: KM, bias: M, num_heads: int, scaled_by: int) -> Mapped:
    """(x @ weight + bias) / √d, or / √D where the layer divides its scores by that."""
    return a.divide(linear(a, x, weight, bias)[0], a.sqrt(a.exact(float(scaled_by))))


def scaled_before_bias(a: Arithmetic, x: Rows, weight: KM, bias: M, num_heads: int, scaled_by: int) -> Mapped:
    """x @ weight / √d + bias, or / √D likewise."""
    return a.add(a.divide(a.matmul(x, weight), a.sqrt(a.exact(float(scaled_by)))), bias)


_SCALED: dict[str, Step] = {"scaled": forward_only(scaled), "scaled-before-bias": forward_only(scaled_before_bias)}
_OF_ANY_MAP = {name: _ignoring_sizes(VARIANTS[name]) for name in ("not-applied", "bias-twice")} | _SCALED

_PROJECTION: dict[str, Step] = {
    **{name: _ignoring_sizes(form) for name, form in VARIANTS.items()},
    "shared_by_heads": shared_by_heads,
    **forms_of("shared_by_heads", in_narrower(shared_by_heads)),
    **forms_of("shared_by_heads", {name: by_heads(form) for name, form in _OF_ANY_MAP.items()}),
    "first-head-for-all": forward_only(first_head_for_all),
    **_SCALED,
}
"""The forms of query, key and value."""

_EQUATION = "{0} @ {weight}[ + {bias}]"
LINEAR = Form(
    VARIANTS,
    {"standard": _EQUATION},
    ("weight", "bias"),
    "what it reads",
    needs={"bias-twice": (HAS_BIAS,), "not-applied": (SQUARE,)},
)
PROJECTION = Form(
    _PROJECTION,
    {"standard": _EQUATION, "shared_by_heads": "by_heads({0}, {weight}, {bias})"},
    ("weight", "bias"),
    "what it reads",
    needs={
        "bias-twice": (HAS_BIAS,),
        "not-applied": (SQUARE,),
        "first-head-for-all": (MANY_HEADS, SQUARE),
        **dict.fromkeys(_SCALED, (SCALED,)),
    },
    is_choice={"first-head-for-all": "shared_by_heads"},
)
