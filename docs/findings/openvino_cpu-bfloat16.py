"""OpenVINO computes a float32 model in bfloat16 where the processor has it, unless it is told not to."""

import numpy as np
import onnx
import openvino

model = onnx.parser.parse_model(
    """<ir_version: 9, opset_import: ["" : 18]>
    product (float[64, 64] a, float[64, 64] b) => (float[64, 64] y) { y = MatMul(a, b) }"""
)
core = openvino.Core()
print("its own precision on this CPU:", core.get_property("CPU", "INFERENCE_PRECISION_HINT"))
a, b = np.random.default_rng(0).standard_normal((2, 64, 64)).astype(np.float32)
right = a.astype(np.float64) @ b
for told in ({}, {"INFERENCE_PRECISION_HINT": "f32"}):
    compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", told)
    error = np.abs(compiled({"a": a, "b": b})[0] - right).max()
    print(f"{told or 'as it comes'}: error {error:.1e}")
