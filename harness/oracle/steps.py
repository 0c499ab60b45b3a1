"""The steps of an encoder layer, each with its equation and its pullback (clauses E-1 to E-8).

Shapes: B batch, S sequence, D d_model, H heads, d head_dim; `g` is the gradient by a step's result.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.oracle.arithmetic import Arithmetic, Array
from harness.oracle.tape import Pullback


def linear(a: Arithmetic, x: Array, weight: Array, bias: Array) -> tuple[Array, Pullback]:
    """x [B, S, in] @ weight [in, out] + bias [out] (E-2)."""
    y = a.add(a.matmul(x, weight), bias)

    def pullback(g: Array) -> tuple[Array, ...]:
        rows, g_rows = x.reshape(-1, x.shape[-1]), g.reshape(-1, g.shape[-1])
        return a.matmul(g, weight.T), a.matmul(rows.T, g_rows), a.sum(g_rows, axis=0, keepdims=False)

    return y, pullback


def split_heads(a: Arithmetic, x: Array, num_heads: int) -> tuple[Array, Pullback]:
    """[B, S, D] → [B, H, S, d]: head h holds features h·d … (h+1)·d − 1 (E-5)."""
    return _split(x, num_heads), lambda g: (_merge(g),)


def merge_heads(a: Arithmetic, x: Array) -> tuple[Array, Pullback]:
    """[B, H, S, d] → [B, S, D], the way back of `split_heads` (E-5)."""
    return _merge(x), lambda g: (_split(g, x.shape[1]),)


def _split(x: Array, num_heads: int) -> Array:
    batch, sequence, d_model = x.shape
    return x.reshape(batch, sequence, num_heads, d_model // num_heads).transpose(0, 2, 1, 3)


def _merge(x: Array) -> Array:
    batch, heads, sequence, head_dim = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, sequence, heads * head_dim)


def attention_scores(a: Arithmetic, query: Array, key: Array) -> tuple[Array, Pullback]:
    """query · keyᵀ / √d, [B, H, S, S], before any mask (E-5; Vaswani et al., 2017, eq. 1)."""
    root = a.sqrt(a.exact(float(query.shape[-1])))
    scores = a.divide(a.matmul(query, key.swapaxes(-1, -2)), root)

    def pullback(g: Array) -> tuple[Array, ...]:
        scaled = a.divide(g, root)
        return a.matmul(scaled, key), a.matmul(scaled.swapaxes(-1, -2), query)

    return scores, pullback


@dataclass(frozen=True)
class Softmax:
    """The weights [B, H, S, S], the scores that the mask left, and the logarithm of their exponentials' sum."""

    weights: Array
    kept: Array
    log_sum: Array


def masked_softmax(a: Arithmetic, scores: Array, mask: Any) -> Softmax:
    """Softmax over the keys, with −∞ in place of the scores that the mask excludes (E-5, M-1).

    A row with no key left is given zeros, which keeps it from disturbing anything else (M-4).
    """
    kept = scores if mask is None else np.where(mask, scores, -np.inf)
    largest = kept.max(axis=-1, keepdims=True)
    largest = np.where(np.isfinite(largest), largest, 0.0)
    exponentials = a.exp(a.subtract(kept, largest))
    total = a.sum(exponentials, -1)
    total = np.where(total == 0.0, 1.0, total)
    return Softmax(a.divide(exponentials, total), kept, a.add(largest, a.log(total)))


def attend(a: Arithmetic, scores: Array, value: Array, softmax: Softmax) -> tuple[Array, Pullback]:
    """softmax(scores) [B, H, S, S] · value [B, H, S, d] (E-5).

    The pullback is that of fused attention: it makes the weights again from their logarithm's sum, and takes the
    softmax's inner product over the features of the context (Dao et al., 2022, arXiv 2205.14135, algorithm 4). It is
    the noisier of the usual ways, so that its condition holds for all of them.
    """
    context = a.matmul(softmax.weights, value)

    def pullback(g: Array) -> tuple[Array, ...]:
        weights = a.exp(a.subtract(softmax.kept, softmax.log_sum))
        inner = a.sum(a.multiply(g, context), -1)
        by_weights = a.matmul(g, value.swapaxes(-1, -2))
        return a.multiply(weights, a.subtract(by_weights, inner)), a.matmul(weights.swapaxes(-1, -2), g)

    return context, pullback


def residual(a: Arithmetic, x: Array, change: Array) -> tuple[Array, Pullback]:
    return a.add(x, change), lambda g: (g, g)


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


def relu(a: Arithmetic, x: Array) -> tuple[Array, Pullback]:
    """max(x, 0), with slope 0 at 0 (E-6)."""
    return np.maximum(x, 0), lambda g: (np.where(x > 0, g, 0),)


def gelu(a: Arithmetic, x: Array) -> tuple[Array, Pullback]:
    """x · Φ(x), Φ(x) = (1 + erf(x/√2)) / 2 (E-7; Hendrycks and Gimpel, 2016)."""
    half = a.exact(0.5)  # a power of two: no format rounds by it
    two = a.exact(2.0)
    probability = half * a.add(a.exact(1.0), a.erf(a.divide(x, a.sqrt(two))))

    def pullback(g: Array) -> tuple[Array, ...]:
        root_two_pi = a.constant(np.sqrt(two * np.arctan2(a.exact(0.0), a.exact(-1.0))))  # arctan2(0, −1) is π
        density = a.divide(a.exp(-half * a.multiply(x, x)), root_two_pi)
        return (a.multiply(g, a.add(probability, a.multiply(x, density))),)

    return a.multiply(x, probability), pullback


ACTIVATIONS = {"relu": relu, "gelu": gelu}
