"""Our export under ONNX Runtime against what else runs an encoder layer in ONNX: fused, as an operator, in OpenVINO."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

from benchmarks.performance.layers.contest import (
    ALONE,
    OURS,
    SEQUENCES,
    THREADS,
    Contest,
    Subject,
    check_alike,
    forward,
    subject,
)
from encoder_conformance.impls.bases.onnx_model import runtimes
from encoder_conformance.impls.bases.onnx_model.adapter import OnnxAdapter
from encoder_conformance.impls.onnx_attention.adapter import OnnxAttention
from encoder_conformance.impls.onnx_pytorch.adapter import OnnxPyTorch
from encoder_conformance.impls.torch_encoder_layer.adapter import TorchEncoderLayer


def exported(adapter: OnnxAdapter, opset: str, of: Subject) -> bytes:
    """As `conform export` writes it: x and one mask of padding in, the output out."""
    adapter.choices = {"opset": opset, "runtime": "onnxruntime", "level": "all"}
    adapter.start("cpu", THREADS)
    return adapter.write(of.layer, of.parameters, "float32", "padding")


def exported_nn(of: Subject) -> bytes:
    """nn.TransformerEncoderLayer as torch.onnx.export takes it, with no mask at all."""
    adapter = TorchEncoderLayer()
    adapter.choices = {"path": "slow"}
    adapter.start("cpu", THREADS)
    adapter.build(of.layer, of.parameters, "float32")
    free = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence")}
    example = torch.zeros(2, 3, of.x.shape[-1])
    program = torch.onnx.export(
        adapter.module.eval(), (example,), dynamic_shapes=(free,), input_names=["x"], dynamo=True, verbose=False
    )
    model: onnx.ModelProto = program.model_proto
    return model.SerializeToString()


def fused(model: bytes, heads: int, width: int) -> bytes:
    """What onnxruntime.transformers makes of it, offline: attention, layer norm and bias fused where it finds them."""
    from onnxruntime.transformers import optimizer

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(model)
        found = optimizer.optimize_model(str(path), "bert", num_heads=heads, hidden_size=width, opt_level=0)
        return found.model.SerializeToString()


PRODUCTS = (
    ("x", "attention.query", "q"),
    ("x", "attention.key", "k"),
    ("x", "attention.value", "v"),
    ("q", "attention.output", "a"),
    ("a", "feed_forward.hidden", "h"),
    ("h", "feed_forward.output", "y"),
)
"""What is multiplied by which weight."""


def products(of: Subject) -> bytes:
    """A model of the layer's six products with its weights, and of nothing else."""
    helper, free = onnx.helper, ["batch", "sequence"]
    nodes = [helper.make_node("MatMul", [given, weight], [name]) for given, weight, name in PRODUCTS]
    weights = [onnx.numpy_helper.from_array(of.parameters[f"{weight}.weight"], weight) for _, weight, _ in PRODUCTS]
    x, *outputs = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [*free, of.layer["d_model"]]) for name in "xykv"
    )
    graph = helper.make_graph(nodes, "products", [x], outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def call(session: runtimes.Session, given: dict[str, Any]) -> Any:
    return next(iter(session.run({name: given[name] for name in session.inputs}).values()))


def main() -> None:
    contest = Contest()
    of = subject(SEQUENCES[0])
    heads, width = of.layer["attention"]["num_heads"], of.layer["d_model"]
    ours, theirs = exported(OnnxPyTorch(), "18", of), exported_nn(of)
    models = {
        f"{OURS}ONNX Runtime, level all": (ours, "onnxruntime"),
        "ours fused by onnxruntime.transformers": (fused(ours, heads, width), "onnxruntime"),
        "nn.TransformerEncoderLayer exported without a mask": (theirs, "onnxruntime"),
        "the same fused by onnxruntime.transformers": (fused(theirs, heads, width), "onnxruntime"),
        "the operator Attention (onnx_attention)": (exported(OnnxAttention(), "23", of), "onnxruntime"),
        "ours in OpenVINO, float32": (ours, "openvino"),
        "nn.TransformerEncoderLayer in OpenVINO, float32": (theirs, "openvino"),
        f"{ALONE}ONNX Runtime": (products(of), "onnxruntime"),
        f"{ALONE}OpenVINO, float32": (products(of), "openvino"),
    }
    sessions = {name: runtimes.open(model, runtime, "all", THREADS, ()) for name, (model, runtime) in models.items()}
    for sequence in SEQUENCES:
        x = subject(sequence).x
        given = {"x": x, "mask": np.ones(x.shape[:2], np.bool_)}
        passes: dict[str, Callable[[], Any]] = {
            name: partial(call, session, given) for name, session in sessions.items()
        }
        check_alike({name: contender() for name, contender in passes.items() if not name.startswith(ALONE)})
        contest.row(forward(sequence), passes, sequence)
    contest.show()


if __name__ == "__main__":
    main()
