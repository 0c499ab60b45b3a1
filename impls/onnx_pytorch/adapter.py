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

from harness.adapter import Adapter, Environment, Masks, ParameterMap, Take, Tensors, serve
from harness.adapter.base import Array
from impls.onnx_pytorch.encoder import OPSET, StagedEncoderLayer, deployed, export
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
    }
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
        self.exported: dict[tuple[str, str], onnx.ModelProto] = {}
        modules = {"torch": torch, "onnx": onnx, "onnxscript": onnxscript, "onnxruntime": ort, "numpy": np}
        optimisation = f"{self.options.graph_optimization_level.name} but {DISABLED}"
        return Environment(
            {name: module.__version__ for name, module in modules.items()},
            {"threads": threads, "opset": OPSET, "optimisation": optimisation, "provider": PROVIDER},
        )

    def build(self, layer: dict[str, Any], parameters: Tensors, dtype: str) -> Tensors:
        self.num_heads = layer["attention"]["num_heads"]
        key = json.dumps(layer, sort_keys=True), dtype
        if key not in self.exported:
            encoder = StagedEncoderLayer(**choices(layer))
            self.exported[key] = export(encoder.to(getattr(torch, dtype)))
        model = self.model = self.exported[key]
        # The exporter's own constants are scalars, and shapes, which are int64; every other tensor is a parameter.
        held = {t.name: t for t in model.graph.initializer if t.dims and t.data_type != onnx.TensorProto.INT64}
        for name, value in PARAMETERS.to_own(parameters, layer).items():
            held[name].CopyFrom(numpy_helper.from_array(value, name))
        self.staged = self.session(model, self.options)
        self.deployed = self.session(deployed(model), self.options)
        return PARAMETERS.to_spec({name: numpy_helper.to_array(tensor) for name, tensor in held.items()})

    def output(self, x: Array, masks: Masks) -> Array:
        return self.ask(self.deployed, x, masks)["output"]

    def stages(self, x: Array, masks: Masks) -> Tensors:
        return self.ask(self.staged, x, masks)

    def profile(self, x: Array, masks: Masks, repeats: int) -> Tensors:
        """Of the model that shows every stage, which ONNX Runtime can fuse less of than of the one that is deployed."""
        with tempfile.TemporaryDirectory() as folder:
            timing = Timing(Path(folder), self.session_options())
            session = self.session(self.model, timing.options)
            for _ in range(repeats + 1):
                self.ask(session, x, masks)
            return timing.by_stage(session.end_profiling(), repeats)

    def ask(self, session: ort.InferenceSession, x: Array, masks: Masks) -> Tensors:
        B, S, _ = x.shape
        mask = masks.joined()
        whole = np.broadcast_to(True if mask is None else mask, (B, self.num_heads, S, S))
        answers = session.run(None, {"x": x, "mask": np.ascontiguousarray(whole)})
        return {output.name: answer for output, answer in zip(session.get_outputs(), answers, strict=True)}

    def session_options(self) -> ort.SessionOptions:
        options = ort.SessionOptions()
        options.intra_op_num_threads = self.threads
        return options

    def session(self, model: onnx.ModelProto, options: ort.SessionOptions) -> ort.InferenceSession:
        return ort.InferenceSession(model.SerializeToString(), options, [PROVIDER], disabled_optimizers=[DISABLED])


if __name__ == "__main__":
    serve(OnnxPyTorch())
