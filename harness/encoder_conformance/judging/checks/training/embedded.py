"""The probe of dropout after an embedding, which shows what is left of the embedded tokens (rule Q-4).

Every layer of the stack adds 0, whatever it drops, so that the output is the embedded tokens, dropped and normed. They
are ±a with signs of their own at each position, and 0 in the last feature, which shows what a norm makes of a dropped
element. a² is about a tenth of the norms' epsilon: so a norm hides the size of what it is given by a tenth only, and
the factor of the kept elements can be computed back through it.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from encoder_conformance.judging.checks.training.reading import NoReading, Reading, smallest_and_largest
from encoder_conformance.judging.checks.training.statistics import DROPPED, HIDDEN, KEPT
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.forms.embedding import table
from encoder_conformance.spec import portable
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.parameters import Parameter, without_prefix
from encoder_conformance.spec.portable import Floats

_LONGEST = 16
_ELEMENTS = 2**17
_ALIKE = 0.25
"""The relative difference of kept elements, at most. At later positions sines round, and are far larger than a."""


def unfit_embedding(layer: Layer) -> str:
    """The reason why the dropout of a layer's embedding cannot be read off; "" if it can."""
    if not layer.takes_ids:
        return "dropout after an embedding is read off tokens, and this layer takes x"
    if layer.embedding is not None and layer.embedding.norm:
        return "dropout after an embedding is read off the tokens' rows, which this layer norms"
    return ""


@dataclass(frozen=True)
class EmbeddedProbe:
    """The layer itself, with parameters that show what its embedding's dropout leaves. There is one `block`."""

    layer: Layer
    block: int = 0
    blocks: int = 1

    @property
    def positions(self) -> int:
        assert self.layer.embedding is not None and self.layer.embedding.vocabulary is not None
        rows = int(min(self.layer.last_position + 1, _LONGEST))
        return min(self.layer.embedding.vocabulary, rows)

    @property
    def batch(self) -> int:
        return max(1, -(-_ELEMENTS // (self.positions * self.layer.d_model)))

    @cached_property
    def size(self) -> float:
        """a, the power of two whose square is nearest to a tenth of epsilon."""
        return float(2.0 ** np.round(np.log2(self.layer.norm.epsilon / 10) / 2))

    @cached_property
    def gain(self) -> float:
        """The gain of each norm but the last: what it gives is about as small as what it is given."""
        return float(2.0 ** np.round(np.log2(self.layer.norm.epsilon) / 2))

    @cached_property
    def tokens(self) -> Floats:
        """[S, D]: ±a, and 0 in the last feature."""
        S, D = self.positions, self.layer.d_model
        signs = np.sign(portable.integers("signs", S * D).reshape(S, D) + 0.5)
        signs[:, -1] = 0.0
        return np.asarray(self.size * signs)

    @property
    def output_shape(self) -> tuple[int, int, int]:
        return self.batch, self.positions, self.layer.d_model

    def inputs(self, dtype: np.dtype[Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Token s at position s of every item, of type 0 where there are types."""
        ids = np.tile(np.arange(self.positions, dtype=np.int64), (self.batch, 1))
        assert self.layer.embedding is not None
        return {"ids": ids} if self.layer.embedding.token_types is None else {"ids": ids, "token_types": 0 * ids}

    def parameter(self, parameter: Parameter) -> Floats:
        value = np.zeros(parameter.shape(self.layer))
        if parameter.name == "embedding.weight":
            value[: self.positions] = (self.tokens - self._added()) / self._factor
        elif parameter.name == self._last_gain:
            value += 1.0
        elif without_prefix(parameter.name)[1].endswith(".gain"):
            value += self.gain
        return value

    @property
    def _factor(self) -> float:
        """What the layer multiplies the tokens' rows by (E-35)."""
        assert self.layer.embedding is not None
        return 1.0 if self.layer.embedding.scale == "one" else float(np.sqrt(self.layer.d_model))

    def _added(self) -> Floats:
        """[S, D]: the positions that the layer adds. Those that are parameters are 0."""
        assert self.layer.embedding is not None
        if self.layer.embedding.positions != "sinusoidal":
            return np.zeros_like(self.tokens)
        exact = Arithmetic(np.longdouble)
        return np.asarray(table(exact, np.zeros((1, *self.tokens.shape))), dtype=np.float64)

    @property
    def _last_gain(self) -> str:
        if self.layer.stack.final_norm:
            return "final_norm.gain"
        return f"layers.{self.layer.stack.layers - 1}.norm2.gain"

    @property
    def _norms(self) -> int:
        """The number of norms between the embedded tokens and the output."""
        inside = 2 * self.layer.stack.layers if self.layer.norm.placement == "post" else 0
        return inside + self.layer.stack.final_norm

    def read(self, output: Floats) -> Reading:
        """The mask of `output` [B, S, D], float64, and the factors of its kept elements. Raises NoReading."""
        if not np.isfinite(output).all():
            raise NoReading(f"{int((~np.isfinite(output)).sum())} of {output.size} elements are not finite")
        signs = np.sign(self.tokens)
        shown = np.broadcast_to(signs != 0, output.shape)
        seen = (output - output[..., -1:]) * signs  # 0 where it was dropped, and else of one size a row
        largest = np.max(np.where(shown, seen, 0.0), axis=-1, keepdims=True)
        some = largest > np.median(largest) / 8  # rows of which not everything was dropped
        kept = shown & some & (seen > largest / 2)
        odd = np.abs(seen) > _ALIKE * largest
        unlike = shown & some & odd & (np.abs(seen - largest) > _ALIKE * largest)
        if not kept.any() or unlike.any():
            problem = f"{int(unlike.sum())} of {int(shown.sum())} elements are neither 0 nor what most are"
            raise NoReading(f"embedded: {problem}" if kept.any() else "embedded: everything is 0")
        mask = np.where(shown, np.where(kept, KEPT, DROPPED), HIDDEN)
        factors = self._factors(output[:, 0], seen[:, 0], kept[:, 0])
        return Reading({"embedded": mask}, {"embedded": smallest_and_largest(factors)})

    def _factors(self, output: Floats, seen: Floats, kept: np.ndarray[Any, Any]) -> Floats:
        """The factors [n] of the kept elements at position 0, where sines are 0 and cosines 1 in every arithmetic.

        `output`, `seen` and `kept` are [B, D].
        """
        centred = self.layer.norm.kind == "layer_norm"

        def size(rows: Floats) -> Floats:
            """[B]: what a norm divides by, squared and without epsilon."""
            return np.asarray(rows.var(-1) if centred else np.mean(rows**2, -1))

        of_one = size(np.where(kept, np.sign(self.tokens[0]), 0.0))
        visible = (of_one > 0) & kept.any(-1)
        seen, kept, of_one = seen[visible], kept[visible], of_one[visible]
        if not self._norms:
            return np.asarray((seen / self.size)[kept])
        square = size(output[visible])
        for number in range(self._norms):
            gain = 1.0 if number == 0 else self.gain
            square = self.layer.norm.epsilon * square / (gain**2 - square)
        factor = np.sqrt(square / of_one) / self.size  # of a row: that of one element is as its size is to the others'
        typical = np.sum(np.where(kept, seen, 0.0), -1) / kept.sum(-1)
        return np.asarray((factor[:, None] * seen / typical[:, None])[kept])
