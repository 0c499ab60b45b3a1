"""Which graph value is which stage of the specification, and how it holds it."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from encoder_conformance.impls.onnx_file.layer.layout import Layout, Sizes, layout_of
from encoder_conformance.impls.onnx_file.layer.structure import Encoder, OneLayer, Projection
from encoder_conformance.impls.onnx_file.tracing.expressions import Array, Root, View
from encoder_conformance.impls.onnx_file.tracing.matrix_products import named
from encoder_conformance.impls.onnx_file.tracing.value_table import Known
from encoder_conformance.spec.stages import axes_of

LETTERS = {"B S D": "BSD", "B S F": "BSF", "B H S d": "BHSd", "B H S S": "BHQK"}
BY_HEADS = frozenset(("query", "key", "value", "context_merged"))
"""Stages [B, S, D] whose features are those of one head after the other."""


@dataclass(frozen=True)
class Anchor:
    """`layout` is how the tensor holds the stage; `dtype` its own, which may be narrower than that of x."""

    tensor: str
    node: str
    layout: Layout
    dtype: str

    def as_json(self) -> dict[str, str]:
        return {"tensor": self.tensor, "node": self.node}


@dataclass(frozen=True)
class Sought:
    """A stage: the elements of `root` that it is, in the stage's order, times `factor`."""

    root: Root
    elements: Array
    factor: float = 1.0
    last: bool = False


def letters(stage: str) -> str:
    """The letters of a stage's axes, heads apart where it counts its features by them."""
    if stage in BY_HEADS:
        return "BSHd"
    return LETTERS[axes_of(stage)]


def sizes_at(B: int, S: int, d_model: int, num_heads: int, d_ff: int) -> Sizes:
    return {"B": B, "S": S, "Q": S, "K": S, "D": d_model, "H": num_heads, "d": d_model // num_heads, "F": d_ff}


def anchors(flow: Known, encoder: Encoder, masked: set[str], sizes: Sizes) -> dict[str, Anchor]:
    """Stage → the value that is it, of those that a value is. `masked` are the values that depend on a mask."""
    found: dict[str, Anchor] = {}
    for stage, sought in _sought(encoder, sizes):
        anchor = _anchor(flow, sought, letters(stage), sizes, masked if stage == "attention_scores" else set())
        if anchor:
            found[stage] = anchor
    return found


def _sought(encoder: Encoder, sizes: Sizes) -> Iterator[tuple[str, Sought]]:
    layers, final = encoder.layers, encoder.final_norm
    if len(layers) == 1 and final is None:
        yield from _of_layer(layers[0], sizes)
        return
    for number, layer in enumerate(layers):
        yield f"layer_{number}", _whole(layer.output)
    if final is not None:
        yield "final_norm", _whole(final)
    yield "output", _whole(final or layers[-1].output, last=True)


def _of_layer(layer: OneLayer, sizes: Sizes) -> Iterator[tuple[str, Sought]]:
    B, S, H, d = (sizes[letter] for letter in "BSHd")
    yield "norm1", _whole(layer.norm1)
    for name, projection in (("query", layer.query), ("key", layer.key), ("value", layer.value)):
        flat = _columns(projection, B * S)
        yield name, Sought(projection.linear, flat)
        yield f"{name}_heads", Sought(projection.linear, flat.reshape(B, S, H, d).transpose(0, 2, 1, 3).reshape(-1))
    if not layer.scores.attention:
        pairs = np.arange(prod(layer.scores.shape)).reshape(layer.scores.shape)
        turned = pairs if layer.weights.query_first else pairs.swapaxes(-1, -2)
        yield "attention_scores", Sought(layer.scores, turned.reshape(-1), layer.weights.scale)
        yield "attention_weights", Sought(layer.weights, pairs.reshape(-1), last=True)
    merged = np.arange(B * S * H * d)
    yield "context", Sought(layer.context, merged.reshape(B, S, H, d).transpose(0, 2, 1, 3).reshape(-1))
    yield "context_merged", Sought(layer.context, merged)
    yield "attention_output", _whole(layer.attention_output)
    yield "residual1", _whole(layer.residual1)
    yield "norm2", _whole(layer.norm2)
    yield "ffn_hidden", _whole(layer.hidden)
    yield "ffn_activation", _whole(layer.activation)
    yield "ffn_output", _whole(layer.ffn_output)
    yield "residual2", _whole(layer.residual2)
    yield "output", _whole(layer.output, last=True)


def _whole(root: Root, last: bool = False) -> Sought:
    return Sought(root, np.arange(prod(root.shape)), last=last)


def _columns(projection: Projection, positions: int) -> Array:
    width = projection.linear.shape[-1]
    return (np.arange(positions)[:, None] * width + projection.columns).reshape(-1)


def _anchor(flow: Known, sought: Sought, letters: str, sizes: Sizes, barred: set[str]) -> Anchor | None:
    """The first value that is the stage exactly, else the first that holds it; the last of them where that is meant."""
    place = np.full(prod(sought.root.shape), -1)
    place[sought.elements] = np.arange(sought.elements.size)
    holding = []
    for name in flow.values:
        view = flow.values[name]
        if not isinstance(view, View) and getattr(view, "root", None) is sought.root and sought.factor != 1:
            view = flow.tried(name)
        if not isinstance(view, View) or view.root is not sought.root or name in barred:
            continue
        if abs(view.factor - sought.factor) > 1e-5 * abs(sought.factor):
            continue
        layout = layout_of(place[view.index], letters, sizes)
        if layout is not None:
            node = flow.graph.makers.get(name)
            made = named(node) if node is not None else ""
            holding.append(Anchor(name, made, layout, flow.trace[name].dtype.name))
    exact = [anchor for anchor in holding if anchor.layout.part is None] or holding
    return (exact[-1] if sought.last else exact[0]) if exact else None
