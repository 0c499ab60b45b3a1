"""Runs an ONNX model on the CPU: ONNX Runtime at each optimisation level, ONNX's own reference, OpenVINO."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import onnx
import onnxruntime as ort
from onnx import reference

from encoder_conformance import Tensors
from encoder_conformance.impls.bases.onnx_model.inputs import Shape, check_stated
from encoder_conformance.protocol.onnx_runtimes import ONNX_RUNTIMES, onnx_runtime

PROVIDER = "CPUExecutionProvider"
DISABLED = "MatMulScaleFusion"  # makes 1/√d a float32 attribute in float64 models too (microsoft/onnxruntime#28145)
LEVELS = {
    level: getattr(ort.GraphOptimizationLevel, word) for level, word in onnx_runtime("onnxruntime").levels.items()
}


class Session(Protocol):
    """A model that is loaded."""

    inputs: dict[str, Shape]
    outputs: list[str]

    def run(self, feeds: Tensors) -> Tensors:
        """Every output by name. Raises what the runtime does for inputs that do not fit, or ValueError for a shape and
        TypeError for a dtype where it would make them fit."""


def open(
    model: bytes | Path,
    runtime: str = "onnxruntime",
    level: str = "all",
    threads: int = 1,
    without: Sequence[str] = (DISABLED,),
) -> Session:
    """Load a model, by its bytes or its path; `level` and the optimisers that it is to go `without` are ONNX Runtime's,
    and nothing to the others."""
    return RUNTIMES[runtime](model, level, threads, without)


class OnnxRuntime:
    def __init__(self, model: bytes | Path, level: str, threads: int, without: Sequence[str]) -> None:
        self.session = session(model, options(level, threads), without)
        self.inputs = {given.name: tuple(given.shape) for given in self.session.get_inputs()}
        self.outputs = [output.name for output in self.session.get_outputs()]

    def run(self, feeds: Tensors) -> Tensors:
        return dict(zip(self.outputs, self.session.run(None, feeds), strict=True))


class Reference:
    """In Python, operator by operator, single-threaded, whatever `threads` says."""

    def __init__(self, model: bytes | Path, level: str, threads: int, without: Sequence[str]) -> None:
        whole = loaded(model)
        self.evaluator = reference.ReferenceEvaluator(whole)
        self.inputs, self.dtypes, self.outputs = stated(whole)

    def run(self, feeds: Tensors) -> Tensors:
        check_stated(self.inputs, self.dtypes, feeds)
        # A reduction over all of an axis's elements comes as a NumPy scalar.
        return dict(zip(self.outputs, map(np.asarray, self.evaluator.run(None, feeds)), strict=True))


class OpenVino:
    """Told to compute in float32: its own choice on a processor that has it is bfloat16, 2e-2 away."""

    told: Mapping[str, str] = MappingProxyType({"INFERENCE_PRECISION_HINT": "f32"})

    def __init__(self, model: bytes | Path, level: str, threads: int, without: Sequence[str]) -> None:
        import openvino  # the others do without it

        core = openvino.Core()
        settings: dict[str, Any] = {**self.told, "INFERENCE_NUM_THREADS": threads}
        self.model = core.compile_model(core.read_model(model), "CPU", settings)
        self.inputs, self.dtypes, self.outputs = stated(loaded(model, external=False))

    def run(self, feeds: Tensors) -> Tensors:
        check_stated(self.inputs, self.dtypes, feeds)
        found = self.model(feeds)  # by number, since a value that two outputs show has both of their names
        return {name: np.array(found[number]) for number, name in enumerate(self.outputs)}


class OpenVinoItself(OpenVino):
    """In the precision that it chooses for the processor."""

    told = MappingProxyType({})


RUNTIMES: dict[str, Callable[[bytes | Path, str, int, Sequence[str]], Session]] = {
    "onnxruntime": OnnxRuntime,
    "reference": Reference,
    "openvino": OpenVino,
    "openvino_itself": OpenVinoItself,
}
PACKAGES = {runtime.name: runtime.package for runtime in ONNX_RUNTIMES} | {"openvino_itself": "openvino"}
"""Runtime → the package whose version is its."""


def options(level: str, threads: int) -> ort.SessionOptions:
    chosen = ort.SessionOptions()
    chosen.intra_op_num_threads = threads
    chosen.graph_optimization_level = LEVELS[level]
    return chosen


def session(
    model: bytes | Path, chosen: ort.SessionOptions, without: Sequence[str] = (DISABLED,)
) -> ort.InferenceSession:
    given = model if isinstance(model, bytes) else str(model)
    return ort.InferenceSession(given, chosen, [PROVIDER], disabled_optimizers=list(without))


def loaded(model: bytes | Path, *, external: bool = True) -> onnx.ModelProto:
    return onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(model, load_external_data=external)


def stated(model: onnx.ModelProto) -> tuple[dict[str, Shape], dict[str, np.dtype], list[str]]:
    """Shapes and dtypes of the inputs that are to be fed, and the names of the outputs."""
    initialized = {tensor.name for tensor in model.graph.initializer}
    given = [tensor for tensor in model.graph.input if tensor.name not in initialized]
    dtypes = {tensor.name: onnx.helper.tensor_dtype_to_np_dtype(tensor.type.tensor_type.elem_type) for tensor in given}
    return {tensor.name: shape_of(tensor) for tensor in given}, dtypes, [tensor.name for tensor in model.graph.output]


def shape_of(tensor: onnx.ValueInfoProto) -> Shape:
    """The shape that the model states."""
    dims = tensor.type.tensor_type.shape.dim
    return tuple(dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in dims)
