"""Finds the window of local attention on a live module: which positions a position changes in a long sequence."""

from dataclasses import replace

import numpy as np

from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics
from encoder_conformance.readers.onnx_file.interface.locality import LENGTHS
from encoder_conformance.spec.axes import BSD, Array
from encoder_conformance.spec.layer import Layer, Window


def window_of(module: LiveModule, semantics: InputSemantics) -> Window | None:
    """None where an end changes the other end, where it is no window, or where no long sequence is taken."""
    for S in LENGTHS:
        x, others = np.random.default_rng(11).normal(size=(2, 2, S, semantics.d_model)).astype(np.float32)
        first, last = x.copy(), x.copy()
        first[:, 0], last[:, -1] = others[:, 0], others[:, -1]
        try:
            before, by_first, by_last = (_output(module, semantics, each) for each in (x, first, last))
        except ExecutionError:
            continue
        left, right = _reach(before, by_first), _reach(before[:, ::-1], by_last[:, ::-1])
        if left is None or right is None or max(left, right) >= S - 1:
            return None
        return Window(left=left, right=right)
    return None


def with_window(layer: Layer, window: Window) -> Layer:
    """The layer that was read where no window shows, and looks no further than this."""
    return layer.model_copy(update={"attention": layer.attention.model_copy(update={"window": window})})


def long_enough(semantics: InputSemantics, layer: Layer | None) -> InputSemantics:
    """The semantics with so many positions that the layer's window hides some of them from each other."""
    window = None if layer is None else layer.attention.window
    return semantics if window is None else replace(semantics, S=max(semantics.S, window.left + window.right + 3))


def _output(module: LiveModule, semantics: InputSemantics, x: BSD) -> BSD:
    laid_out = np.ascontiguousarray(semantics.laid_out(x))
    return semantics.batch_first(module.run({"x": laid_out})["output"])


def _reach(before: BSD, after: BSD) -> int | None:
    """How far from the first position [·, 0] the changed ones go; None where they have gaps, or cannot be compared."""
    if before.shape != after.shape or not (np.isfinite(before).all() and np.isfinite(after).all()):
        return None
    changed: Array = (before != after).any((0, 2))
    count = int(changed.sum())
    return count - 1 if count and changed[:count].all() else None
