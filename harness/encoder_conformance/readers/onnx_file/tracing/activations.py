"""Recognises an activation, or a softmax over the rows of the scores, by its values."""

import math
from collections.abc import Callable

import numpy as np

from encoder_conformance.readers.onnx_file.tracing.expressions import Expression, UnsupportedPattern
from encoder_conformance.readers.onnx_file.tracing.unsupported import Feature
from encoder_conformance.spec.axes import Array, Elementwise

EXACT = 2e-5
NEAR = 0.2
"""A function this close to an activation, and no closer, is taken for an inexact one; a finding says so."""
NEARER = {"quick_gelu": 4e-3}
"""Activation → NEAR of it alone: QuickGELU is near GELU itself, and rounding its 1.702 takes it no further off."""


def probe(shape: tuple[int, ...]) -> Array:
    """−8 … 8, evenly, and −2 … 2, where activations differ most."""
    size = int(np.prod(shape))
    values = np.linspace(-8, 8, size)
    values[::3] /= 4
    return values.reshape(shape)


_ERF = np.frompyfunc(math.erf, 1, 1)
"""The C library's: a worker of each level would take longer to import SciPy than to look into a file."""


def _erf(x: Elementwise) -> Elementwise:
    return np.asarray(_ERF(x), np.float64)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + _erf(x / np.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "quick_gelu": lambda x: x / (1 + np.exp(-1.702 * x)),
}


def activation_of(observed: Elementwise, inputs: Elementwise, name: str) -> tuple[str, float, float]:
    """The name, the factor and the largest error, which is 0 where the function is exact.

    The factor is not 1 where an optimiser moved a factor, such as GELU's half, past the next product. One that is taken
    for an inexact activation has a power of 2: another would hide what is wrong with it.
    """
    with np.errstate(all="ignore"):
        expected = {function: f(inputs) for function, f in ACTIVATIONS.items()}
        factors = {function: float(np.vdot(observed, due) / np.vdot(due, due)) for function, due in expected.items()}
        for function, factor in factors.items():
            if np.abs(observed - factor * expected[function]).max() <= EXACT * max(1.0, abs(factor)):
                return function, 1.0 if abs(factor - 1) < EXACT else factor, 0.0
        powers = {f: float(2.0 ** np.round(np.log2(factors[f]))) if factors[f] > 0 else 1.0 for f in ACTIVATIONS}
        errors = {f: float(np.abs(observed / power - expected[f]).max()) for f, power in powers.items()}
    near = [f for f, error in errors.items() if error <= NEARER.get(f, NEAR)]
    if not near:
        raise UnsupportedPattern(f"{name!r} is a function of each element, and none of {', '.join(ACTIVATIONS)}")
    function = min(near, key=errors.__getitem__)
    return function, powers[function], errors[function]


def softmax_of(of: Callable[[Array], Array], expression: Expression) -> tuple[float, Array | None, float]:
    """`scale`, `constant` [B, H, Q, K] and `cap` of softmax(cap · tanh(scale · scores / cap) + constant); a cap of 0 is
    none. Raises UnsupportedPattern.

    `of` maps scores [B, H, Q, K] to the value that `expression` is.
    """
    shape, axis = expression.operation.shape, expression.axis
    scores = np.random.default_rng(0).normal(size=shape)

    def weights(values: Array) -> Array:
        """Weights [B, H, Q, K] of scores [B, H, Q, K]."""
        found = np.full(int(np.prod(shape)), np.nan)
        found[expression.index.reshape(-1)] = of(values).reshape(-1)
        return found.reshape(shape)

    with np.errstate(all="ignore"):
        at_zero, observed = np.log(weights(np.zeros(shape))), np.log(weights(scores))
        open_ = np.isfinite(observed - at_zero)
        if not open_.any():
            raise UnsupportedPattern("attention's weights are all 0 or no numbers, with masks that hide nothing")
        counts = open_.sum(axis=axis, keepdims=True)
        moved, centred = (
            np.where(open_, values - np.where(open_, values, 0).sum(axis, keepdims=True) / counts, 0)
            for values in (observed - at_zero, scores)
        )
        scale, cap = float((moved * centred).sum() / (centred * centred).sum()), 0.0
        if not _largest_error(weights(scores), scale * scores, at_zero, axis) < _ALIKE:
            scale, cap = _capped(weights, shape, axis)
            scores *= 2 * cap / scale
            if not _largest_error(weights(scores), cap * np.tanh(scale * scores / cap), at_zero, axis) < _ALIKE:
                raise UnsupportedPattern("the scores go through something over each row that is no softmax")
    even = np.log(1 / shape[axis])
    return scale, None if np.abs(at_zero - even).max() < 1e-5 else at_zero - at_zero.max(axis=axis, keepdims=True), cap


_ALIKE = 1e-5
"""The largest error of a weight."""


def _largest_error(observed: Array, scores: Array, at_zero: Array, axis: int) -> float:
    """Of weights [B, H, Q, K], against the softmax of scores; `at_zero`: the logarithm of those of scores of 0."""
    expected = np.exp(scores + at_zero - np.nanmax(np.where(np.isfinite(at_zero), at_zero, np.nan)))
    expected /= expected.sum(axis=axis, keepdims=True)
    return float(np.nanmax(np.abs(observed - expected)))


def _capped(weights: Callable[[Array], Array], shape: tuple[int, ...], axis: int) -> tuple[float, float]:
    """`scale` and `cap` of scores that go through cap · tanh(scale · scores / cap); raises UnsupportedPattern.

    The weights of two keys tell, of which one has a score and the other 0: a large score gives the cap, a small one the
    scale.
    """
    first, other = (0, 0, 0, 0), (0, 0, 0, 1) if axis == -1 else (0, 0, 1, 0)

    def apart(score: float) -> float:
        scores = np.zeros(shape)
        scores[first] = score
        found = weights(scores)
        return float(np.log(found[first]) - np.log(found[other]))

    even, cap = apart(0.0), apart(1e9)
    small = 1e-3
    cap, scale = cap - even, (apart(small) - even) / small
    if not (np.isfinite([cap, scale]).all() and cap > 0 and scale > 0):
        raise UnsupportedPattern("the scores go through something over each row that is no softmax")
    return scale, _few_digits(cap)


def _few_digits(cap: float) -> float:
    """The number of few digits that it is near."""
    near = (float(f"{cap:.{digits}g}") for digits in range(1, 6))
    return next((each for each in near if abs(each / cap - 1) < 1e-5), cap)


_SEEN, _HIDDEN = 1e-3, 100.0
"""What is added to a score: less than the one is rounding, more than the other hides a key (M-6)."""


def biases_positions(constant: Array) -> bool:
    """Whether it prefers some of the positions that it does not hide: relative positions, or ALiBi."""
    return bool(((constant < -_SEEN) & (constant > -_HIDDEN)).any())


def hidden_pattern(constant: Array) -> Feature | None:
    """What hides keys from some queries alone, other than a causal mask; None where nothing does.

    `constant` [B, H, Q, K] is added to the scores. Keys that are hidden from every query are folded padding.
    """
    hidden = constant < -_HIDDEN
    S = hidden.shape[-1]
    distance = np.arange(S)[:, None] - np.arange(S)
    seen_by_some = ~hidden.all(-2, keepdims=True)
    if not (hidden & seen_by_some).any() or (hidden | ~seen_by_some == (distance < 0) | ~seen_by_some).all():
        return None
    near = [np.abs(distance)[~each].max(initial=0) < S - 1 for each in hidden.reshape(-1, S, S)]
    return "window" if all(near) else "own_mask"
