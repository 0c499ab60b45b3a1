"""The window of local attention in a live module, of which a short sequence shows nothing."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from encoder_conformance.readers.module_target.live import LiveModule, joined, pieces
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics
from encoder_conformance.readers.onnx_file.interface.locality import Reach, reach_of
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.layer import Layer, Window


def reach_of_module(module: LiveModule, semantics: InputSemantics) -> Reach | None:
    """How far positions change others in a long sequence; None where an end changes the other, or nothing tells.

    A softmax of large scores gives one key everything, and the rest no number that is seen: what reaches less than all
    is asked again with smaller matrices.
    """

    def reach() -> Reach | None:
        return reach_of(lambda x: semantics.batch_first(module.run({"x": x})["output"]), semantics)

    if reach() is None:
        return None
    with smaller_matrices(module):
        return reach()


@contextmanager
def smaller_matrices(module: LiveModule) -> Iterator[None]:
    """The module holds these for as long, so that a softmax gives every key a weight that is seen."""
    own = module.flat().copy()
    module.assign(_smaller(own, module.shapes.values()))
    try:
        yield
    finally:
        module.assign(own)


def _smaller(flat: Array, shapes: Iterable[tuple[int, ...]]) -> Array:
    """All elements [n], where a matrix gives of numbers of size 1 no larger ones."""
    made = [each.copy() for each in pieces(flat, shapes)]
    for each in made:
        if (size := growth_by(each)) > 1:
            each /= size
    return joined(made)


def growth_by(parameter: Array) -> float:
    """How much larger numbers are behind a matrix [..., in, out] than before it, at most; 0 of what is none."""
    return float(np.std(parameter)) * max(parameter.shape[-2:]) ** 0.5 if parameter.ndim > 1 else 0.0


def window_of_each(reach: Reach, layers: int) -> Window | None:
    """The window of each of so many equal layers, which reach that far together; None where no window does."""
    if not reach.whole or reach.left % layers or reach.right % layers:
        return None
    return Window(left=reach.left // layers, right=reach.right // layers)


def with_window(layer: Layer, window: Window) -> Layer:
    """The layer that was read where no window shows, and looks no further than this."""
    return layer.model_copy(update={"attention": layer.attention.model_copy(update={"window": window})})


def long_enough(semantics: InputSemantics, layer: Layer | None) -> InputSemantics:
    """The semantics with so many positions that the layer's window hides some of them from each other, and that some
    are as far apart as its buckets go."""
    if layer is None:
        return semantics
    window, bias = layer.attention.window, layer.attention.position_bias
    lengths = [window.left + window.right + 3] if window else []
    lengths += [bias.max_distance + 2] if bias and bias.max_distance else []
    return semantics.at_length(max(semantics.S, *lengths)) if lengths else semantics
