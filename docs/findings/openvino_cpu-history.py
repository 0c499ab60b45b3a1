"""OpenVINO alone: attention without a mask, asked one position first, answers longer sequences wrong ever after."""

import numpy as np
import openvino
from onnx import helper, numpy_helper, parser

H, d = 4, 8
draw = np.random.default_rng(0)
graph = parser.parse_graph("""attention (float[batch, sequence, 32] x) => (float[batch, sequence, 32] y) {
    q = MatMul(x, Wq)  k = MatMul(x, Wk)  v = MatMul(x, Wv)
    qs = Reshape(q, split)  ks = Reshape(k, split)  vs = Reshape(v, split)
    qh = Transpose<perm=[0,2,1,3]>(qs)  kh = Transpose<perm=[0,2,3,1]>(ks)  vh = Transpose<perm=[0,2,1,3]>(vs)
    raw = MatMul(qh, kh)  s = Mul(raw, scale)  w = Softmax<axis=-1>(s)  c = MatMul(w, vh)
    t = Transpose<perm=[0,2,1,3]>(c)  y = Reshape(t, join)
}""")
for name, value in {
    **{name: draw.normal(size=(32, 32), scale=0.3).astype(np.float32) for name in ("Wq", "Wk", "Wv")},
    "split": np.array([0, 0, H, d]), "join": np.array([0, 0, H * d]), "scale": np.float32(d**-0.5),
}.items():  # fmt: skip
    graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10).SerializeToString()


def compiled():
    core = openvino.Core()
    return core.compile_model(core.read_model(model), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})


def answer(runner, sequence):
    x = np.random.default_rng(sequence).normal(size=(2, sequence, 32)).astype(np.float32)
    return np.array(runner({"x": x})[0])


print(f"OpenVINO {openvino.__version__}")
for sequence in (2, 4, 6, 7, 8, 9, 12, 16, 20, 33):
    fresh, again = answer(compiled(), sequence), compiled()
    answer(again, 1)
    after = answer(again, sequence)
    print(f"sequence {sequence}: largest difference after one position {np.abs(fresh - after).max():.3g}")
