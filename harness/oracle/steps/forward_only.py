"""Wrong forms show what a wrong forward pass gives; what its gradients would be is nobody's specification."""

from collections.abc import Callable

import numpy as np

from harness.oracle.arithmetic import Arithmetic, Array, Float32
from harness.oracle.tape import Pullback, Step


def no_gradient(g: Array) -> tuple[Array, ...]:
    raise TypeError("a wrong form of a step has no gradient")


def forward_only(compute: Callable[..., Array]) -> Step:
    """A step from a function that gives its result alone."""

    def step(*operands: object, **choices: object) -> tuple[Array, Pullback]:
        return compute(*operands, **choices), no_gradient

    step.__doc__ = compute.__doc__
    return step


def in_float32(right: Step) -> Step:
    """The right form with every operation of it in float32, between a cast and a cast back.

    Rounding the operands alone would be too quiet: most of the scatter is made inside, one operation after another.
    """

    def narrow(a: Arithmetic, x: Array, *rest: Array, **choices: object) -> Array:
        inside = [operand.astype(np.float32) for operand in (x, *rest)]
        return right(Float32(), *inside, **choices)[0].astype(x.dtype)

    return forward_only(narrow)


def narrowed(x: Array, dtype: str) -> Array:
    """Rounded to a narrower format and back, as a cast inside a layer does."""
    import ml_dtypes

    if dtype == "tf32":  # float32's exponent, 10 bits of fraction, round to nearest even
        mantissa, exponent = np.frexp(np.asarray(x, dtype=np.float64))
        return np.ldexp(np.rint(mantissa * 2.0**11) / 2.0**11, exponent).astype(x.dtype)
    to = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    return x.astype(to).astype(x.dtype)
