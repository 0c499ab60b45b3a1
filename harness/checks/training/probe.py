"""Layers whose output shows what each placement of dropout did to each of its elements (rules Q-1 and Q-2).

Every placement is at work at once, as in training. With r the scale and m the mask (1 kept, 0 dropped) of a placement,
feature j at position s of what is added to x is

    r_o · m_o[s, j] · (1 + r_w · m_w[h, s, k])          attention, j being feature k of head h
    K · r_f · m_f[s, j] · (1 + r_a · m_a[s, u])          feed-forward, u the unit that j shows

Queries and keys are 0, so that weights are 1 / S; the values are the identity of the positions; the hidden activation
is one number. The last four features are for measuring: the first of them shows the feed-forward network alone, the
second its bias alone, and the last two nothing at all: they are −R and R, by which a norm after the sums is undone.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from encoder_conformance.portable import Floats
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.parameters import Parameter, parameters_of

Bools = npt.NDArray[np.bool_]
UNIT, BIAS, LOW, HIGH = -4, -3, -2, -1
"""The features for measuring, counted from the last."""
MEASURING = 4
ACTIVATION = 64.0
"""What a hidden unit is, before and after every activation: so far to the right that each is the identity."""
_LONGEST = 32
_WEIGHTS_WANTED = 2**16
"""A batch has at least so many attention weights: enough to tell a rate of 0.1 from one of 0.107."""


def unfit(layer: Layer) -> str:
    """Why no probe can be made of a layer; "" if one can."""
    if layer.head_dim <= MEASURING or layer.attention.num_heads < 2:
        return f"dropout is read off layers of two heads or more, each of more than {MEASURING} features"
    return ""


@dataclass(frozen=True)
class Probe:
    """`block` says which of the hidden units are shown: as many at a time as there are features for them."""

    of: Layer
    block: int = 0

    @cached_property
    def layer(self) -> Layer:
        """The layer with the two biases that the probe needs; all else as it is."""
        attention = self.of.attention.model_copy(update={"output_bias": True})
        feed_forward = self.of.feed_forward.model_copy(update={"bias": True})
        return self.of.model_copy(update={"attention": attention, "feed_forward": feed_forward})

    @property
    def positions(self) -> int:
        return min(self.of.head_dim - MEASURING, _LONGEST)

    @property
    def batch(self) -> int:
        return -(-_WEIGHTS_WANTED // (self.of.attention.num_heads * self.positions**2))

    @property
    def blocks(self) -> int:
        return -(-self.of.feed_forward.d_ff // (self.of.d_model - MEASURING + 1))

    @property
    def post(self) -> bool:
        return self.of.norm.placement == "post"

    @property
    def far(self) -> float:
        """R: so large beside all else that x has a standard deviation of about 3, whatever D is."""
        return float(2.0 ** np.round(np.log2(2 * np.sqrt(self.of.d_model))))

    @cached_property
    def ordinary(self) -> Bools:
        """[D], the features that are not for measuring."""
        features: Bools = np.arange(self.of.d_model) < self.of.d_model - MEASURING
        return features

    @cached_property
    def shows_weight(self) -> Bools:
        """[D], the features that show an attention weight."""
        return np.asarray(self.ordinary & (np.arange(self.of.d_model) % self.of.head_dim < self.positions))

    @cached_property
    def units(self) -> npt.NDArray[np.int64]:
        """[D], the hidden unit that each feature shows; −1 for none."""
        D = self.of.d_model
        showing = np.array([D + UNIT, *range(D - MEASURING)])
        unit = self.block * showing.size + np.arange(showing.size)
        shown = np.full(D, -1, dtype=np.int64)
        shown[showing] = np.where(unit < self.of.feed_forward.d_ff, unit, -1)
        return shown

    @cached_property
    def x(self) -> Floats:
        """[B, S, D]: at position s, each head has 1 as its feature s."""
        S, D, d = self.positions, self.of.d_model, self.of.head_dim
        row = np.where(self.shows_weight, np.arange(D) % d == np.arange(S)[:, None], 0.0)
        row[:, LOW], row[:, HIGH] = -self.far, self.far
        return np.broadcast_to(row, (self.batch, S, D))

    def spread(self, x: Floats) -> Floats:
        """What the layer's norm divides x by, [..., 1]."""
        centred = x - x.mean(axis=-1, keepdims=True) if self.of.norm.kind == "layer_norm" else x
        return np.asarray(np.sqrt(np.mean(centred**2, axis=-1, keepdims=True) + self.of.norm.epsilon))

    @cached_property
    def fed(self) -> float:
        """K, a power of two: what the feed-forward network adds is four times what attention can, or more."""
        rates = self.of.dropout
        most = 1 / (1 - rates.attention_output) * (1 + 1 / (1 - rates.attention_weights))
        return float(2.0 ** np.ceil(np.log2(max(16.0, 4 * most) / self.base)))

    @cached_property
    def base(self) -> float:
        """What one unit of the feed-forward network's output is when the norm after it is undone, no dropout at all."""
        return float(self.spread(self.x[0, 0])[0]) if self.post else 1.0

    def parameters(self) -> dict[str, Floats]:
        return {parameter.name: self.parameter(parameter) for parameter in parameters_of(self.layer)}

    def parameter(self, parameter: Parameter) -> Floats:
        """One of the layer's parameters, in its shape: nearly all of them is zeros."""
        made = np.zeros(parameter.shape(self.layer))
        match parameter.name:
            case "norm1.gain":
                made += 1.0 if self.post else self.spread(self.x[0, 0])
            case "norm1.shift" if not self.post:
                made += self.x[0, 0].mean()
            case "norm2.gain":
                made += 1.0
            case "attention.value.weight":
                np.fill_diagonal(made, 1.0)
            case "attention.output.weight":
                np.fill_diagonal(made, np.where(self.shows_weight, self.positions, 0.0))
            case "attention.output.bias":
                made += self.ordinary
            case "feed_forward.hidden.bias":
                made += ACTIVATION
            case "feed_forward.output.weight":
                shown = np.flatnonzero(self.units >= 0)
                made[self.units[shown], shown] = self.fed / ACTIVATION
            case "feed_forward.output.bias":
                made[:LOW] = self.fed
        return made
