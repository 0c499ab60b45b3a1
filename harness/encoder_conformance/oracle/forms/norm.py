"""LayerNorm (E-1) and RMSNorm (E-9), and their wrong forms."""

from collections.abc import Callable

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.forms.form import Form
from encoder_conformance.oracle.forms.forward_only import forms_of, forward_only, in_float32, in_float32_of, narrowed
from encoder_conformance.oracle.forms.needs import ROTATED
from encoder_conformance.oracle.tape import ByOperands, Pullback, Step
from encoder_conformance.spec.axes import BSD, D


def layer_norm(a: Arithmetic, x: BSD, gain: D, shift: D, epsilon: float) -> tuple[BSD, Pullback]:
    """(x − mean) / √(variance + ε) · gain + shift, biased variance over D (E-1; Ba, Kiros and Hinton, 2016)."""
    mean = a.mean(x)
    centred = a.subtract(x, mean)
    variance = a.mean(a.multiply(centred, centred))
    scale = a.divide(a.exact(1.0), a.sqrt(a.add(variance, a.constant(epsilon))))
    # x · scale − mean · scale is how PyTorch and Keras write (x − mean) · scale; it is the noisier of the two.
    normal = a.subtract(a.multiply(x, scale), a.multiply(mean, scale))
    y = a.add(a.multiply(normal, gain), shift)

    def pullback(g: BSD) -> ByOperands:
        by_normal = a.multiply(g, gain)
        along = a.multiply(normal, a.mean(a.multiply(by_normal, normal)))
        by_x = a.multiply(a.subtract(a.subtract(by_normal, a.mean(by_normal)), along), scale)
        rows = tuple(range(x.ndim - 1))
        return by_x, a.sum(a.multiply(g, normal), rows, keepdims=False), a.sum(g, rows, keepdims=False)

    return y, pullback


def rms_norm(a: Arithmetic, x: BSD, gain: D, shift: D, epsilon: float) -> tuple[BSD, Pullback]:
    """x / √(mean square + ε) · gain over D (E-9; Zhang and Sennrich, 2019, arXiv 1910.07467). It has no shift."""
    scale = a.divide(a.exact(1.0), a.sqrt(a.add(a.mean(a.multiply(x, x)), a.constant(epsilon))))
    normal = a.multiply(x, scale)

    def pullback(g: BSD) -> ByOperands:
        by_normal = a.multiply(g, gain)
        along = a.multiply(normal, a.mean(a.multiply(by_normal, normal)))
        rows = tuple(range(x.ndim - 1))
        by_x = a.multiply(a.subtract(by_normal, along), scale)
        return by_x, a.sum(a.multiply(g, normal), rows, keepdims=False), np.zeros_like(shift)

    return a.multiply(normal, gain), pullback


def pass_on(a: Arithmetic, x: BSD, gain: D, shift: D, epsilon: float) -> tuple[BSD, Pullback]:
    """A layer's output is not normed again."""
    return x, lambda g: (g,)


def stack_end(a: Arithmetic, x: BSD, gain: D, shift: D, epsilon: float) -> tuple[BSD, Pullback]:
    """The output of a stack without a final norm is its last layer's."""
    return x, lambda g: (g, np.zeros_like(gain), np.zeros_like(shift))


def _once_more(right: Step) -> Step:
    """The output normed where it is to be passed on, with the gain and shift that the step is given."""
    return forward_only(lambda a, *operands, **choices: right(a, *operands, **choices)[0])


def _scaled(a: Arithmetic, normal: BSD, gain: D, shift: D) -> BSD:
    return a.add(a.multiply(normal, gain), shift)


def _mean(a: Arithmetic, x: BSD, axes: tuple[int, ...]) -> BSD:
    return a.divide(a.sum(x, axes), a.exact(float(np.prod([x.shape[axis] for axis in axes]))))


Numerator = Callable[[Arithmetic, BSD, tuple[int, ...]], BSD]
"""The numerator of a norm over some axes, which the norm divides by the root of its mean square."""


def _less_its_mean(a: Arithmetic, x: BSD, axes: tuple[int, ...]) -> BSD:
    """The numerator of LayerNorm, which it divides by its root mean square."""
    return a.subtract(x, _mean(a, x, axes))


def _as_it_is(a: Arithmetic, x: BSD, axes: tuple[int, ...]) -> BSD:
    """The numerator of RMSNorm, which it divides by its root mean square."""
    return x


def _over_root(a: Arithmetic, numerator: BSD, mean_square: BSD, epsilon: float) -> BSD:
    return a.divide(numerator, a.sqrt(a.add(mean_square, a.constant(epsilon))))


def _normed(a: Arithmetic, numerator: BSD, axes: tuple[int, ...], epsilon: float) -> BSD:
    return _over_root(a, numerator, _mean(a, a.multiply(numerator, numerator), axes), epsilon)


def _unbiased(a: Arithmetic, centred: BSD) -> BSD:
    degrees = a.exact(float(centred.shape[-1] - 1))
    return a.divide(a.sum(a.multiply(centred, centred), -1), degrees)


def _scaling(normal: Callable[[Arithmetic, BSD, float], BSD]) -> Step:
    """A wrong norm, by what it makes of x and epsilon before gain and shift."""
    return forward_only(lambda a, x, gain, shift, epsilon: _scaled(a, normal(a, x, epsilon), gain, shift))


def _unbiased_epsilon_outside_root(a: Arithmetic, x: BSD, epsilon: float) -> BSD:
    """(x − mean) / (√variance + ε), the variance divided by D − 1: what torch.std and an epsilon make."""
    centred = a.subtract(x, a.mean(x))
    return a.divide(centred, a.add(a.sqrt(_unbiased(a, centred)), a.constant(epsilon)))


def _unbiased_variance(a: Arithmetic, x: BSD, epsilon: float) -> BSD:
    """The variance divided by D − 1."""
    centred = a.subtract(x, a.mean(x))
    return _over_root(a, centred, _unbiased(a, centred), epsilon)


def _fast_variance(a: Arithmetic, x: BSD, epsilon: float) -> BSD:
    """The variance as E[x²] − E[x]², in float32: exact arithmetic would not tell it from the right one."""
    inside, narrow = a.float32, in_float32_of(a, x)
    mean, square = inside.mean(narrow), inside.mean(inside.multiply(narrow, narrow))
    variance = np.maximum(inside.subtract(square, inside.multiply(mean, mean)), 0)
    return _over_root(a, a.subtract(x, a.mean(x)), variance.astype(x.dtype), epsilon)


def _not_centred(a: Arithmetic, x: BSD, epsilon: float) -> BSD:
    """x / √(variance + ε): the mean left in."""
    centred = a.subtract(x, a.mean(x))
    return _over_root(a, x, a.mean(a.multiply(centred, centred)), epsilon)


_SKIPPED = forward_only(lambda a, x, gain, shift, epsilon: x)
"""No norm at all."""


def _of_either_norm(numerator: Numerator) -> dict[str, Step]:
    """The wrong forms that LayerNorm and RMSNorm have alike; the two differ in their numerators."""

    def normed(a: Arithmetic, x: BSD, epsilon: float) -> BSD:
        return _normed(a, numerator(a, x, (-1,)), (-1,), epsilon)

    def epsilon_outside_root(a: Arithmetic, x: BSD, epsilon: float) -> BSD:
        """(x − mean) / (√variance + ε), or x / (root mean square + ε)."""
        above = numerator(a, x, (-1,))
        return a.divide(above, a.add(a.sqrt(a.mean(a.multiply(above, above))), a.constant(epsilon)))

    def over(*axes: int) -> Step:
        """A norm with mean and variance over these axes of [B, S, D]."""
        return _scaling(lambda a, x, epsilon: _normed(a, numerator(a, x, axes), axes, epsilon))

    def gain_plus_one(a: Arithmetic, x: BSD, gain: D, shift: D, epsilon: float) -> BSD:
        """The stored gain read as gain − 1 (x-transformers, Gemma)."""
        return _scaled(a, normed(a, x, epsilon), a.add(gain, a.exact(1.0)), shift)

    def unit_length(a: Arithmetic, x: BSD, epsilon: float) -> BSD:
        """Divided by the root of the sum of squares, and not of their mean."""
        above = numerator(a, x, (-1,))
        return _over_root(a, above, a.sum(a.multiply(above, above), -1), epsilon)

    return {
        "epsilon-outside-root": _scaling(epsilon_outside_root),
        "no-epsilon": _scaling(lambda a, x, epsilon: normed(a, x, 0.0)),
        "over-positions": over(1),
        "over-positions-and-features": over(1, 2),
        "over-batch": over(0, 1),  # as BatchNorm in training
        # Gain and shift applied to x, which is then normed.
        "gain-before-norm": forward_only(
            lambda a, x, gain, shift, epsilon: normed(a, _scaled(a, x, gain, shift), epsilon)
        ),
        "gain-plus-one": forward_only(gain_plus_one),
        "over-all-heads": over(1, 3),  # of heads [B, H, S, d]: the features of all heads of a position
        "unit-length": _scaling(unit_length),
        "skipped": _SKIPPED,
        "left-to-rotation": _SKIPPED,  # of queries and keys: what turns them norms them then
    }


def _in_narrower(right: Step) -> dict[str, Step]:
    """The norm with x, what is normed and the result rounded to a format; in float32 every operation rounds."""

    def rounding_to(dtype: str) -> Step:
        def narrow(a: Arithmetic, x: BSD, gain: D, shift: D, epsilon: float) -> BSD:
            normal = right(a, narrowed(x, dtype), np.ones_like(gain), np.zeros_like(shift), epsilon)[0]
            return narrowed(_scaled(a, narrowed(normal, dtype), gain, shift), dtype)

        return forward_only(narrow)

    return {**{f"in-{dtype}": rounding_to(dtype) for dtype in ("bfloat16", "float16")}, "in-float32": in_float32(right)}


VARIANTS: dict[str, Step] = {
    "standard": layer_norm,
    "rms_norm": rms_norm,
    "layer-norm": layer_norm,  # the choice of most layers; wrong where one chooses RMSNorm
    "unbiased-epsilon-outside-root": _scaling(_unbiased_epsilon_outside_root),
    "unbiased-variance": _scaling(_unbiased_variance),
    "fast-variance": _scaling(_fast_variance),
    # RMSNorm with a shift: x / √(mean square + ε).
    "root-mean-square": _scaling(lambda a, x, epsilon: _normed(a, x, (-1,), epsilon)),
    "not-centred": _scaling(_not_centred),
    **_of_either_norm(_less_its_mean),
    **_in_narrower(layer_norm),
    **forms_of("rms_norm", {**_of_either_norm(_as_it_is), "layer-norm": layer_norm, **_in_narrower(rms_norm)}),
}

ANOTHER_DEVIATION = ("unbiased-epsilon-outside-root", "unbiased-variance", "epsilon-outside-root")
"""The forms that divide by another deviation than √(variance + ε), those that people write most often first."""

BY_DEVIATION: dict[str, dict[str, Step]] = {
    "layer_norm": {"": layer_norm, **{form: VARIANTS[form] for form in ANOTHER_DEVIATION}},
    "rms_norm": {"": rms_norm, "epsilon-outside-root": VARIANTS["rms_norm-epsilon-outside-root"]},
}
"""Kind of norm → form → its step; "" is the right one. No variance is in an RMSNorm that could be unbiased."""

_STACK: dict[str, Step] = {
    "standard": layer_norm,
    "rms_norm": rms_norm,
    "missing": _SKIPPED,
    "rms_norm-missing": _SKIPPED,
}
"""The final norm of a stack that has one (E-14)."""

_STACK_END: dict[str, Step] = {
    "standard": stack_end,
    "rms_norm": stack_end,
    "normed": _once_more(layer_norm),
    "rms_norm-normed": _once_more(rms_norm),
}
"""The end of a stack that has none: nothing, or a norm as it is made, with a gain of 1 and a shift of 0."""

_FINAL: dict[str, Step] = {
    "standard": pass_on,
    "rms_norm": pass_on,
    "extra": _once_more(layer_norm),
    "rms_norm-extra": _once_more(rms_norm),
}
"""After the last residual of a pre-norm layer: nothing, or one norm too many, with the second norm's parameters."""

_ROLES = ("gain", "shift")
_LAYER_NORM = "({0} - mean({0}, -1)) / sqrt(var({0}, -1) + epsilon) * {gain}[ + {shift}]"
_EQUATIONS = {"standard": _LAYER_NORM, "rms_norm": "{0} / sqrt(mean({0} ** 2, -1) + epsilon) * {gain}"}
_CHOICES = {"root-mean-square": "rms_norm", "layer-norm": "standard"}
NORM = Form(
    VARIANTS,
    _EQUATIONS,
    _ROLES,
    "what it reads",
    needs={"left-to-rotation": (ROTATED,)},
    is_choice=_CHOICES,
)
STACK_NORM = Form(_STACK, _EQUATIONS, _ROLES, "what it reads")
_PASSED_ON = {"standard": "{0}", "rms_norm": "{0}"}
STACK_END = Form(_STACK_END, _PASSED_ON, _ROLES, makes_no_tensor=True)
END = Form(_FINAL, _PASSED_ON, makes_no_tensor=True)
