"""Linear maps (E-2): x [B, S, in] @ weight [in, out] + bias [out], and the ways to get them wrong."""

import numpy as np

from harness.oracle.arithmetic import Arithmetic, Array
from harness.oracle.steps.forward_only import forward_only, narrowed
from harness.oracle.tape import Pullback, Step


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


def _in(dtype: str) -> Step:
    def narrow(a: Arithmetic, x: Array, weight: Array, bias: Array) -> Array:
        return a.add(np.asarray(narrowed(x, dtype) @ narrowed(weight, dtype)), bias)

    return forward_only(narrow)


WAYS: dict[str, Step] = {
    "standard": linear,
    "not-applied": forward_only(not_applied),
    "bias-twice": forward_only(bias_twice),
    "in-bfloat16": _in("bfloat16"),
    "in-float16": _in("float16"),
    "in-tf32": _in("tf32"),
    "in-float32": _in("float32"),
}
