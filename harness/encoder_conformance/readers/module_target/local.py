"""The window of local attention in a live module, of which a short sequence shows nothing."""

from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics
from encoder_conformance.readers.onnx_file.interface.locality import Reach, reach_of
from encoder_conformance.spec.layer import Layer, Window


def reach_of_module(module: LiveModule, semantics: InputSemantics) -> Reach | None:
    """How far positions change others in a long sequence; None where an end changes the other, or nothing tells."""
    return reach_of(lambda x: semantics.batch_first(module.run({"x": x})["output"]), semantics)


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
    lengths += [bias.max_distance + 2] if bias else []
    return semantics.at_length(max(semantics.S, *lengths)) if lengths else semantics
