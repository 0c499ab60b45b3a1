"""Wrong forms show what a wrong forward pass gives; what its gradients would be is nobody's specification."""

from collections.abc import Callable

from harness.oracle.arithmetic import Array
from harness.oracle.tape import Pullback, Step


def no_gradient(g: Array) -> tuple[Array, ...]:
    raise TypeError("a wrong form of a step has no gradient")


def forward_only(compute: Callable[..., Array]) -> Step:
    """A step from a function that gives its result alone."""

    def step(*operands: object, **choices: object) -> tuple[Array, Pullback]:
        return compute(*operands, **choices), no_gradient

    step.__doc__ = compute.__doc__
    return step


def narrowed(x: Array, dtype: str) -> Array:
    """Rounded to a narrower format and back, as a cast inside a layer does."""
    import ml_dtypes
    import numpy as np

    if dtype == "tf32":  # float32's exponent, 10 bits of fraction, round to nearest even
        mantissa, exponent = np.frexp(np.asarray(x, dtype=np.float64))
        return np.ldexp(np.rint(mantissa * 2.0**11) / 2.0**11, exponent).astype(x.dtype)
    to = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    return x.astype(to).astype(x.dtype)
