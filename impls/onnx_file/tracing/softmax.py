"""Whether a function of the scores' rows is a softmax, by its values."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from encoder_conformance.impls.onnx_file.tracing.expressions import Array, Local, NotUnderstood


@dataclass(frozen=True)
class Softmax:
    """softmax(scale · scores + constant)."""

    scale: float
    constant: Array | None


def softmax_of(of: Callable[[Array], Array], shape: tuple[int, ...], local: Local) -> Softmax:
    """Raises NotUnderstood. `of` is the function, from the scores [B, H, Q, K] to the value that `local` is."""
    scores = np.random.default_rng(0).normal(size=shape)

    def weights(values: Array) -> Array:
        found = np.full(int(np.prod(shape)), np.nan)
        found[local.index.reshape(-1)] = of(values).reshape(-1)
        return found.reshape(shape)

    with np.errstate(all="ignore"):
        at_zero, seen = np.log(weights(np.zeros(shape))), np.log(weights(scores))
        moved, centred = seen - at_zero, scores
        open_ = np.isfinite(moved)
        if not open_.any():
            raise NotUnderstood("attention's weights are all 0 or no numbers, with masks that hide nothing")
        counts = open_.sum(axis=local.axis, keepdims=True)
        moved = np.where(open_, moved - np.where(open_, moved, 0).sum(local.axis, keepdims=True) / counts, 0)
        centred = np.where(open_, centred - np.where(open_, centred, 0).sum(local.axis, keepdims=True) / counts, 0)
        scale = float((moved * centred).sum() / (centred * centred).sum())
        due = np.exp(scale * scores + at_zero - np.nanmax(np.where(open_, at_zero, np.nan)))
        due /= due.sum(axis=local.axis, keepdims=True)
        off = np.abs(np.exp(seen) - due)
    if not np.nanmax(off) < 1e-5:
        raise NotUnderstood("the scores go through something over each row that is no softmax")
    even = np.log(1 / shape[local.axis])
    constant = None if np.abs(at_zero - even).max() < 1e-5 else at_zero - at_zero.max(axis=local.axis, keepdims=True)
    return Softmax(scale, constant)
