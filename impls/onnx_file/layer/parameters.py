"""A layer's parameters in the specification's names, and where each lies among the file's initializers."""

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

from encoder_conformance.impls.onnx_file.graph.graph import Graph
from encoder_conformance.impls.onnx_file.layer.structure import Encoder, OneLayer, Projection
from encoder_conformance.impls.onnx_file.tracing.expressions import Array, Norm, Source
from encoder_conformance.spec.dtypes import FORMATS

ABSENT = "absent"
"""The form of a bias or shift that the file lacks beside others that it has: it is 0, and of a gain 1."""


@dataclass(frozen=True)
class Held:
    """`elements` numbers the parameter's own among those of all initializers. `form` is as_is, transposed, reshaped,
    slice, rearranged, joined (of several), computed or absent. `stored` is the format of the initializers, where the
    file widens what they hold before it computes with it."""

    value: Array
    elements: Array | None
    initializers: tuple[str, ...]
    form: str
    stored: str | None = None

    def as_json(self) -> dict[str, str | None]:
        return {"initializer": ", ".join(self.initializers), "form": self.form, "stored": self.stored}


def parameters_of(encoder: Encoder, graph: Graph, dtype: np.dtype) -> dict[str, Held]:
    """Spec name → where it is. In a stack each layer's names have its prefix."""
    layers = encoder.layers
    stacked = len(layers) > 1 or encoder.final_norm is not None
    found: dict[str, Held] = {}
    for number, layer in enumerate(layers):
        prefix = f"layers.{number}." if stacked else ""
        found |= {prefix + name: held for name, held in _of_one(layer, graph, dtype).items()}
    if encoder.final_norm is not None:
        found |= _norm("final_norm", encoder.final_norm, graph, dtype)
    return found


def _of_one(layer: OneLayer, graph: Graph, dtype: np.dtype) -> dict[str, Held]:
    found = _norm("norm1", layer.norm1, graph, dtype)
    qkv = {"query": layer.query, "key": layer.key, "value": layer.value}
    biased = any(projection.linear.bias is not None for projection in qkv.values())
    for name, projection in qkv.items():
        found |= _linear(f"attention.{name}", *_columns(projection), biased, graph, dtype)
    for name, linear in (
        ("attention.output", layer.attention_output),
        ("norm2", layer.norm2),
        ("feed_forward.hidden", layer.hidden),
        ("feed_forward.output", layer.ffn_output),
    ):
        if isinstance(linear, Norm):
            found |= _norm(name, linear, graph, dtype)
            continue
        biased = linear.bias is not None
        if name.startswith("feed_forward"):
            biased = layer.hidden.bias is not None or layer.ffn_output.bias is not None
        found |= _linear(name, linear.weight, linear.bias, biased, graph, dtype)
    return found


def _columns(projection: Projection) -> tuple[Source, Source | None]:
    linear = projection.linear
    if linear.heads > 1:
        return linear.weight, linear.bias
    weight = linear.weight.take(slice(None), projection.columns)
    return weight, None if linear.bias is None else linear.bias.take(projection.columns)


def _norm(name: str, norm: Norm, graph: Graph, dtype: np.dtype) -> dict[str, Held]:
    width = norm.shape[-1]
    found = {f"{name}.gain": _held(norm.gain, np.ones(width, dtype), graph)}
    if norm.kind == "layer_norm":
        found[f"{name}.shift"] = _held(norm.shift, np.zeros(width, dtype), graph)
    return found


def _linear(
    name: str, weight: Source, bias: Source | None, biased: bool, graph: Graph, dtype: np.dtype
) -> dict[str, Held]:
    found = {f"{name}.weight": _held(weight, None, graph)}
    if biased:
        found[f"{name}.bias"] = _held(bias, np.zeros(weight.value.shape[1], dtype), graph)
    return found


def _held(source: Source | None, otherwise: Array | None, graph: Graph) -> Held:
    if source is None:
        assert otherwise is not None
        return Held(otherwise, None, (), ABSENT)
    value = np.ascontiguousarray(source.value)
    if source.elements is None:
        return Held(value, None, (), "computed")
    names = initializers_of(source.elements, graph)
    if not set(names) <= graph.stated_initializers:
        return Held(value, None, (), "computed")
    form = "joined"
    if len(names) == 1:
        form = _form(source.elements - graph.offsets[names[0]], graph.constants[names[0]].shape)
    narrower = {graph.constants[name].dtype.name for name in names} - {value.dtype.name}
    stored = max(narrower, key=lambda name: FORMATS[name].roundoff, default=None)
    return Held(value, source.elements, names, form, stored)


def initializers_of(elements: Array, graph: Graph) -> tuple[str, ...]:
    """Those that the elements are of, as all are counted through."""
    least, most = int(elements.min()), int(elements.max())
    found = []
    for name, start in graph.offsets.items():
        end = start + graph.constants[name].size
        if start <= least and most < end:
            return (name,)
        if start <= most and least < end and ((elements >= start) & (elements < end)).any():
            found.append(name)
    return tuple(found)


def _form(at: Array, shape: tuple[int, ...]) -> str:
    """How elements numbered within their initializer make the parameter."""
    whole = np.arange(int(np.prod(shape)))
    if at.size == whole.size:
        if np.array_equal(at.reshape(-1), whole):
            return "as_is" if at.shape == shape else "reshaped"
        if at.ndim == 2 and np.array_equal(at.T.reshape(-1), whole):
            return "transposed" if at.T.shape == shape else "reshaped, transposed"
        return "rearranged"
    for turned, name in ((at, "slice"), (at.T, "slice, transposed")):
        if turned.size and np.array_equal(turned.reshape(-1), np.arange(turned.size) + turned.reshape(-1)[0]):
            return name
        if turned.ndim == 2 and _is_block(turned):
            return name
    return "rearranged"


def _is_block(at: Array) -> bool:
    """Whether rows and columns go in even steps, columns by one."""
    steps = np.diff(at[:, 0])
    return bool((np.diff(at, axis=1) == 1).all() and (steps == steps[:1]).all() and (not steps.size or steps[0] > 0))


class Unwritable(ValueError):
    """These parameters cannot be put into the file's initializers."""


def written(model: onnx.ModelProto, graph: Graph, held: dict[str, Held], parameters: dict[str, Array]) -> None:
    """Put the parameters into the initializers of `model`, a copy of `graph.model`; raises Unwritable."""
    total = sum(value.size for value in graph.constants.values())
    new = {name: graph.constants[name].copy() for name in {n for h in held.values() for n in h.initializers}}
    owner = np.full(total, -1, np.int32)
    names = list(held)
    for number, (name, place) in enumerate(held.items()):
        value = parameters[name]
        if value.shape != place.value.shape:
            raise Unwritable(f"{name} is {list(value.shape)}, and the file's {list(place.value.shape)}")
        if place.elements is None:
            if not np.array_equal(value, place.value):
                raise Unwritable(f"{name} is {place.form} in the file, and cannot be given another value")
            continue
        for initializer in place.initializers:
            if not np.array_equal(value.astype(new[initializer].dtype), value):
                narrow = new[initializer].dtype
                raise Unwritable(f"{name} is {narrow} in the file, {initializer!r}, which does not hold these values")
        elements = place.elements.reshape(-1)
        for initializer in place.initializers:
            start = graph.offsets[initializer]
            mine = (elements >= start) & (elements < start + new[initializer].size)
            flat = new[initializer].reshape(-1)
            taken = owner[elements[mine]]
            clash = (taken >= 0) & (flat[elements[mine] - start] != value.reshape(-1)[mine])
            if clash.any():
                other = names[int(taken[clash][0])]
                raise Unwritable(f"{name} and {other} are one initializer in the file, {initializer!r}, and differ")
            flat[elements[mine] - start] = value.reshape(-1)[mine]
            owner[elements[mine]] = number
    for tensor in model.graph.initializer:
        if tensor.name in new:
            tensor.CopyFrom(numpy_helper.from_array(new[tensor.name], tensor.name))


def held_in(model: onnx.ModelProto, graph: Graph, held: dict[str, Held]) -> dict[str, Array]:
    """The parameters as the initializers of `model`, which is `graph.model` or a copy of it, now have them."""
    wanted = {name for place in held.values() for name in place.initializers}
    values = {t.name: numpy_helper.to_array(t).reshape(-1) for t in model.graph.initializer if t.name in wanted}
    found = {}
    for name, place in held.items():
        if place.elements is None:
            found[name] = place.value
            continue
        flat, elements = np.empty(place.elements.size, place.value.dtype), place.elements.reshape(-1)
        for initializer in place.initializers:
            at = elements - graph.offsets[initializer]
            mine = (at >= 0) & (at < values[initializer].size)
            flat[mine] = values[initializer][at[mine]]
        found[name] = flat.reshape(place.value.shape)
    return found
