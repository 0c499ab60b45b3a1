"""A layer as BERT is built, written operator by operator, and the same in integers: well, badly, and in each form."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser
from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

D, H, F = 24, 3, 40
_GRAPH = """
<ir_version: 8, opset_import: ["" : OPSET]>
layer (float[batch, sequence, 24] x, int64[batch, sequence] mask) => (float[batch, sequence, 24] y) {
    q0 = MatMul(x, wq)  q = Add(q0, bq)  k0 = MatMul(x, wk)  k = Add(k0, bk)  v0 = MatMul(x, wv)  v = Add(v0, bv)
    q1 = Reshape(q, heads)  q2 = Transpose <perm = [0, 2, 1, 3]> (q1)
    k1 = Reshape(k, heads)  k2 = Transpose <perm = [0, 2, 3, 1]> (k1)
    v1 = Reshape(v, heads)  v2 = Transpose <perm = [0, 2, 1, 3]> (v1)
    s0 = MatMul(q2, k2)  s1 = Div(s0, root)
    m0 = Unsqueeze(mask, axes)  m1 = Cast <to = 1> (m0)  m2 = Sub(one, m1)  m3 = Mul(m2, low)
    scores = Add(s1, m3)  p = Softmax <axis = -1> (scores)
    c0 = MatMul(p, v2)  c1 = Transpose <perm = [0, 2, 1, 3]> (c0)  c = Reshape(c1, joined)
    o0 = MatMul(c, wo)  o = Add(o0, bo)  r = Add(x, o)
    n = LayerNormalization <epsilon = 1e-12> (r, g1, b1)
    u0 = MatMul(n, wu)  u = Add(u0, bu)
    e0 = Div(u, two)  e1 = Erf(e0)  e2 = Add(e1, one)  e3 = Mul(u, e2)  a = Mul(e3, half)
    d0 = MatMul(a, wd)  d = Add(d0, bd)  z = Add(n, d)
    y = LayerNormalization <epsilon = 1e-12> (z, g2, b2)
}
"""


def written(path: Path, *, opset: int = 17, lowest: float = -3.4e38) -> Path:
    """The layer in float32. `lowest`: what is added to hidden scores."""
    rng = np.random.default_rng(0)
    model = parser.parse_model(_GRAPH.replace("OPSET", str(opset)))
    held = {"w" + name: rng.standard_normal((D, D)) / D**0.5 for name in "qkvo"}
    held |= {"wu": rng.standard_normal((D, F)) / D**0.5, "wd": rng.standard_normal((F, D)) / F**0.5}
    held |= {"b" + name: rng.standard_normal(F if name == "u" else D) * 0.1 for name in "qkvoud"}
    held |= {f"g{n}": 1 + 0.2 * rng.standard_normal(D) for n in (1, 2)}
    held |= {f"b{n}": 0.1 * rng.standard_normal(D) for n in (1, 2)}
    held |= {"root": (D / H) ** 0.5, "one": 1.0, "low": lowest, "two": 2**0.5, "half": 0.5}
    model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in held.items()
    )
    sizes = {"heads": [0, 0, H, D // H], "joined": [0, 0, D], "axes": [1, 2]}
    model.graph.initializer.extend(numpy_helper.from_array(np.array(value), name) for name, value in sizes.items())
    onnx.save(model, path)
    return path


class Inputs(CalibrationDataReader):
    """Ordinary inputs; `padded`: the last positions of each are hidden."""

    def __init__(self, *, padded: bool = False, count: int = 8) -> None:
        rng, self._items = np.random.default_rng(1), []
        for _ in range(count):
            mask = np.ones((2, 16), np.int64)
            mask[:, 11:] = 0 if padded else 1
            self._items.append({"x": rng.standard_normal((2, 16, D)).astype(np.float32), "mask": mask})

    def get_next(self) -> dict[str, np.ndarray] | None:  # type: ignore[type-arg]
        return self._items.pop() if self._items else None


def static(
    path: Path,
    out: Path,
    *,
    padded: bool = False,
    products: bool = False,
    by_channel: bool = False,
    operators: bool = False,
) -> Path:
    """By fixed scales, in QDQ, or in `operators` of integers. `padded`: calibrated with a mask, so that the range of
    the scores is −3.4e38 to 0."""
    quantize_static(
        path, out, Inputs(padded=padded), per_channel=by_channel,
        quant_format=QuantFormat.QOperator if operators else QuantFormat.QDQ,
        op_types_to_quantize=["MatMul"] if products else None, weight_type=QuantType.QInt8,
        activation_type=QuantType.QUInt8, reduce_range=False,
    )  # fmt: skip
    return out


def dynamic(path: Path, out: Path, *, by_channel: bool = False) -> Path:
    quantize_dynamic(path, out, weight_type=QuantType.QInt8, per_channel=by_channel, reduce_range=True)
    return out


def cast_and_multiplied(path: Path, out: Path) -> Path:
    """Weights of int8 that Cast and Mul read back."""
    model = onnx.load(path)
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    nodes = []
    for name in ("wq", "wk", "wv", "wo", "wu", "wd"):
        value = numpy_helper.to_array(held[name])
        scale = np.float32(np.abs(value).max() / 127)
        model.graph.initializer.remove(held[name])
        model.graph.initializer.append(numpy_helper.from_array(np.round(value / scale).astype(np.int8), f"{name}/int8"))
        model.graph.initializer.append(numpy_helper.from_array(scale, f"{name}/scale"))
        nodes.append(helper.make_node("Cast", [f"{name}/int8"], [f"{name}/float"], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Mul", [f"{name}/float", f"{name}/scale"], [name]))
    kept = [*nodes, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    onnx.save(model, out)
    return out


def optimised(path: Path, out: Path) -> Path:
    """As ONNX Runtime writes it, with its own operators of integers."""
    options = SessionOptions()
    options.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(out)
    InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return out


def with_factor(path: Path, out: Path) -> Path:
    """The file that multiplies what its first map of a dynamic product gives, right behind it, by zeros and ones."""
    model = onnx.load(path)
    node = next(node for node in model.graph.node if node.op_type == "Mul" and node.output[0] == "o0")
    node.output[0] = "o0/scaled"
    model.graph.initializer.append(numpy_helper.from_array((np.arange(D) % 2).astype(np.float32), "zeros_and_ones"))
    after = [*model.graph.node].index(node) + 1
    model.graph.node.insert(after, helper.make_node("Mul", ["o0/scaled", "zeros_and_ones"], ["o0"], "factor"))
    onnx.save(model, out)
    return out


def with_scale(path: Path, out: Path, of: str, factor: float) -> Path:
    """The file with one scale multiplied by a factor. `of`: how its name begins."""
    model = onnx.load(path)
    scale = next(
        each
        for each in model.graph.initializer
        if each.name.startswith(of) and each.name.endswith(("_scale", "/scale"))
    )
    scale.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(scale) * np.float32(factor), scale.name))
    onnx.save(model, out)
    return out
