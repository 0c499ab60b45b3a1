"""Locates a layer's parameters, in the specification's names, among the initializers; reads and replaces them."""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from encoder_conformance.protocol.description import Form, InitializerSource
from encoder_conformance.readers.onnx_file.graph.graph import Graph
from encoder_conformance.readers.onnx_file.layer.far import FarChoices, has_one_table
from encoder_conformance.readers.onnx_file.layer.plans import PLANS
from encoder_conformance.readers.onnx_file.layer.structure import Encoder, EncoderLayer
from encoder_conformance.readers.onnx_file.layer.walk import QK_NORMS, recorded
from encoder_conformance.readers.onnx_file.tracing.expressions import (
    Appended,
    Gain,
    Linear,
    RowMap,
    TracedNorm,
    WeightSource,
)
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.dtypes import FORMATS

OWNERS = {recorded(step): step.owner for steps in PLANS.values() for step in steps if step.owner}
"""The name of a step → what its parameters' names begin with."""
TABLE = "attention.position_bias.table"


@dataclass(frozen=True)
class NotHeld:
    """The shape and format of numbers that the file has, and nobody holds beside it."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class ParameterLocation:
    """`held`: its numbers, or what they are like. `lines` are the numbers of the parameter's elements along its first
    axis, and the steps along each other: their outer sums are the numbers of all elements, as `Graph.offsets` counts
    those of all initializers. Of elements that are no block all numbers stand in one; () where no initializer holds the
    parameter.

    `stored` is the format of the initializers, where the file widens their numbers before it computes with them, `step`
    the distance of two neighbours among integers.
    """

    held: Array | NotHeld
    lines: tuple[Array, ...]
    initializers: tuple[str, ...]
    form: Form
    stored: str | None = None
    step: float | None = None

    @property
    def value(self) -> Array:
        """Raises RuntimeError where it is to be read from the file again (`each_parameter`)."""
        if isinstance(self.held, NotHeld):
            raise RuntimeError(f"the numbers of {', '.join(self.initializers)} are not held")
        return self.held

    @property
    def shape(self) -> tuple[int, ...]:
        return self.held.shape

    def let_go(self) -> "ParameterLocation":
        """The same without numbers that initializers hold."""
        return replace(self, held=NotHeld(self.held.shape, self.held.dtype)) if self.lines else self

    @property
    def elements(self) -> Array:
        """The numbers of its elements [n]: all parameters' together would be as large as the weights."""
        return functools.reduce(np.add.outer, self.lines).reshape(-1)

    def source(self) -> InitializerSource:
        names = ", ".join(self.initializers)
        return InitializerSource(initializer=names, form=self.form, stored=self.stored, step=self.step)


def locate_parameters(
    encoder: Encoder, far: list[FarChoices], graph: Graph, dtype: np.dtype[Any]
) -> dict[str, ParameterLocation]:
    """The specification's name → its location. In a stack each layer's names have its prefix. `far`: what each layer
    does by distance."""
    layers = encoder.layers
    stacked = len(layers) > 1 or encoder.final_norm is not None
    found: dict[str, ParameterLocation] = {}
    for number, (layer, by_distance) in enumerate(zip(layers, far, strict=True)):
        prefix = f"layers.{number}." if stacked else ""
        found |= {
            prefix + name: location for name, location in _of_layer(layer, bool(encoder.shifted), graph, dtype).items()
        }
        table = by_distance.buckets.table if by_distance.buckets is not None else None
        if table is not None and not (number and has_one_table(far)):
            found[f"{prefix}{TABLE}"] = _locate(table, None, graph)
    if encoder.final_norm is not None:
        found |= _norm("final_norm", encoder.final_norm, bool(encoder.shifted), graph, dtype)
    return found


def _of_layer(layer: EncoderLayer, has_shift: bool, graph: Graph, dtype: np.dtype[Any]) -> dict[str, ParameterLocation]:
    found: dict[str, ParameterLocation] = {}
    for name, step in layer.steps.items():
        if isinstance(step, TracedNorm):
            shifted, order = has_shift and name not in QK_NORMS, None
            if name in QK_NORMS and layer.normed_over == "all":
                order = layer.columns[name] % step.features
            found |= _norm(OWNERS[name], step, shifted, graph, dtype, order)
        elif isinstance(step, Linear):
            weight, bias = step.weight, step.bias
            if name in layer.columns and step.heads == 1:
                columns = _as_slice(layer.columns[name])
                weight, bias = weight.take(slice(None), columns), bias.take(columns) if bias else None
            found[f"{OWNERS[name]}.weight"] = _locate(weight, None, graph)
            if bias is not None:
                found[f"{OWNERS[name]}.bias"] = _locate(bias, None, graph)
        elif isinstance(step, Appended) and layer.appended_key == "learned":
            found[f"{OWNERS[name]}.vector"] = _locate(step.vector.take(layer.columns[name]), None, graph)
        elif isinstance(step, RowMap) and isinstance(step.form, Gain):
            found[f"{OWNERS[name]}.gain"] = _locate(step.form.source, None, graph)
    return found


def _as_slice(at: Array) -> Array | slice:
    """Columns [n]; neighbours in order as a slice, which copies nothing."""
    return slice(int(at[0]), int(at[-1]) + 1) if at.size and (np.diff(at) == 1).all() else at


def _norm(
    name: str, norm: TracedNorm, has_shift: bool, graph: Graph, dtype: np.dtype[Any], order: Array | None = None
) -> dict[str, ParameterLocation]:
    """`has_shift`: another norm of its like has one, so that this one's is 0 where the file has none. `order`: the
    features, head by head, where its row has them in another order."""
    width = norm.features
    gain, shift = norm.form.gain, norm.form.shift
    if order is not None:
        gain, shift = (source.take(order) if source else None for source in (gain, shift))
    found = {f"{name}.gain": _locate(gain, np.ones(width, dtype), graph)}
    if norm.form.kind == "layer_norm" and (has_shift or shift is not None):
        found[f"{name}.shift"] = _locate(shift, np.zeros(width, dtype), graph)
    return found


def _locate(source: WeightSource | None, default: Array | None, graph: Graph) -> ParameterLocation:
    if source is None:
        assert default is not None
        return ParameterLocation(default, (), (), "absent")
    value = np.ascontiguousarray(source.value)
    stored, step = (source.integers.format, source.integers.step) if source.integers else (None, None)
    computed = ParameterLocation(value, (), (), "computed", stored, step)
    if source.elements is None:
        return computed
    names = initializers_of(source.elements, graph)
    if not set(names) <= graph.original_initializers:
        return computed
    form: Form = "joined"
    if len(names) == 1:
        form = form_of(source.elements - graph.offsets[names[0]], graph.constants[names[0]].shape)
    narrower = {graph.constants[name].dtype.name for name in names} - {value.dtype.name}
    stored = max(narrower, key=lambda name: FORMATS[name].roundoff, default=None)
    return ParameterLocation(value, _lines(source.elements), names, form, stored)


def _lines(elements: Array) -> tuple[Array, ...]:
    """One line [n] for each axis, whose outer sum the elements are; else the elements themselves, [K, M] or [M]."""
    lines = [np.moveaxis(elements, axis, -1)[(0,) * (elements.ndim - 1)] for axis in range(elements.ndim)]
    lines = [line - (line[0] if axis else 0) for axis, line in enumerate(lines)]
    is_block = np.array_equal(functools.reduce(np.add.outer, lines), elements)
    return tuple(lines) if is_block else (np.ascontiguousarray(elements),)


def initializers_of(elements: Array, graph: Graph) -> tuple[str, ...]:
    """The initializers that the elements belong to."""
    least, most = int(elements.min()), int(elements.max())
    found = []
    for name, start in graph.offsets.items():
        end = start + graph.sizes[name]
        if start <= least and most < end:
            return (name,)
        if start <= most and least < end and ((elements >= start) & (elements < end)).any():
            found.append(name)
    return tuple(found)


def form_of(at: Array, shape: tuple[int, ...]) -> Form:
    """The form of a parameter whose elements are these of one initializer of this shape."""
    whole = np.arange(int(np.prod(shape)))
    if at.size == whole.size:
        if np.array_equal(at.reshape(-1), whole):
            return "as_is" if at.shape == shape else "reshaped"
        if at.ndim == 2 and np.array_equal(at.T.reshape(-1), whole):
            return "transposed" if at.T.shape == shape else "reshaped, transposed"
        return "rearranged"
    slices: tuple[tuple[Array, Form], ...] = (at, "slice"), (at.T, "slice, transposed")
    for turned, form in slices:
        if _is_block(np.atleast_2d(turned)):
            return form
    return "rearranged"


def _is_block(at: Array) -> bool:
    """Whether the elements are a block: rows in even steps, columns in steps of one."""
    steps = np.diff(at[:, 0])
    return bool((np.diff(at, axis=1) == 1).all() and (steps == steps[:1]).all() and (not steps.size or steps[0] > 0))


class Unwritable(ValueError):
    """These parameters cannot be put into the file's initializers."""


def write_parameters(
    model: onnx.ModelProto, graph: Graph, locations: dict[str, ParameterLocation], parameters: dict[str, Array]
) -> None:
    """Write the parameters into the initializers of `model`, a copy of `graph.original`; raises Unwritable."""
    values = {name: graph.constants[name].copy() for name in {n for at in locations.values() for n in at.initializers}}
    owners = {name: np.full(value.size, -1, np.int32) for name, value in values.items()}
    names = list(locations)
    for number, (name, location) in enumerate(locations.items()):
        _check_writable(name, location, parameters[name], values)
        for initializer, at, mine in _parts(location, graph):
            flat, owner = values[initializer].reshape(-1), owners[initializer]
            given = parameters[name].reshape(-1)[mine]
            clash = (owner[at] >= 0) & (flat[at] != given)
            if clash.any():
                other = names[int(owner[at][clash][0])]
                raise Unwritable(f"{name} and {other} are one initializer in the file, {initializer!r}, and differ")
            flat[at], owner[at] = given, number
    for tensor in model.graph.initializer:
        if tensor.name in values:
            tensor.CopyFrom(numpy_helper.from_array(values[tensor.name], tensor.name))


def _parts(location: ParameterLocation, graph: Graph) -> Iterator[tuple[str, Array, Array]]:
    """Each initializer, its elements that the parameter takes, and which of the parameter's [n] they are."""
    for name in location.initializers:
        at = location.elements - graph.offsets[name]
        mine = (at >= 0) & (at < graph.sizes[name])
        yield name, at[mine], mine


def _check_writable(name: str, location: ParameterLocation, parameter: Array, values: dict[str, Array]) -> None:
    """Whether the file can hold this parameter; raises Unwritable."""
    if parameter.shape != location.shape:
        raise Unwritable(f"{name} is {list(parameter.shape)}, and the file's {list(location.shape)}")
    if not location.lines and not np.array_equal(parameter, location.value):
        raise Unwritable(f"{name} is {location.form} in the file, and cannot be given another value")
    for initializer in location.initializers:
        dtype = values[initializer].dtype
        if not np.array_equal(parameter.astype(dtype), parameter):
            raise Unwritable(f"{name} is {dtype} in the file, {initializer!r}, which does not hold these values")


def each_parameter(
    model: onnx.ModelProto, graph: Graph, locations: Mapping[str, ParameterLocation]
) -> Iterator[tuple[str, Array]]:
    """Name and value, as the initializers of `model`, which is `graph.original` or a copy of it, hold it: one is read
    at a time."""
    initializers = {tensor.name: tensor for tensor in model.graph.initializer}
    for name, location in locations.items():
        if not location.lines:
            yield name, location.value
            continue
        value = np.empty(location.shape, location.held.dtype)
        flat = value.reshape(-1)
        for initializer, at, mine in _parts(location, graph):
            flat[mine] = numpy_helper.to_array(initializers[initializer]).reshape(-1)[at]
        yield name, value
