"""Recognises a softmax over the rows of the scores by its values."""

from collections.abc import Callable

import numpy as np

from encoder_conformance.readers.onnx_file.tracing.expressions import Expression, UnsupportedPattern
from encoder_conformance.spec.axes import Array

_SEEN, _HIDDEN = 1e-3, 100.0
"""What is added to a score: less than the one is rounding, more than the other hides a key (M-6)."""


def softmax_of(of: Callable[[Array], Array], expression: Expression) -> tuple[float, Array | None]:
    """`scale` and `constant` [B, H, Q, K] of softmax(scale · scores + constant); raises UnsupportedPattern.

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
        scale = float((moved * centred).sum() / (centred * centred).sum())
        expected = np.exp(scale * scores + at_zero - np.nanmax(np.where(open_, at_zero, np.nan)))
        expected /= expected.sum(axis=axis, keepdims=True)
        error = np.abs(np.exp(observed) - expected)
    if not np.nanmax(error) < 1e-5:
        raise UnsupportedPattern("the scores go through something over each row that is no softmax")
    even = np.log(1 / shape[axis])
    return scale, None if np.abs(at_zero - even).max() < 1e-5 else at_zero - at_zero.max(axis=axis, keepdims=True)


def biases_positions(constant: Array) -> bool:
    """Whether it prefers some of the positions that it does not hide: relative positions, or ALiBi."""
    return bool(((constant < -_SEEN) & (constant > -_HIDDEN)).any())
