"""Positions that a module hides from others by a pattern of its own, of which a short sequence shows nothing."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from encoder_conformance.readers.module_target.argument_lines import line_of_part
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.local import smaller_matrices
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics
from encoder_conformance.spec.axes import Array

_LENGTHS = (48, 24, 12)
"""Tokens of several numbers each come in groups of 25; the first length that is taken is asked."""
_NO_CHANGE = 1e-6
"""Of what a changed position changes in the middle of all others: items of one batch are rounded alike to about that,
and one key of 48 changes a query a thousand times as much."""
_SHOWN = 6
"""The most places that are said."""


@dataclass(frozen=True)
class HiddenPlaces:
    """The `places` of so many positions that change no later one, or no earlier one, which further ones do; `by`: the
    module's own array that has them, and where it is read."""

    length: int
    places: tuple[int, ...]
    by: str
    where: str

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.places[:_SHOWN])) + (" …" if len(self.places) > _SHOWN else "")
        one = len(self.places) == 1
        said = (
            f"of {self.length} positions, the one at {shown}"
            if one
            else f"of {self.length} positions, those at {shown}"
        )
        return f"{said}, counted from 0, {'is' if one else 'are'} seen by no other{self.by and f': {self.by}'}"


def unseen_by_others(module: LiveModule, semantics: InputSemantics) -> HiddenPlaces | None:
    """The positions that no other sees, though it sees those before and behind them; None where there are none, or
    items of one batch are not computed alike, so that nothing tells. A softmax of large scores gives some keys no
    weight that is seen: those that are hidden are so with smaller matrices, too."""
    for S in _LENGTHS if semantics.layout != "SD" and not semantics.across_batch else ():
        with suppress(ExecutionError, NotImplementedError):
            places = _hidden(_changed(module, semantics, S), semantics.causal)
            if len(places):
                with smaller_matrices(module):
                    places = np.intersect1d(places, _hidden(_changed(module, semantics, S), semantics.causal))
            if not len(places):
                return None
            by, where = next(_held_by(module, places, S), ("", ""))
            return HiddenPlaces(S, tuple(map(int, places)), by, where)
    return None


def _changed(module: LiveModule, semantics: InputSemantics, S: int) -> Array:
    """How much each position changes each [S, S], from and to: in a batch, each item has another one changed, and the
    last one none."""
    row, others = np.random.default_rng(13).normal(size=(2, S, semantics.d_model))
    x = np.broadcast_to(row, (S + 1, *row.shape)).copy()
    places = np.arange(S)
    x[places, places] = others
    given = np.ascontiguousarray(semantics.laid_out(x.astype(np.dtype(semantics.x.dtype))))
    output = semantics.batch_first(module.run({"x": given})["output"])
    if output.shape != x.shape or not np.isfinite(output).all():
        return np.ones((S, S))
    return np.asarray(np.abs(output[:-1] - output[-1]).max(-1))


def _hidden(changed: Array, causal: bool) -> Array:
    """The places [n] of the positions that change no other: not the last one of causal attention, which has none."""
    S = len(changed)
    on_others = np.where(np.eye(S, dtype=np.bool_) | (np.tri(S, dtype=np.bool_) & causal), 0.0, changed)
    most = on_others.max(1)[: S - 1 if causal else S]
    unseen = most < _NO_CHANGE * np.median(most)
    return np.flatnonzero(unseen)


def _held_by(module: LiveModule, places: Array, S: int) -> Iterator[tuple[str, str]]:
    """The attribute that holds an array [..., ≥ S, ≥ S] of two numbers, from query to key, whose columns at these
    places hold the number that hides, and no others do: what it is called, and where its part reads it."""
    for part in module.objects():
        for name, value in {**getattr(part, "__dict__", {}), **getattr(part, "_buffers", {})}.items():
            shape = getattr(value, "shape", ())
            if len(shape) < 2 or min(shape[-2:]) < S:
                continue
            with suppress(TypeError, ValueError, RuntimeError):
                pattern = np.asarray(value).reshape(-1, *shape[-2:])[0, :S, :S]
                hidden = (pattern == pattern[0, places[0]]).all(0)
                if len(np.unique(pattern)) == 2 and np.array_equal(np.flatnonzero(hidden), places):
                    yield f"{type(part).__name__}.{name}", line_of_part(part, name)
