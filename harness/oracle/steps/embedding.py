"""Token embedding (E-15) and sinusoidal positions (E-16), and the ways to get them wrong. Tokens are [B, S, D]."""

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic, Array
from encoder_conformance.oracle.steps.forward_only import forward_only, left_on
from encoder_conformance.oracle.tape import Pullback, Step


def tokens(a: Arithmetic, weight: Array, ids: Array) -> tuple[Array, Pullback]:
    """Row ids[b, s] of weight [vocabulary, D], as it is (E-15)."""

    def pullback(g: Array) -> tuple[Array, ...]:
        by_weight = np.zeros_like(weight)
        for row in np.unique(ids):
            by_weight[row] = a.sum(g[ids == row], 0, keepdims=False)
        return (by_weight,)

    return weight[ids], pullback


def scaled(a: Arithmetic, weight: Array, ids: Array) -> Array:
    """The row times √D, as Vaswani et al. (2017, §3.4) have it."""
    return a.multiply(weight[ids], a.sqrt(a.exact(float(weight.shape[1]))))


def sinusoidal(a: Arithmetic, x: Array) -> tuple[Array, Pullback]:
    """x + sin(s / 10000^(2i/D)) at features 2i, and + the cosine at features 2i + 1, s from 0 (E-16)."""
    return a.add(x, table(a, x)), lambda g: (g,)


def table(a: Arithmetic, x: Array, first: int = 0) -> Array:
    """[S, D]: positions for x [B, S, D], counted from `first`, sine and cosine by turns."""
    waves = np.stack(_waves(a, x, first), axis=-1)
    return waves.reshape(x.shape[1], -1)[:, : x.shape[2]]


def _waves(a: Arithmetic, x: Array, first: int) -> tuple[Array, Array]:
    """[S, ⌈D / 2⌉], the sines and the cosines.

    10000^(−2i/D) is written as exp(−2i · (ln 10000 / D)), as implementations do that have no power: it rounds most,
    since what is rounded below goes on to 9.2 times as much above.
    """
    _, sequence, size = x.shape
    step = a.divide(a.log(a.exact(1e4)), a.exact(float(size)))
    even = a.exact(2.0 * np.arange((size + 1) // 2))
    position = a.exact(np.arange(first, first + sequence, dtype=np.float64))[:, None]
    angle = a.multiply(position, a.exp(-a.multiply(even, step)))
    return a.sin(angle), a.cos(angle)


def pass_on(a: Arithmetic, x: Array) -> tuple[Array, Pullback]:
    """Nothing is added."""
    return x, lambda g: (g,)


def from_one(a: Arithmetic, x: Array) -> Array:
    """Positions that count from 1."""
    return a.add(x, table(a, x, first=1))


def halves(a: Arithmetic, x: Array) -> Array:
    """Every sine in the first half of the features, every cosine in the second, as in tensor2tensor."""
    return a.add(x, np.concatenate(_waves(a, x, 0), axis=-1)[:, : x.shape[2]])


def dropout(a: Arithmetic, x: Array, *, dropout: float) -> Array:
    """Dropout left on, after the positions."""
    return left_on(a, x, "embedded", x.shape, dropout)


TOKENS: dict[str, Step] = {"standard": tokens, "scaled": forward_only(scaled)}
POSITIONS: dict[str, Step] = {
    "standard": sinusoidal,
    "none": pass_on,  # the choice of a layer
    "missing": forward_only(lambda a, x: x),
    "from-one": forward_only(from_one),
    "halves": forward_only(halves),
}
AFTER: dict[str, Step] = {
    "standard": lambda a, x, *, dropout: pass_on(a, x),
    "dropout": forward_only(dropout),
}
"""What stands between the embedded tokens and the first layer outside of training (A-3)."""
BETWEEN: dict[str, Step] = {"standard": pass_on, "positions-again": sinusoidal}
"""Before each layer of a stack but the first."""
