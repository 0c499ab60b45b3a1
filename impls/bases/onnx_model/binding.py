"""Which initializers of a model hold which parameter of the specification, found by value.

An exporter numbers what it folds: a weight may come out as it went in, transposed, in another shape, or as a slice of
one that was fused of several. It holds the same numbers, and parameters that are random are told apart by them.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

import numpy as np
import onnx
from onnx import numpy_helper

from encoder_conformance import Array, Tensors
from encoder_conformance.impls.bases.onnx_model.names import rename

FLOATING = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16)


@dataclass(frozen=True)
class Place:
    """Where a parameter is: an initializer, or what lies from `start` to `stop` along `axis` of it.

    Its elements are the parameter's in row-major order, or, if `transposed`, those of the parameter's transpose.
    """

    initializer: str
    transposed: bool = False
    axis: int | None = None
    start: int = 0
    stop: int = 0

    def part(self, array: Array) -> Array:
        """A view."""
        if self.axis is None:
            return array
        return array[(slice(None),) * self.axis + (slice(self.start, self.stop),)]


@dataclass(frozen=True)
class Binding:
    shapes: dict[str, tuple[int, ...]]
    """Of each parameter of the specification, weights [in, out]."""
    dtype: str
    """Of the parameters. An initializer may be of a wider one, where a cast of it was folded: it holds them exactly."""
    places: dict[str, tuple[Place, ...]]
    """Every place where the model holds the parameter: a folded copy is one too."""

    def to_json(self) -> str:
        held = {
            name: {"shape": self.shapes[name], "places": [asdict(place) for place in places]}
            for name, places in self.places.items()
        }
        return json.dumps({"dtype": self.dtype, "held": held})

    @classmethod
    def from_json(cls, text: str) -> "Binding":
        said = json.loads(text)
        shapes = {name: tuple(entry["shape"]) for name, entry in said["held"].items()}
        places = {name: tuple(Place(**place) for place in entry["places"]) for name, entry in said["held"].items()}
        return cls(shapes, said["dtype"], places)

    def put(self, model: onnx.ModelProto, parameters: Tensors) -> None:
        """Put these parameters in the place of those that the model has."""
        for tensor, held in _initializers(model, self.initializers()):
            array = numpy_helper.to_array(tensor).copy() if tensor.raw_data else np.empty(tensor.dims, _dtype(tensor))
            for name, place in held:
                part = place.part(array)
                value = parameters[name].T if place.transposed else parameters[name]
                part[...] = value.reshape(part.shape)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))

    def read(self, model: onnx.ModelProto) -> Tensors:
        """The parameters that the model has. Raises ValueError where two places of one hold different numbers."""
        found: Tensors = {}
        for tensor, held in _initializers(model, self.initializers()):
            array = numpy_helper.to_array(tensor)
            for name, place in held:
                value = _as_parameter(place.part(array), self.shapes[name], transposed=place.transposed)
                value = value.astype(self.dtype, copy=False)
                if name in found and found[name].tobytes() != value.tobytes():
                    raise ValueError(f"the model holds {name} in {len(self.places[name])} places, which differ")
                found[name] = value
        return found

    def strip(self, model: onnx.ModelProto) -> None:
        """Take out the numbers of every initializer that parameters fill altogether, and so `put` makes anew."""
        for tensor, held in _initializers(model, self.initializers()):
            if sum(int(np.prod(self.shapes[name])) for name, _ in held) == int(np.prod(tensor.dims)):
                tensor.ClearField("raw_data")

    def initializers(self) -> dict[str, list[tuple[str, Place]]]:
        """Initializer → the parameters in it."""
        held: dict[str, list[tuple[str, Place]]] = {}
        for name, places in self.places.items():
            for place in places:
                held.setdefault(place.initializer, []).append((name, place))
        return held


def bind(model: onnx.ModelProto, parameters: Tensors) -> Binding:
    """Find `parameters`, which are random and the model's, and give each initializer that is one of them its name.

    Raises LookupError where one is not found: the exporter has changed its numbers.
    """
    _hoist_constants(model.graph)
    for tensor in model.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))  # all as raw data
    values = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer if t.data_type in FLOATING}
    places = {name: tuple(_whole(parameter, values)) for name, parameter in parameters.items()}
    claimed = {place.initializer for found in places.values() for place in found}
    left = {name: value for name, value in values.items() if name not in claimed}
    for name, parameter in parameters.items():
        places[name] += tuple(_slices(parameter, left))
    if absent := [name for name, found in places.items() if not found]:
        raise LookupError(f"no initializer of the export holds {', '.join(absent)}, as it is, turned, or as a slice")
    new = {found[0].initializer: name for name, found in places.items() if found[0].axis is None}
    rename(model.graph, new)
    named = {
        name: tuple(Place(**{**asdict(place), "initializer": new.get(place.initializer, place.initializer)})
                    for place in found)
        for name, found in places.items()
    }  # fmt: skip
    [dtype] = {parameter.dtype.name for parameter in parameters.values()}
    return Binding({name: parameter.shape for name, parameter in parameters.items()}, dtype, named)


def _whole(parameter: Array, values: Tensors) -> Iterator[Place]:
    for name, value in values.items():
        if _holds(value, parameter) and value.size == parameter.size:
            for transposed in (False, True):
                if np.array_equal(_as_parameter(value, parameter.shape, transposed=transposed), parameter):
                    yield Place(name, transposed)
                    break


def _holds(value: Array, parameter: Array) -> bool:
    """Whether an initializer's dtype is the parameter's, or one that has all of its numbers."""
    return bool(value.dtype.itemsize >= parameter.dtype.itemsize)


def _slices(parameter: Array, values: Tensors) -> Iterator[Place]:
    """Parts along one axis; where such a part may begin is told by its first element."""
    for name, value in values.items():
        if not _holds(value, parameter) or value.size <= parameter.size:
            continue
        for axis, size in enumerate(value.shape):
            length, rest = divmod(parameter.size * size, value.size)
            edge = value[(0,) * axis + (slice(None),) + (0,) * (value.ndim - axis - 1)]
            for start in [] if rest else np.flatnonzero(edge == parameter.flat[0]):
                for transposed in (False, True):
                    place = Place(name, transposed, axis, int(start), int(start) + length)
                    part = place.part(value)
                    if part.size == parameter.size and np.array_equal(
                        _as_parameter(part, parameter.shape, transposed=transposed), parameter
                    ):
                        yield place
                        break


def _as_parameter(part: Array, shape: tuple[int, ...], *, transposed: bool) -> Array:
    return np.ascontiguousarray(part.reshape(shape[::-1]).T if transposed else part.reshape(shape))


def _hoist_constants(graph: onnx.GraphProto) -> None:
    """Make initializers of the constants that are nodes: some exporters write a parameter so."""
    for node in [node for node in graph.node if node.op_type == "Constant" and not node.domain]:
        if node.attribute[0].name == "value":
            tensor = onnx.TensorProto()
            tensor.CopyFrom(node.attribute[0].t)
            tensor.name = node.output[0]
            graph.initializer.append(tensor)
            graph.node.remove(node)


def _initializers(
    model: onnx.ModelProto, held: dict[str, list[tuple[str, Place]]]
) -> Iterable[tuple[onnx.TensorProto, list[tuple[str, Place]]]]:
    return ((tensor, held[tensor.name]) for tensor in model.graph.initializer if tensor.name in held)


def _dtype(tensor: onnx.TensorProto) -> np.dtype:
    return onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
