"""Local attention: how far a position of a long sequence changes others, as in a sliding window."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from encoder_conformance import Masks
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError, ModelRunner
from encoder_conformance.readers.onnx_file.graph.graph import Graph
from encoder_conformance.readers.onnx_file.graph.size import is_large
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics
from encoder_conformance.readers.onnx_file.interface.mask_inputs import mask_feeds
from encoder_conformance.spec.axes import BSD, Array

LENGTHS = (300, 66)
"""Beyond windows of 128 to either side and of 32: the first that is taken is asked."""


@dataclass(frozen=True)
class Reach:
    """How many positions before one, and after it, change it. `whole`: each of those does, as in a window."""

    length: int
    left: int
    right: int
    whole: bool

    def __str__(self) -> str:
        farthest = max(self.left, self.right)
        return f"of {self.length} positions one at the end changes none that is further than {farthest} away"


def reach_of(run: Callable[[BSD], BSD], semantics: InputSemantics, lengths: tuple[int, ...] = LENGTHS) -> Reach | None:
    """None where an end changes the other end, or nothing can be said.

    `run`: the output [B, S, D] of x as it is laid out, with masks that hide nothing.
    """
    for S in lengths:
        x, others = np.random.default_rng(11).normal(size=(2, semantics.B, S, semantics.d_model))
        first, last = x.copy(), x.copy()
        first[:, 0], last[:, -1] = others[:, 0], others[:, -1]
        dtype = np.dtype(semantics.x.dtype)
        laid_out = (np.ascontiguousarray(semantics.laid_out(each.astype(dtype))) for each in (x, first, last))
        try:
            before, by_first, by_last = map(run, laid_out)
        except (ExecutionError, NotImplementedError):
            continue
        return _reach(before, by_first, by_last)
    return None


def reach_in_file(graph: Graph, semantics: InputSemantics, runner: ModelRunner) -> Reach | None:
    """That of a file; one of one length is asked at that."""

    def run(x: BSD) -> BSD:
        B, S = semantics.batch_first(x).shape[:2]
        feeds = mask_feeds(semantics, Masks(None, None), B, S, semantics.num_heads)
        return semantics.batch_first(runner.run({semantics.x.name: x, **feeds})[semantics.output.name])

    declared = (semantics.x.shape or (None, None))[1 if semantics.layout == "BSD" else 0]
    lengths = LENGTHS[is_large(graph.model) :]
    return reach_of(run, semantics, (declared,) if isinstance(declared, int) else lengths)


def _reach(before: BSD, by_first: BSD, by_last: BSD) -> Reach | None:
    """Of outputs [B, S, D]: as they are, after the first position changed, and after the last did."""
    outputs = before, by_first, by_last
    if len({each.shape for each in outputs}) > 1 or not all(np.isfinite(each).all() for each in outputs):
        return None
    S = before.shape[1]
    after, ahead = ((before != each).any((0, 2)) for each in (by_first, by_last))
    left, right = _farthest(after), _farthest(ahead[::-1])
    if not 0 < max(left, right) < S - 1:
        return None
    whole = bool(after[: left + 1].all() and ahead[::-1][: right + 1].all())
    if not whole and max(left, right) > S // 2:  # weights too small to be seen come anywhere
        return None
    return Reach(S, left, right, whole)


def _farthest(changed: Array) -> int:
    """The place of the last that is true, of [S]; 0 for none."""
    places = np.flatnonzero(changed)
    return int(places[-1]) if len(places) else 0
