"""What others' tools make of a file: smaller, fused, halved, quantised, of another opset."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

Tool = Callable[[Path, Path], None]


def onnxslims(path: Path, new: Path) -> None:
    import onnxslim

    onnxslim.slim(str(path), str(new))


def onnxsims(path: Path, new: Path) -> None:
    import onnxsim

    made, _ = onnxsim.simplify(onnx.load(path))
    onnx.save(made, new)


def ort_level(level: str) -> Tool:
    """As a session with `optimized_model_filepath` writes it."""

    def convert(path: Path, new: Path) -> None:
        options = ort.SessionOptions()
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, f"ORT_ENABLE_{level.upper()}")
        options.optimized_model_filepath = str(new)
        options.log_severity_level = 4
        ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    return convert


def ort_transformers(path: Path, new: Path) -> None:
    from onnxruntime.transformers import optimizer

    found = optimizer.optimize_model(str(path), model_type="bert", num_heads=4, hidden_size=32, opt_level=0)
    found.save_model_to_file(str(new))


def ort_float16(keep: bool) -> Tool:
    def convert(path: Path, new: Path) -> None:
        from onnxruntime.transformers.float16 import convert_float_to_float16

        onnx.save(convert_float_to_float16(onnx.load(path), keep_io_types=keep), new)

    return convert


def common_float16(keep: bool) -> Tool:
    def convert(path: Path, new: Path) -> None:
        from onnxconverter_common import float16

        onnx.save(float16.convert_float_to_float16(onnx.load(path), keep_io_types=keep), new)

    return convert


def dynamic_int8(**options: Any) -> Tool:
    def convert(path: Path, new: Path) -> None:
        from onnxruntime.quantization import QuantType, quantize_dynamic

        more = {"DefaultTensorType": 1}
        quantize_dynamic(path, new, weight_type=QuantType.QInt8, reduce_range=True, extra_options=more, **options)

    return convert


def static_int8(path: Path, new: Path) -> None:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    class Ordinary(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.given: Iterator[dict[str, Any]] = iter([_ordinary(path) for _ in range(4)])

        def get_next(self) -> Any:
            return next(self.given, None)

    quantize_static(path, new, Ordinary(), quant_format=QuantFormat.QDQ, op_types_to_quantize=["MatMul"])


def _ordinary(path: Path) -> dict[str, Any]:
    draw, kinds = np.random.default_rng(0), {"tensor(float)": np.float32, "tensor(bool)": np.bool_}
    found = {}
    for each in ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).get_inputs():
        sizes = [size if isinstance(size, int) else (4, 9)[at] for at, size in enumerate(each.shape)]
        whole = draw.integers(1, 2 if "mask" in each.name else 60, sizes)
        found[each.name] = (
            draw.normal(size=sizes).astype(np.float32)
            if each.type == "tensor(float)"
            else whole.astype(kinds.get(each.type, np.int64))
        )
    return found


def int4(path: Path, new: Path) -> None:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantiser = MatMulNBitsQuantizer(onnx.load(path), block_size=16, is_symmetric=True)
    quantiser.process()
    quantiser.model.save_model_to_file(str(new))


def opset(version: int) -> Tool:
    def convert(path: Path, new: Path) -> None:
        onnx.save(onnx.version_converter.convert_version(onnx.load(path), version), new)

    return convert


def onnxscript_optimizer(path: Path, new: Path) -> None:
    import onnxscript.optimizer

    onnx.save(onnxscript.optimizer.optimize(onnx.load(path)), new)


TOOLS: dict[str, tuple[str, Tool]] = {
    "slim": ("onnxslim", onnxslims),
    "simplified": ("onnxsim", onnxsims),
    "basic": ("onnxruntime, basic", ort_level("basic")),
    "extended": ("onnxruntime, extended", ort_level("extended")),
    "all": ("onnxruntime, all", ort_level("all")),
    "fused": ("onnxruntime.transformers", ort_transformers),
    "half": ("onnxruntime float16", ort_float16(False)),
    "half-inside": ("onnxruntime float16, keep_io_types", ort_float16(True)),
    "half-common": ("onnxconverter-common float16", common_float16(False)),
    "half-inside-common": ("onnxconverter-common float16, keep_io_types", common_float16(True)),
    "int8": ("onnxruntime quantize_dynamic", dynamic_int8()),
    "int8-by-column": ("onnxruntime quantize_dynamic, per_channel", dynamic_int8(per_channel=True)),
    "int8-static": ("onnxruntime quantize_static, QDQ", static_int8),
    "int4": ("onnxruntime MatMulNBits", int4),
    "opset-21": ("onnx.version_converter", opset(21)),
    "folded": ("onnxscript.optimizer", onnxscript_optimizer),
}
"""Name → the tool in words, and what it does."""
