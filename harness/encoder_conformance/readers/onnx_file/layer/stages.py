"""Locates the specification's stages among the graph values, each with its layout."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
import onnx
from onnx import helper

from encoder_conformance.protocol.description import Anchor
from encoder_conformance.readers.onnx_file.graph.nodes import node_label
from encoder_conformance.readers.onnx_file.layer.layout import Layout, Sizes, layout_of
from encoder_conformance.readers.onnx_file.layer.structure import Encoder, EncoderLayer
from encoder_conformance.readers.onnx_file.layer.walk import PROJECTED, QK_NORMS
from encoder_conformance.readers.onnx_file.tracing.expressions import (
    Appended,
    Context,
    Operation,
    Scores,
    View,
    Weighed,
    Weights,
)
from encoder_conformance.readers.onnx_file.tracing.recognition import view_if_any
from encoder_conformance.readers.onnx_file.tracing.symbolic_trace import SymbolicTrace
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.stages import axes_of


@dataclass(frozen=True)
class StageTensor:
    """The graph value that is a stage; `dtype` is its own, which may be narrower than that of x."""

    tensor: str
    node: str
    layout: Layout
    dtype: str

    def anchor(self) -> Anchor:
        return Anchor(tensor=self.tensor, node=self.node)

    def value_info(self) -> onnx.ValueInfoProto:
        """The declaration of the value, with which it can be an output."""
        dtype = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        return helper.make_tensor_value_info(self.tensor, dtype, [None] * len(self.layout.axes))


@dataclass(frozen=True)
class StageTarget:
    """A stage to look for: these elements of `operation`, in the stage's order, times `factor`; or its `last` value."""

    operation: Operation
    elements: Array
    factor: float = 1.0
    last: bool = False


def axes_read(stage: str) -> str:
    """The letters of a stage's axes; k is the heads of keys and values, as K is the keys of pairs."""
    return axes_of(stage).replace("K", "k").replace("S S", "S K")


def letters(stage: str) -> str:
    """The letters of a stage's axes: queries and keys, and the features of heads, have axes of their own."""
    return axes_read(stage).replace("S K", "Q K").replace("P", "H d").replace("G", "k d").replace(" ", "")


def locate_stages(trace: SymbolicTrace, encoder: Encoder, masked: set[str], sizes: Sizes) -> dict[str, StageTensor]:
    """Stage → its graph value, if it has one. `masked` are the values that depend on a mask."""
    found: dict[str, StageTensor] = {}
    for stage, target in _targets(encoder, sizes):
        tensor = _locate(trace, target, letters(stage), sizes, masked if stage == "attention_scores" else set())
        if tensor and tensor.tensor in trace.graph.original_values:
            found[stage] = tensor
    return found


def _targets(encoder: Encoder, sizes: Sizes) -> Iterator[tuple[str, StageTarget]]:
    layers, final = encoder.layers, encoder.final_norm
    if len(layers) == 1 and final is None:
        yield from _of_layer(layers[0], sizes)
        return
    for number, layer in enumerate(layers):
        yield f"layer_{number}", _whole(layer.output)
    if final is not None:
        yield "final_norm", _whole(final)
    yield "output", _whole(final or layers[-1].output, last=True)


def _of_layer(layer: EncoderLayer, sizes: Sizes) -> Iterator[tuple[str, StageTarget]]:
    H = layer.heads
    for stage, step in layer.steps.items():
        elements = np.arange(prod(step.shape))
        if isinstance(step, Appended):
            continue  # it shows as scores of one key more
        if isinstance(step, Context):
            yield stage, StageTarget(step, _by_heads(elements, H, sizes))
            yield "context_merged", StageTarget(step, elements)
        elif stage in layer.columns:
            yield from _of_columns(layer, stage, step, sizes)
        elif not isinstance(step, Scores | Weights | Weighed):
            yield stage, StageTarget(step, elements)
        elif isinstance(step, Scores | Weights) and not layer.first(Scores).fused_in and not layer.leads:
            yield stage, _of_pairs(step, layer.first(Weights), elements)
    yield "output", _whole(layer.output, last=True)


def _of_columns(layer: EncoderLayer, stage: str, step: Operation, sizes: Sizes) -> Iterator[tuple[str, StageTarget]]:
    """Query, key and value, and what becomes of them head by head; and maps of which a gate takes a part."""
    columns, (B, S) = layer.columns[stage], (sizes[letter] for letter in "BS")
    flat = np.arange(prod(step.shape)).reshape(B * S, -1)[:, columns].reshape(-1)
    if not stage.startswith(PROJECTED):
        yield stage, StageTarget(step, flat)
        return
    split = StageTarget(step, _by_heads(flat, columns.size // layer.head_dim, sizes))
    over_all = layer.normed_over == "all"
    if over_all and stage in QK_NORMS:
        yield f"{QK_NORMS[stage]}_norm", StageTarget(step, flat)
        yield f"{QK_NORMS[stage]}_heads", split
    elif stage in PROJECTED:
        yield stage, StageTarget(step, flat)
        if not (over_all and stage in QK_NORMS.values()):  # else its heads are those of what is normed
            yield f"{stage}_heads", split
    else:
        yield stage, split


def _by_heads(flat: Array, heads: int, sizes: Sizes) -> Array:
    """[B, S, heads, d] as [B, heads, S, d], both flat."""
    B, S, d = (sizes[letter] for letter in "BSd")
    return flat.reshape(B, S, heads, d).transpose(0, 2, 1, 3).reshape(-1)


def _of_pairs(step: Scores | Weights, weights: Weights, elements: Array) -> StageTarget:
    if step is weights:
        return StageTarget(step, elements, last=True)
    pairs = elements.reshape(step.shape)
    return StageTarget(step, (pairs if weights.query_first else pairs.swapaxes(-1, -2)).reshape(-1), weights.scale)


def _whole(operation: Operation, last: bool = False) -> StageTarget:
    return StageTarget(operation, np.arange(prod(operation.shape)), last=last)


def _locate(
    trace: SymbolicTrace, target: StageTarget, letters: str, sizes: Sizes, excluded: set[str]
) -> StageTensor | None:
    """The first value that is the stage exactly, else the first that holds it; where `last`, the last of them."""
    place = np.full(prod(target.operation.shape), -1)
    place[target.elements] = np.arange(target.elements.size)
    holding = []
    for name in trace.values:
        view = trace.values[name]
        if not isinstance(view, View) and getattr(view, "operation", None) is target.operation and target.factor != 1:
            view = view_if_any(trace, name)
        if not isinstance(view, View) or view.operation is not target.operation or name in excluded:
            continue
        if abs(view.factor - target.factor) > 1e-5 * abs(target.factor):
            continue
        layout = layout_of(place[view.index], letters, sizes)
        if layout is not None:
            node = trace.graph.producers.get(name)
            made = node_label(node) if node is not None else ""
            holding.append(StageTensor(name, made, layout, trace.computed[name].dtype.name))
    exact = [tensor for tensor in holding if tensor.layout.part is None] or holding
    return (exact[-1] if target.last else exact[0]) if exact else None
