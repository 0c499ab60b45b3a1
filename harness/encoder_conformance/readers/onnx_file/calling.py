"""A whole file as a function of its inputs: as it is, or in float64 with its constants disturbed."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from encoder_conformance import Tensors
from encoder_conformance.impls.bases.onnx_model.runtimes import Session
from encoder_conformance.readers.onnx_file.findings import Findings
from encoder_conformance.readers.onnx_file.graph.execution import LARGE, loaded, serialized_with
from encoder_conformance.readers.onnx_file.graph.graph import Graph
from encoder_conformance.readers.onnx_file.graph.nodes import subgraphs
from encoder_conformance.readers.onnx_file.graph.operators import FLOAT_TYPES
from encoder_conformance.readers.onnx_file.reading.loading import load
from encoder_conformance.readers.onnx_file.reading.node_order import check_order
from encoder_conformance.spec.axes import Array

_NARROW = tuple(kind for kind in FLOAT_TYPES if kind != TensorProto.DOUBLE)


class CalledFile:
    """The file at `path`. `open`: loads it in the runtime and at the level of the worker."""

    def __init__(self, path: Path, open: Callable[[bytes | Path], Session]) -> None:
        self.path, self._open = path, open
        self._session: Session | None = None
        self._graph: Graph | None = None
        self._wide: tuple[int | None, ReferenceEvaluator] | None = None

    def outputs(self, message: dict[str, Any], feeds: Tensors) -> Tensors:
        """Every output by name, in the order of the file. `message` is a `Call`: but for float64, the file is run as
        it is, in its own format."""
        if message["precision"] != "float64":
            return self._deployed().run(feeds)
        seed, roundoff = message["seed"], message["roundoff"]
        if self._wide is None or self._wide[0] != seed:
            self._wide = seed, ReferenceEvaluator(self._widened(seed, roundoff))
        given = {name: _wide(value) for name, value in feeds.items()}
        evaluator = self._wide[1]
        with np.errstate(all="ignore"):
            answers = evaluator.run(None, given)
        return {name: np.asarray(value) for name, value in zip(evaluator.output_names, answers, strict=True)}

    def _deployed(self) -> Session:
        if self._session is None:
            model, _ = load(self.path)
            large = model.ByteSize() > LARGE
            self._session = loaded(lambda: serialized_with(model), self._open, large=large)
        return self._session

    def _widened(self, seed: int | None, roundoff: float) -> onnx.ModelProto:
        """The file in ONNX's own operators, all floating-point numbers in float64."""
        if self._graph is None:
            model, _ = load(self.path)
            check_order(model, Findings())
            self._graph = Graph(model, copied=False)
        model = deepcopy(self._graph.model)
        widen(model.graph)
        if seed is not None:
            rng = np.random.default_rng(seed)
            for tensor in model.graph.initializer:
                if tensor.data_type == TensorProto.DOUBLE and _is_weight(value := numpy_helper.to_array(tensor)):
                    noisy = value * (1.0 + roundoff * rng.uniform(-1.0, 1.0, value.shape))
                    tensor.CopyFrom(numpy_helper.from_array(noisy, tensor.name))
        return model


def widen(graph: onnx.GraphProto) -> None:
    """Make every floating-point constant, input, output and cast of a graph float64, in place; of subgraphs, too."""
    del graph.value_info[:]
    for tensor in graph.initializer:
        if tensor.data_type in _NARROW:
            tensor.CopyFrom(numpy_helper.from_array(_wide(numpy_helper.to_array(tensor)), tensor.name))
    for info in (*graph.input, *graph.output):
        kind = info.type.tensor_type
        if info.type.HasField("tensor_type") and kind.elem_type in _NARROW:
            kind.elem_type = TensorProto.DOUBLE
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype") and attribute.i in _NARROW:
                attribute.i = TensorProto.DOUBLE
            if attribute.HasField("t") and attribute.t.data_type in _NARROW:
                attribute.t.CopyFrom(numpy_helper.from_array(_wide(numpy_helper.to_array(attribute.t))))
        for inner in subgraphs(node):
            widen(inner)


def _wide(value: Array) -> Array:
    """The value [*shape] in float64, if it is of a floating-point format; bfloat16's kind is none of NumPy's."""
    is_float = value.dtype.kind == "f" or value.dtype.name == "bfloat16"
    return value.astype(np.float64) if is_float else value


def _is_weight(value: Array) -> bool:
    """Whether these are numbers that were learnt: a scalar, and whole numbers, may be a size, an index or a bound."""
    return value.size > 1 and bool((value != np.floor(value)).any())
