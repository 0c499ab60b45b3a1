"""What stands between scores and weights is read by values: a scale, numbers that are added, a cap."""

from collections.abc import Callable

import numpy as np
import pytest

from encoder_conformance.readers.onnx_file.tracing.expressions import Expression, Operation, UnsupportedPattern
from encoder_conformance.readers.onnx_file.tracing.softmax import softmax_of
from encoder_conformance.spec.axes import Array

SHAPE = 2, 3, 5, 5


@pytest.mark.parametrize("cap", [0.0, 1.5, 50.0])
@pytest.mark.parametrize("added", [0.0, 0.4])
def test_cap_scale_and_numbers_are_read(cap: float, added: float) -> None:
    constant = added * np.random.default_rng(1).normal(size=SHAPE)
    constant[..., 0, 3] = -np.inf

    def weights(scores: Array) -> Array:
        given = 0.25 * scores + np.where(np.isfinite(constant), constant, 0.0)
        given = cap * np.tanh(given / cap) if cap else given
        given = np.where(np.isfinite(constant), given, -np.inf)
        made = np.exp(given - given.max(-1, keepdims=True))
        return np.asarray(made / made.sum(-1, keepdims=True))

    index = np.arange(np.prod(SHAPE)).reshape(SHAPE)
    found = softmax_of(weights, Expression(Operation(SHAPE, "scores"), index, True, False))
    assert found.cap == cap
    assert abs(found.scale - 0.25) < 1e-4
    assert found.constant is not None
    assert np.array_equal(np.isneginf(found.constant), np.isneginf(constant))


def _read(weights: Callable[[Array], Array]) -> float:
    index = np.arange(np.prod(SHAPE)).reshape(SHAPE)
    return softmax_of(weights, Expression(Operation(SHAPE, "scores"), index, True, False)).scale


@pytest.mark.parametrize("scale", [3e3, -4e6])
def test_a_scale_that_leaves_nothing_of_most_keys_is_read(scale: float) -> None:
    def weights(scores: Array) -> Array:
        made = np.exp(scale * scores - (scale * scores).max(-1, keepdims=True))
        return np.asarray(made / made.sum(-1, keepdims=True))

    assert abs(_read(weights) / scale - 1) < 1e-6


def test_what_is_a_softmax_of_small_scores_alone_is_none() -> None:
    """Of small scores sparsemax is 1 / n + s - mean(s), which is a softmax of n · s but for their squares."""

    def sparsemax(scores: Array) -> Array:
        ordered, count = np.sort(scores, -1)[..., ::-1], np.arange(1, scores.shape[-1] + 1)
        over = 1 + count * ordered > ordered.cumsum(-1)
        largest = over.sum(-1, keepdims=True)
        threshold = (np.where(over, ordered, 0).sum(-1, keepdims=True) - 1) / largest
        return np.asarray(np.maximum(scores - threshold, 0.0))

    with pytest.raises(UnsupportedPattern):
        _read(sparsemax)
