"""Probe layers, whose output shows the dropout mask of each placement (rules Q-1 and Q-2).

All placements drop at once, as in training. With r the scale and m the mask (1 kept, 0 dropped) of a placement, the
layer adds to feature j of x at position s

    r_o · m_o[s, j] · (1 + r_w · m_w[h, s, k])          attention, j being feature k of head h
    K · r_f · m_f[s, j] · (1 + r_a · m_a[s, u])          feed-forward, u the unit that j shows

Queries and keys are 0, so that weights are 1 / S; the values are the identity of the positions; the hidden activation
is one number. The last four features are for measuring. The first of them shows the feed-forward network alone, the
second its bias alone. The last two show nothing: they are −R and R, and serve to invert a norm after the sums.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from encoder_conformance.protocol.streamed import PART
from encoder_conformance.spec.axes import Bools
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.parameters import Parameter
from encoder_conformance.spec.portable import Floats


@dataclass(frozen=True)
class Sparse:
    """[rows, columns], 0 but for `values` at (`row`, `column`); no place is given twice."""

    shape: tuple[int, ...]
    row: npt.NDArray[np.int64]
    column: npt.NDArray[np.int64]
    values: Floats

    def whole(self) -> Floats:
        value = np.zeros(self.shape)
        value[self.row, self.column] = self.values
        return value

    def parts(self) -> Iterator[Floats]:
        """The elements in flat parts, in row-major order. The whole matrix is never in memory."""
        rows, columns = self.shape
        at = self.row * columns + self.column
        order = np.argsort(at)
        at, values = at[order], self.values[order]
        for begin in range(0, rows * columns, PART):
            part = np.zeros(min(PART, rows * columns - begin))
            first, last = np.searchsorted(at, (begin, begin + part.size))
            part[at[first:last] - begin] = values[first:last]
            yield part


UNIT, BIAS, LOW, HIGH = -4, -3, -2, -1
"""The features for measuring, counted from the last."""
MEASURING = 4
ACTIVATION = 64.0
"""The value of each hidden unit, before and after the activation: so large that every activation is the identity."""
_LONGEST = 32
_WEIGHTS_WANTED = 2**16
"""The least number of attention weights in a batch: enough to tell a rate of 0.1 from one of 0.107."""


def unfit(layer: Layer) -> str:
    """The reason why a layer cannot be probed; "" if it can."""
    if layer.is_stack:
        return "dropout is read off single layers, and off a stack only that of embedded tokens"
    if layer.head_dim <= MEASURING or layer.attention.num_heads < 2:
        return f"dropout is read off layers of two heads or more, each of more than {MEASURING} features"
    if layer.norm.placement not in ("pre", "post") or layer.layer_scale or layer.residual_scale != 1.0:
        return "dropout is read off layers that add what their sub-layers give as it is"
    return "dropout is read off feed-forward networks without a gate" if layer.feed_forward.gated else ""


@dataclass(frozen=True)
class Probe:
    """A probe of the layer `original`. `block` selects the hidden units that it shows, as many as features permit."""

    original: Layer
    block: int = 0

    @cached_property
    def layer(self) -> Layer:
        """The original layer with the two biases that the probe needs."""
        attention = self.original.attention.model_copy(update={"output_bias": True})
        biased = {"bias": True, "hidden_bias": None, "output_bias": None}
        feed_forward = self.original.feed_forward.model_copy(update=biased)
        return self.original.model_copy(update={"attention": attention, "feed_forward": feed_forward})

    @property
    def positions(self) -> int:
        return min(self.original.head_dim - MEASURING, _LONGEST)

    @property
    def batch(self) -> int:
        return -(-_WEIGHTS_WANTED // (self.original.attention.num_heads * self.positions**2))

    @property
    def blocks(self) -> int:
        return -(-self.original.feed_forward.d_ff // (self.original.d_model - MEASURING + 1))

    @property
    def output_shape(self) -> tuple[int, ...]:
        return self.x.shape

    def inputs(self, dtype: np.dtype[Any]) -> dict[str, npt.NDArray[Any]]:
        return {"x": np.ascontiguousarray(self.x.astype(dtype))}

    @property
    def is_post_norm(self) -> bool:
        return self.original.norm.placement == "post"

    @property
    def offset(self) -> float:
        """R: so much larger than the rest of x that its standard deviation is about 3 for every D."""
        return float(2.0 ** np.round(np.log2(2 * np.sqrt(self.original.d_model))))

    @cached_property
    def ordinary(self) -> Bools:
        """[D], true at the features that are not for measuring."""
        features: Bools = np.arange(self.original.d_model) < self.original.d_model - MEASURING
        return features

    @cached_property
    def shows_weight(self) -> Bools:
        """[D], true at the features that show an attention weight."""
        return np.asarray(self.ordinary & (np.arange(self.original.d_model) % self.original.head_dim < self.positions))

    @cached_property
    def units(self) -> npt.NDArray[np.int64]:
        """[D], the hidden unit that each feature shows, −1 if none."""
        D = self.original.d_model
        showing = np.array([D + UNIT, *range(D - MEASURING)])
        unit = self.block * showing.size + np.arange(showing.size)
        shown = np.full(D, -1, dtype=np.int64)
        shown[showing] = np.where(unit < self.original.feed_forward.d_ff, unit, -1)
        return shown

    @cached_property
    def x(self) -> Floats:
        """[B, S, D]: at position s, feature s of each head is 1."""
        S, D, d = self.positions, self.original.d_model, self.original.head_dim
        row = np.where(self.shows_weight, np.arange(D) % d == np.arange(S)[:, None], 0.0)
        row[:, LOW], row[:, HIGH] = -self.offset, self.offset
        return np.broadcast_to(row, (self.batch, S, D))

    def norm_denominator(self, x: Floats) -> Floats:
        """[..., 1], the denominator of the layer's norm of x."""
        centred = x - x.mean(axis=-1, keepdims=True) if self.original.norm.kind == "layer_norm" else x
        return np.asarray(np.sqrt(np.mean(centred**2, axis=-1, keepdims=True) + self.original.norm.epsilon))

    @cached_property
    def ffn_scale(self) -> float:
        """K, a power of two. It makes the feed-forward output at least four times the largest of attention."""
        rates = self.original.dropout
        most = 1 / (1 - rates.attention_output) * (1 + 1 / (1 - rates.attention_weights))
        return float(2.0 ** np.ceil(np.log2(max(16.0, 4 * most) / self.ffn_unit)))

    @cached_property
    def ffn_unit(self) -> float:
        """One unit of the feed-forward network's output after the last norm is inverted, without dropout."""
        return float(self.norm_denominator(self.x[0, 0])[0]) if self.is_post_norm else 1.0

    def parameter(self, parameter: Parameter) -> Floats:
        """The probe's values of one parameter, in its shape."""
        if (sparse := self.sparse(parameter)) is not None:
            return sparse.whole()
        value = np.zeros(parameter.shape(self.layer))
        match parameter.name:
            case "norm1.gain":
                value += 1.0 if self.is_post_norm else self.norm_denominator(self.x[0, 0])
            case "norm1.shift" if not self.is_post_norm:
                value += self.x[0, 0].mean()
            case "norm2.gain":
                value += 1.0
            case "attention.output.bias":
                value += self.ordinary
            case "feed_forward.hidden.bias":
                value += ACTIVATION
            case "feed_forward.output.bias":
                value[:LOW] = self.ffn_scale
        return value

    def sparse(self, parameter: Parameter) -> Sparse | None:
        """The probe's values of a matrix, of which nearly all are zeros; None of a vector."""
        shape = parameter.shape(self.layer)
        if len(shape) != 2:
            return None
        diagonal = np.arange(min(shape))
        match parameter.name:
            case "attention.value.weight":
                return Sparse(shape, diagonal, diagonal, np.ones(diagonal.size))
            case "attention.output.weight":
                return Sparse(
                    shape, diagonal, diagonal, np.where(self.shows_weight, self.positions, 0.0)[: diagonal.size]
                )
            case "feed_forward.output.weight":
                shown = np.flatnonzero(self.units >= 0)
                return Sparse(shape, self.units[shown], shown, np.full(shown.size, self.ffn_scale / ACTIVATION))
        return Sparse(shape, _NOWHERE, _NOWHERE, np.empty(0))


_NOWHERE = np.empty(0, np.int64)
