"""Exports the PyTorch encoder to ONNX, once for a layer and dtype, and drives it in ONNX Runtime on the CPU."""

import json
import logging
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import onnxscript
import torch
from onnx import numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

from harness.adapter import Adapter, Environment, Masks, ParameterMap, Take, Tensors, serve, stack_of
from harness.adapter.base import Array
from impls.onnx_pytorch.encoder import OPSET, StagedEncoder, StagedEncoderLayer, deployed, export
from impls.onnx_pytorch.inputs import check_fit, whole
from impls.onnx_pytorch.timing import Timing
from impls.pytorch.adapter import choices

PROVIDER = "CPUExecutionProvider"
DISABLED = "MatMulScaleFusion"  # makes 1/√d a float32 attribute in float64 models too (microsoft/onnxruntime#28145)

PARAMETERS = ParameterMap(
    {
        "norm1.weight": Take("norm1.gain"),
        "norm1.bias": Take("norm1.shift"),
        "attention.W_q.weight": Take("attention.query.weight"),
        "attention.W_q.bias": Take("attention.query.bias"),
        "attention.W_k.weight": Take("attention.key.weight"),
        "attention.W_k.bias": Take("attention.key.bias"),
        "attention.W_v.weight": Take("attention.value.weight"),
        "attention.W_v.bias": Take("attention.value.bias"),
        "attention.W_o.weight": Take("attention.output.weight"),
        "attention.W_o.bias": Take("attention.output.bias"),
        "norm2.weight": Take("norm2.gain"),
        "norm2.bias": Take("norm2.shift"),
        "feed_forward.hidden.weight": Take("feed_forward.hidden.weight"),
        "feed_forward.hidden.bias": Take("feed_forward.hidden.bias"),
        "feed_forward.output.weight": Take("feed_forward.output.weight"),
        "feed_forward.output.bias": Take("feed_forward.output.bias"),
    },
    around={
        "embedding.weight": Take("embedding.weight"),
        "norm.weight": Take("final_norm.gain"),
        "norm.bias": Take("final_norm.shift"),
    },
)


class OnnxPyTorch(Adapter):
    def start(self, device: str, threads: int) -> Environment:
        if device != "cpu":
            raise ValueError(f"asked for {device}, but this adapter runs on the cpu only")
        warnings.filterwarnings("ignore", module="torch|copyreg")  # the exporter's, about its own insides
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        torch.set_num_threads(threads)
        self.threads = threads
        self.options = self.session_options()
        self.exported: dict[tuple[str, str, bool], onnx.ModelProto] = {}
        modules = {"torch": torch, "onnx": onnx, "onnxscript": onnxscript, "onnxruntime": ort, "numpy": np}
        optimisation = f"{self.options.graph_optimization_level.name} but {DISABLED}"
        return Environment(
            {name: module.__version__ for name, module in modules.items()},
            {"threads": threads, "opset": OPSET, "optimisation": optimisation, "provider": PROVIDER},
        )

    def build(self, layer: dict[str, Any], parameters: Tensors, dtype: str) -> Tensors:
        self.layer, self.dtype = layer, dtype
        self.own = PARAMETERS.to_own(parameters, layer)
        self.sessions: dict[tuple[str, bool], ort.InferenceSession] = {}
        held = parameters_in(self.model(biased=False))
        return PARAMETERS.to_spec({name: numpy_helper.to_array(tensor) for name, tensor in held.items()})

    def model(self, *, biased: bool) -> onnx.ModelProto:
        """The model that shows every stage, with this build's parameters; exported once for a layer and dtype."""
        key = json.dumps(self.layer, sort_keys=True), self.dtype, biased
        if key not in self.exported:
            stacked, chosen = stack_of(self.layer), choices(self.layer)
            encoder = StagedEncoder(**stacked, **chosen) if stacked else StagedEncoderLayer(**chosen)
            self.exported[key] = export(encoder.to(getattr(torch, self.dtype)), biased=biased)
        held = parameters_in(self.exported[key])
        for name, value in self.own.items():
            held[name].CopyFrom(numpy_helper.from_array(value, name))
        return self.exported[key]

    def output(self, x: Array, masks: Masks) -> Array:
        return self.as_given(self.ask("deployed", self.batch_first(x), masks)["output"])

    def stages(self, x: Array, masks: Masks) -> Tensors:
        return self.ask("staged", x, masks)

    def profile(self, x: Array, masks: Masks, repeats: int) -> Tensors:
        """Of the model that shows every stage, which ONNX Runtime can fuse less of than of the one that is deployed."""
        with tempfile.TemporaryDirectory() as folder:
            timing = Timing(Path(folder), self.session_options())
            given = self.given(x, masks)
            session = self.session(self.model(biased="bias" in given), timing.options)
            for _ in range(repeats + 1):
                session.run(None, given)
            return timing.by_stage(session.end_profiling(), repeats)

    def ask(self, kind: str, x: Array, masks: Masks) -> Tensors:
        """`kind` is staged, or deployed: with the output alone."""
        given = self.given(x, masks)
        key = kind, "bias" in given
        if key not in self.sessions:
            model = self.model(biased="bias" in given)
            self.sessions[key] = self.session(model if kind == "staged" else deployed(model), self.options)
        session = self.sessions[key]
        check_fit(session.get_inputs(), given)
        answers = session.run(None, given)
        return {output.name: answer for output, answer in zip(session.get_outputs(), answers, strict=True)}

    def given(self, x: Array, masks: Masks) -> Tensors:
        return whole(x, masks, self.layer["attention"]["num_heads"], self.dtype)

    def refusal(self, operation: str, error: Exception) -> str | None:
        if isinstance(error, InvalidArgument):  # the model says what dtype an input has, what rank, and which sizes
            return "dtype" if "input data type" in str(error) else "shape"
        return super().refusal(operation, error)

    def session_options(self) -> ort.SessionOptions:
        options = ort.SessionOptions()
        options.intra_op_num_threads = self.threads
        return options

    def session(self, model: onnx.ModelProto, options: ort.SessionOptions) -> ort.InferenceSession:
        return ort.InferenceSession(model.SerializeToString(), options, [PROVIDER], disabled_optimizers=[DISABLED])


def parameters_in(model: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    """Those that bear a parameter's name. The others are the exporter's own: shapes, scalars, what it folded."""
    return {t.name: t for t in model.graph.initializer if t.name.endswith((".weight", ".bias"))}


if __name__ == "__main__":
    serve(OnnxPyTorch())
