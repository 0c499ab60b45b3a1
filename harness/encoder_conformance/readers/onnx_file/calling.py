"""A whole file as a function of its inputs: as it is, or in another format with its weights disturbed."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from encoder_conformance import Tensors
from encoder_conformance.impls.bases.onnx_model.runtimes import Session
from encoder_conformance.protocol.steps import TracedStep, most_shown, of_parameters
from encoder_conformance.readers.onnx_file.findings import Findings
from encoder_conformance.readers.onnx_file.graph.dequantised import without_integers
from encoder_conformance.readers.onnx_file.graph.execution import ModelRunner, loaded
from encoder_conformance.readers.onnx_file.graph.graph import Graph
from encoder_conformance.readers.onnx_file.graph.nodes import inputs_of, node_label, subgraphs
from encoder_conformance.readers.onnx_file.graph.operators import FLOAT_TYPES
from encoder_conformance.readers.onnx_file.graph.reference import evaluator
from encoder_conformance.readers.onnx_file.interface.whole_file import format_held
from encoder_conformance.readers.onnx_file.reading.loading import load
from encoder_conformance.readers.onnx_file.reading.node_order import check_order
from encoder_conformance.spec.axes import Array

_KINDS = {
    "float64": TensorProto.DOUBLE, "float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
}  # fmt: skip


class CalledFile:
    """The file at `path`. `open`: loads it in the runtime and at the level of the worker."""

    def __init__(self, path: Path, open: Callable[[bytes | Path], Session]) -> None:
        self.path, self._open = path, open
        self._session: Session | None = None
        self._graph: Graph | None = None
        self._converted: tuple[tuple[str, int | None], ReferenceEvaluator] | None = None

    def outputs(self, message: dict[str, Any], feeds: Tensors) -> Tensors:
        """Every output by name, in the order of the file. `message` is a `Call`. In its own format the file is run as
        it is, in any other by ONNX's reference implementation. Raises TypeError where an input lacks."""
        precision, seed = message["precision"], message["seed"]
        if precision == "own" or (seed is None and precision == format_held(self._in_operators())):
            found: Tensors = self._deployed().run(feeds)
            return found
        key = precision, seed
        if self._converted is None or self._converted[0] != key:
            self._converted = key, evaluator(self._in_format(precision, seed, message["roundoff"]))
        converted, given = self._converted[1], {name: _cast(value, precision) for name, value in feeds.items()}
        if missing := [name for name in converted.input_names if name not in {*feeds, *converted.rt_inits_}]:
            raise TypeError(f"it needs {', '.join(map(repr, missing))} too, which was not given")
        with np.errstate(all="ignore"):
            answers = converted.run(None, given)
        return {name: np.asarray(value) for name, value in zip(converted.output_names, answers, strict=True)}

    def steps(self, precision: str, feeds: Tensors) -> tuple[list[TracedStep], Tensors]:
        """What it computes inside: in its own format as ONNX Runtime does without optimisation, in any other by ONNX's
        reference. The values of floating-point numbers by the number of their step. Raises ExecutionError."""
        if precision == "own":
            model = Graph(load(self.path)[0], copied=False).original
            values: Tensors = ModelRunner(model).trace(feeds)
        else:
            model = self._in_format(precision, None, 0.0)
            given = {name: _cast(value, precision) for name, value in feeds.items()}
            with np.errstate(all="ignore"):
                values = evaluator(model).run(None, given, intermediate=True)
        weights = model.graph.initializer
        most = most_shown(prod(each.dims) for each in weights)
        values |= feeds | {each.name: numpy_helper.to_array(each) for each in weights if prod(each.dims) <= most}
        parameters = _given((each.name for each in weights), "parameter")
        steps = [*_given(feeds, "input"), *parameters, *_made(model.graph)]
        return steps, dict(_shown(steps, values, most))

    def _deployed(self) -> Session:
        if self._session is None:
            self._session = loaded(lambda: load(self.path)[0], self._open)
        return self._session

    def _in_operators(self) -> Graph:
        """The file in ONNX's own operators."""
        if self._graph is None:
            model, _ = load(self.path)
            check_order(model, Findings())
            self._graph = Graph(model, copied=False)
            without_integers(self._graph.model.graph)
        return self._graph

    def _in_format(self, precision: str, seed: int | None, roundoff: float) -> onnx.ModelProto:
        """The same with all floating-point numbers in a format, and its weights disturbed."""
        model = deepcopy(self._in_operators().model)
        convert(model.graph, precision)
        if seed is not None:
            rng = np.random.default_rng(seed)
            for tensor in model.graph.initializer:
                if tensor.data_type == _KINDS[precision] and _is_weight(value := numpy_helper.to_array(tensor)):
                    noisy = value * (1.0 + roundoff * rng.uniform(-1.0, 1.0, value.shape))
                    tensor.CopyFrom(numpy_helper.from_array(noisy.astype(value.dtype), tensor.name))
        return model


def _shown(steps: Iterable[TracedStep], values: Mapping[str, Any], most: int) -> Iterator[tuple[str, Array]]:
    """The floating-point values by the number of their step; of parameters alone those of at most so many elements."""
    constant = set[str]()
    for number, step in enumerate(steps):
        if is_constant := of_parameters(step, constant):
            constant.add(step.value)
        value = np.asarray(values.get(step.value))
        if _is_real(value) and (not is_constant or value.size <= most):
            yield str(number), value


def _given(names: Iterable[str], kind: Literal["input", "parameter"]) -> Iterator[TracedStep]:
    return (TracedStep(value=name, made_by=f"{kind} {name!r}", takes=(), given=kind) for name in names)


def _made(graph: onnx.GraphProto) -> Iterator[TracedStep]:
    for node in graph.node:
        takes = tuple(filter(None, inputs_of(node)))
        constant: Literal["", "parameter"] = "parameter" if node.op_type == "Constant" else ""
        for name in filter(None, node.output):
            operator, label = node.op_type, node_label(node)
            yield TracedStep(value=name, made_by=label, takes=takes, given=constant, operator=operator)


def convert(graph: onnx.GraphProto, precision: str) -> None:
    """Put every floating-point constant, input, output and cast of a graph in a format, in place; of subgraphs, too."""
    kind = _KINDS[precision]
    del graph.value_info[:]
    for tensor in graph.initializer:
        if tensor.data_type in FLOAT_TYPES:
            tensor.CopyFrom(numpy_helper.from_array(_cast(numpy_helper.to_array(tensor), precision), tensor.name))
    for info in (*graph.input, *graph.output):
        if info.type.HasField("tensor_type") and info.type.tensor_type.elem_type in FLOAT_TYPES:
            info.type.tensor_type.elem_type = kind
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype") and attribute.i in FLOAT_TYPES:
                attribute.i = kind
            if attribute.HasField("t") and attribute.t.data_type in FLOAT_TYPES:
                value = _cast(numpy_helper.to_array(attribute.t), precision)
                attribute.t.CopyFrom(numpy_helper.from_array(value))
        for inner in subgraphs(node):
            convert(inner, precision)


def _cast(value: Array, precision: str) -> Array:
    """The value [*shape] in a format, if it is of a floating-point one; bfloat16's kind is none of NumPy's."""
    is_float = value.dtype.kind == "f" or value.dtype.name == "bfloat16"
    with np.errstate(over="ignore"):
        return value.astype(np.dtype(precision)) if is_float else value


def _is_real(value: Any) -> bool:
    """Whether it is a tensor of floating-point numbers: a sequence has none."""
    return isinstance(value, np.ndarray | np.generic) and value.dtype.kind == "f"


def _is_weight(value: Array) -> bool:
    """Whether these are numbers that were learnt: a scalar, and whole numbers, may be a size, an index or a bound."""
    return value.size > 1 and bool((value != np.floor(value)).any())
