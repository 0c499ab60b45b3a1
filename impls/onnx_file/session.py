"""A model loaded by one of the runtimes, at one optimisation level."""

from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx
import onnxruntime as ort
from onnx import reference

from harness.adapter import Tensors

PROVIDER = "CPUExecutionProvider"
LEVELS = {
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "disable": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
}


class Session(Protocol):
    def run(self, feeds: Tensors) -> Tensors: ...


def open(model: bytes | Path, runtime: str, level: str, threads: int) -> Session:
    """`level` is ONNX Runtime's, and nothing to the others."""
    return RUNTIMES[runtime](model, level, threads)


class OnnxRuntime:
    def __init__(self, model: bytes | Path, level: str, threads: int) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.graph_optimization_level = LEVELS[level]
        given = model if isinstance(model, bytes) else str(model)
        self.session = ort.InferenceSession(given, options, [PROVIDER])
        self.outputs = [output.name for output in self.session.get_outputs()]

    def run(self, feeds: Tensors) -> Tensors:
        return dict(zip(self.outputs, self.session.run(None, feeds), strict=True))


class Reference:
    def __init__(self, model: bytes | Path, level: str, threads: int) -> None:
        loaded = onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(model)
        self.evaluator = reference.ReferenceEvaluator(loaded)
        self.outputs = [output.name for output in loaded.graph.output]

    def run(self, feeds: Tensors) -> Tensors:
        with np.errstate(all="ignore"):
            return dict(zip(self.outputs, map(np.asarray, self.evaluator.run(None, feeds)), strict=True))


class OpenVino:
    """Told to compute in float32: its own choice on a processor that has it is bfloat16, 2e-2 away."""

    def __init__(self, model: bytes | Path, level: str, threads: int) -> None:
        import openvino  # the others do without it

        core = openvino.Core()
        settings: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads}
        self.model = core.compile_model(core.read_model(model), "CPU", settings)
        self.outputs = [output.any_name for output in self.model.outputs]

    def run(self, feeds: Tensors) -> Tensors:
        found = self.model(feeds)
        return {name: np.array(found[name]) for name in self.outputs}


RUNTIMES = {"onnxruntime": OnnxRuntime, "reference": Reference, "openvino": OpenVino}
PACKAGES = {"onnxruntime": "onnxruntime", "reference": "onnx", "openvino": "openvino"}
