"""Local attention: whether a position of a long sequence changes those near it alone, as in a sliding window."""

from collections.abc import Callable

import numpy as np

from encoder_conformance import Masks
from encoder_conformance.readers.onnx_file.graph.execution import LARGE, ExecutionError, ModelRunner
from encoder_conformance.readers.onnx_file.graph.graph import Graph
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics
from encoder_conformance.readers.onnx_file.interface.mask_inputs import mask_feeds
from encoder_conformance.spec.axes import BSD, Array

LENGTHS = (300, 66)
"""Beyond windows of 128 to either side and of 32: the first that is taken is asked."""


def window_seen(run: Callable[[BSD], BSD], semantics: InputSemantics, lengths: tuple[int, ...]) -> str:
    """What a long sequence shows of it; "" where a position at an end changes the other end, or nothing can be said.

    `run`: the output [B, S, D] of x as it is laid out, with masks that hide nothing.
    """
    for S in lengths:
        draw = np.random.default_rng(11)
        x = draw.normal(size=(semantics.B, S, semantics.d_model)).astype(np.dtype(semantics.x.dtype))
        other = x.copy()
        other[0, 0] = draw.normal(size=semantics.d_model).astype(x.dtype)
        other[-1, -1 if semantics.B > 1 else 0] = other[0, 0]
        try:
            before, after = (run(np.ascontiguousarray(semantics.laid_out(each))) for each in (x, other))
        except (ExecutionError, NotImplementedError):
            continue
        return _said(before, after, S)
    return ""


def window_in_file(graph: Graph, semantics: InputSemantics, runner: ModelRunner) -> str:
    """What shows it of a file; "" where nothing does. A file of one length is asked at that."""

    def run(x: BSD) -> BSD:
        B, S = semantics.batch_first(x).shape[:2]
        feeds = mask_feeds(semantics, Masks(None, None), B, S, semantics.num_heads)
        return semantics.batch_first(runner.run({semantics.x.name: x, **feeds})[semantics.output.name])

    declared = (semantics.x.shape or (None, None))[1 if semantics.layout == "BSD" else 0]
    lengths = LENGTHS[graph.model.ByteSize() > LARGE :]
    return window_seen(run, semantics, (declared,) if isinstance(declared, int) else lengths)


def _said(before: BSD, after: BSD, S: int) -> str:
    """Of outputs [B, S, D], before and after the first position of the first item and the last of the last changed."""
    if before.shape != after.shape or not (np.isfinite(before).all() and np.isfinite(after).all()):
        return ""
    changed = (before != after).any(-1)
    farthest = max(_farthest(changed[0]), _farthest(changed[-1][::-1] if len(changed) > 1 else changed[0]))
    if not 0 < farthest < S - 1:
        return ""
    return f"of {S} positions one at the end changes none that is further than {farthest} away"


def _farthest(changed: Array) -> int:
    """The place of the last that is true, of [S]; 0 for none."""
    places = np.flatnonzero(changed)
    return int(places[-1]) if len(places) else 0
