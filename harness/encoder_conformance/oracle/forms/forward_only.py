"""Wrong forms of steps: they have a wrong forward pass, and no gradients, which nobody specifies."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.tape import ByOperands, Pullback, Step
from encoder_conformance.spec import portable
from encoder_conformance.spec.axes import Array, Elementwise

Wrong = TypeVar("Wrong")


def no_gradient(g: Array) -> ByOperands:
    raise TypeError("a wrong form of a step has no gradient")


def forward_only(compute: Callable[..., Array]) -> Step:
    """A step from a function that gives its result alone."""

    def step(*operands: object, **choices: object) -> tuple[Array, Pullback]:
        return compute(*operands, **choices), no_gradient

    return step


def pass_on(a: Arithmetic, x: Elementwise) -> tuple[Elementwise, Pullback]:
    """A step that is not there: x as it is."""
    return x, lambda g: (g,)


def in_float32(right: Step) -> Step:
    """The right form with every operation of it in float32, between a cast and a cast back.

    Rounding the operands alone would be too quiet: most of the scatter is made inside, one operation after another.
    """

    def narrow(a: Arithmetic, *operands: Array, **choices: object) -> Array:
        inside = [in_float32_of(a, operand) for operand in operands]
        return right(a.float32, *inside, **choices)[0].astype(operands[0].dtype)

    return forward_only(narrow)


def in_narrower(right: Step) -> dict[str, Step]:
    """A step that multiplies its first two operands, in each narrower format, under the name of that: a matrix product
    rounds what it is given and adds up in a wider one. In float32 every operation rounds."""
    rounded = {f"in-{dtype}": _of_rounded(right, dtype) for dtype in ("bfloat16", "float16", "tf32")}
    return {**rounded, "in-float32": in_float32(right)}


def _of_rounded(right: Step, dtype: str) -> Step:
    def narrow(a: Arithmetic, *operands: Array, **choices: object) -> Array:
        factors = (narrowed(operand, dtype) for operand in operands[:2])
        return right(a, *factors, *operands[2:], **choices)[0]

    return forward_only(narrow)


def forms_of(name: str, forms: dict[str, Wrong]) -> dict[str, Wrong]:
    """The wrong forms of a step whose right form a layer chooses by `name`, as `variant_of` finds them."""
    return {f"{name}-{form}": step for form, step in forms.items()}


def in_float32_of(a: Arithmetic, x: Elementwise) -> Elementwise:
    """x rounded to float32, in the dtype that `a.float32` computes in."""
    return x.astype(np.float32).astype(a.float32.dtype)


def narrowed(x: Elementwise, dtype: str) -> Elementwise:
    """x rounded to a narrower format and back, as a cast inside a layer does."""
    import ml_dtypes

    if dtype == "tf32":  # float32's exponent, 10 bits of fraction, round to nearest even
        mantissa, exponent = np.frexp(np.asarray(x, dtype=np.float64))
        return np.ldexp(np.rint(mantissa * 2.0**11) / 2.0**11, exponent).astype(x.dtype)
    to = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    return x.astype(to).astype(x.dtype)


def left_on(a: Arithmetic, x: Elementwise, name: str, shape: tuple[int, ...], rate: float) -> Elementwise:
    """Dropout in evaluation, by a mask of `shape` that the portable generator draws for `name`.

    Its rate is the layer's, or 0.1 where the layer has none.
    """
    rate = rate or 0.1
    drawn = portable.integers(f"dropout {a.draw} {name}", int(np.prod(shape))).reshape(shape)  # −255 … 255
    return np.where(drawn >= -255 + round(511 * rate), x / (1 - rate), 0.0)
