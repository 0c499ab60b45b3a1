"""What stands between scores and weights is read by values: a scale, numbers that are added, a cap."""

import numpy as np
import pytest

from encoder_conformance.readers.onnx_file.tracing.expressions import Expression, Operation
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
