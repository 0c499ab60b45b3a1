"""LayerNorm (E-1), RMSNorm (E-9), and the ways to get it wrong. x [B, S, D], gain and shift [D]."""

import numpy as np

from harness.oracle.arithmetic import Arithmetic, Array
from harness.oracle.steps.forward_only import forward_only, in_float32, narrowed, own_forms
from harness.oracle.tape import Pullback, Step


def layer_norm(a: Arithmetic, x: Array, gain: Array, shift: Array, epsilon: float) -> tuple[Array, Pullback]:
    """(x − mean) / √(variance + ε) · gain + shift, biased variance over D (E-1; Ba, Kiros and Hinton, 2016)."""
    mean = a.mean(x)
    centred = a.subtract(x, mean)
    variance = a.mean(a.multiply(centred, centred))
    scale = a.divide(a.exact(1.0), a.sqrt(a.add(variance, a.constant(epsilon))))
    # x · scale − mean · scale is how PyTorch and Keras write (x − mean) · scale; it is the noisier of the two.
    normal = a.subtract(a.multiply(x, scale), a.multiply(mean, scale))
    y = a.add(a.multiply(normal, gain), shift)

    def pullback(g: Array) -> tuple[Array, ...]:
        by_normal = a.multiply(g, gain)
        along = a.multiply(normal, a.mean(a.multiply(by_normal, normal)))
        by_x = a.multiply(a.subtract(a.subtract(by_normal, a.mean(by_normal)), along), scale)
        rows = tuple(range(x.ndim - 1))
        return by_x, a.sum(a.multiply(g, normal), rows, keepdims=False), a.sum(g, rows, keepdims=False)

    return y, pullback


def rms_norm(a: Arithmetic, x: Array, gain: Array, shift: Array, epsilon: float) -> tuple[Array, Pullback]:
    """x / √(mean square + ε) · gain over D (E-9; Zhang and Sennrich, 2019, arXiv 1910.07467). It has no shift."""
    scale = a.divide(a.exact(1.0), a.sqrt(a.add(a.mean(a.multiply(x, x)), a.constant(epsilon))))
    normal = a.multiply(x, scale)

    def pullback(g: Array) -> tuple[Array, ...]:
        by_normal = a.multiply(g, gain)
        along = a.multiply(normal, a.mean(a.multiply(by_normal, normal)))
        rows = tuple(range(x.ndim - 1))
        by_x = a.multiply(a.subtract(by_normal, along), scale)
        return by_x, a.sum(a.multiply(g, normal), rows, keepdims=False), np.zeros_like(shift)

    return a.multiply(normal, gain), pullback


def pass_on(a: Arithmetic, x: Array, gain: Array, shift: Array, epsilon: float) -> tuple[Array, Pullback]:
    """A layer's output is not normed again."""
    return x, lambda g: (g,)


def stack_end(a: Arithmetic, x: Array, gain: Array, shift: Array, epsilon: float) -> tuple[Array, Pullback]:
    """The output of a stack without a final norm is its last layer's."""
    return x, lambda g: (g, np.zeros_like(gain), np.zeros_like(shift))


def fresh_norm(a: Arithmetic, x: Array, gain: Array, shift: Array, epsilon: float) -> Array:
    """The output normed with a gain of 1 and a shift of 0, as a new norm has them."""
    return layer_norm(a, x, gain, shift, epsilon)[0]


def extra(a: Arithmetic, x: Array, gain: Array, shift: Array, epsilon: float) -> Array:
    """The output normed once more, with the second norm's parameters."""
    return layer_norm(a, x, gain, shift, epsilon)[0]


def _scaled(a: Arithmetic, normal: Array, gain: Array, shift: Array) -> Array:
    return a.add(a.multiply(normal, gain), shift)


def _normed(a: Arithmetic, x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    count = a.exact(float(np.prod([x.shape[axis] for axis in axes])))
    centred = a.subtract(x, a.divide(a.sum(x, axes), count))
    variance = a.divide(a.sum(a.multiply(centred, centred), axes), count)
    return a.divide(centred, a.sqrt(a.add(variance, a.constant(epsilon))))


def _unbiased(a: Arithmetic, centred: Array) -> Array:
    degrees = a.exact(float(centred.shape[-1] - 1))
    return a.divide(a.sum(a.multiply(centred, centred), -1), degrees)


def epsilon_outside_root(a: Arithmetic, x: Array, gain: Array, shift: Array, epsilon: float) -> Array:
    """(x − mean) / (√variance + ε)."""
    centred = a.subtract(x, a.mean(x))
    deviation = a.sqrt(a.mean(a.multiply(centred, centred)))
    return _scaled(a, a.divide(centred, a.add(deviation, a.constant(epsilon))), gain, shift)


def unbiased_epsilon_outside_root(a: Arithmetic, x: Array, gain: Array, shift: Array, epsilon: float) -> Array:
    """(x − mean) / (√variance + ε), the variance divided by D − 1: what torch.std and an epsilon make."""
    centred = a.subtract(x, a.mean(x))
    deviation = a.sqrt(_unbiased(a, centred))
    return _scaled(a, a.divide(centred, a.add(deviation, a.constant(epsilon))), gain, shift)


def no_epsilon(a: Arithmetic, x: Array, gain: Array, shift: Array, epsilon: float) -> Array:
    """(x − mean) / √variance."""
    return _scaled(a, _normed(a, x, (-1,), 0.0), gain, shift)


def unbiased_variance(a: Arithmetic, x: Array, gain: Array, shift: Array, epsilon: float) -> Array:
    """The variance divided by D − 1."""
    centred = a.subtract(x, a.mean(x))
    return _scaled(a, a.divide(centred, a.sqrt(a.add(_unbiased(a, centred), a.constant(epsilon)))), gain, shift)


def fast_variance(a: Arithmetic, x: Array, gain: Array, shift: Array, epsilon: float) -> Array:
    """The variance as E[x²] − E[x]², in float32: exact arithmetic would not tell it from the right one."""
    narrow = x.astype(np.float32)
    mean, square = narrow.mean(-1, keepdims=True), (narrow * narrow).mean(-1, keepdims=True)
    variance = np.maximum(square - mean * mean, np.float32(0))
    normal = a.divide(a.subtract(x, a.mean(x)), a.sqrt(a.add(variance.astype(x.dtype), a.constant(epsilon))))
    return _scaled(a, normal, gain, shift)


def over_positions(a: Arithmetic, x: Array, gain: Array, shift: Array, epsilon: float) -> Array:
    """Mean and variance over the sequence."""
    return _scaled(a, _normed(a, x, (1,), epsilon), gain, shift)


def over_positions_and_features(a: Arithmetic, x: Array, gain: Array, shift: Array, epsilon: float) -> Array:
    """Mean and variance over the sequence and the features together."""
    return _scaled(a, _normed(a, x, (1, 2), epsilon), gain, shift)


def over_batch(a: Arithmetic, x: Array, gain: Array, shift: Array, epsilon: float) -> Array:
    """Mean and variance over the batch and the sequence, as BatchNorm in training."""
    return _scaled(a, _normed(a, x, (0, 1), epsilon), gain, shift)


def root_mean_square(a: Arithmetic, x: Array, gain: Array, shift: Array, epsilon: float) -> Array:
    """RMSNorm with a shift: x / √(mean square + ε) (Zhang and Sennrich, 2019)."""
    mean_square = a.mean(a.multiply(x, x))
    return _scaled(a, a.divide(x, a.sqrt(a.add(mean_square, a.constant(epsilon)))), gain, shift)


def not_centred(a: Arithmetic, x: Array, gain: Array, shift: Array, epsilon: float) -> Array:
    """x / √(variance + ε): the mean left in."""
    centred = a.subtract(x, a.mean(x))
    variance = a.mean(a.multiply(centred, centred))
    return _scaled(a, a.divide(x, a.sqrt(a.add(variance, a.constant(epsilon)))), gain, shift)


def gain_before_norm(a: Arithmetic, x: Array, gain: Array, shift: Array, epsilon: float) -> Array:
    """Gain and shift applied to x, which is then normed."""
    return _normed(a, _scaled(a, x, gain, shift), (-1,), epsilon)


def gain_plus_one(a: Arithmetic, x: Array, gain: Array, shift: Array, epsilon: float) -> Array:
    """The stored gain read as gain − 1 (x-transformers, Gemma)."""
    return _scaled(a, _normed(a, x, (-1,), epsilon), a.add(gain, a.exact(1.0)), shift)


def skipped(a: Arithmetic, x: Array, gain: Array, shift: Array, epsilon: float) -> Array:
    """No norm at all."""
    return x


def _in_narrower(right: Step) -> dict[str, Step]:
    """The norm with x, what is normed and the result rounded to a format; in float32 every operation rounds."""

    def rounding_to(dtype: str) -> Step:
        def narrow(a: Arithmetic, x: Array, gain: Array, shift: Array, epsilon: float) -> Array:
            normal = right(a, narrowed(x, dtype), np.ones_like(gain), np.zeros_like(shift), epsilon)[0]
            return narrowed(_scaled(a, narrowed(normal, dtype), gain, shift), dtype)

        return forward_only(narrow)

    return {**{f"in-{dtype}": rounding_to(dtype) for dtype in ("bfloat16", "float16")}, "in-float32": in_float32(right)}


WAYS: dict[str, Step] = {
    "standard": layer_norm,
    "rms_norm": rms_norm,
    "epsilon-outside-root": forward_only(epsilon_outside_root),
    "unbiased-epsilon-outside-root": forward_only(unbiased_epsilon_outside_root),
    "no-epsilon": forward_only(no_epsilon),
    "unbiased-variance": forward_only(unbiased_variance),
    "fast-variance": forward_only(fast_variance),
    "over-positions": forward_only(over_positions),
    "over-positions-and-features": forward_only(over_positions_and_features),
    "over-batch": forward_only(over_batch),
    "root-mean-square": forward_only(root_mean_square),
    "not-centred": forward_only(not_centred),
    "gain-before-norm": forward_only(gain_before_norm),
    "gain-plus-one": forward_only(gain_plus_one),
    "skipped": forward_only(skipped),
    **_in_narrower(layer_norm),
    **own_forms("rms_norm", _in_narrower(rms_norm)),
}

STACK: dict[str, Step] = {
    "standard": layer_norm,
    "rms_norm": rms_norm,
    "missing": forward_only(skipped),
}
"""The final norm of a stack that has one (E-14)."""

STACK_END: dict[str, Step] = {"standard": stack_end, "normed": forward_only(fresh_norm)}
"""The end of a stack that has none: nothing, or a norm that is as it was made."""

FINAL: dict[str, Step] = {"standard": pass_on, "extra": forward_only(extra)}
"""After the last residual of a pre-norm layer: nothing, or one norm too many."""
