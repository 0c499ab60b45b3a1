"""Faults planted in modules before others' exporters and tools make files of them, in float32, float16 and integers."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.onnx_files import exporters
from benchmarks.onnx_files.modules import layer
from benchmarks.onnx_files.tools import TOOLS

FORMATS = {"float32": None, "float16": "half-inside", "int8": "int8"}
"""Format → the tool that makes it."""
NAMES: dict[str, tuple[str, ...]] = {
    "key-of-the-query": ("key.weight",),
    "value-of-the-key": ("value.weight",),
    "heads-interleaved": ("another order", "heads"),
    "scale-of-d-model": ("attention.scale", "d_model"),
    "scale-missing": ("scale",),
    "scale-off-by-2-percent": ("attention_scores", "query"),
    "relu-for-gelu": ("activation",),
    "gelu-by-tanh": ("activation",),
    "quick-gelu": ("activation",),
    "silu-for-gelu": ("activation",),
    "gelu-off-by-2-percent": ("activation",),
    "epsilon": ("epsilon",),
    "placement": ("placement",),
    "residual-twice": ("residual",),
    "mask-after-the-softmax": ("mask",),
    "mask-turned-round": ("mask",),
    "mask-too-weak": ("mask",),
    "mask-ignored": ("mask",),
    "causal": ("causal",),
    "softmax-over-queries": ("attention_weights", "softmax", "summed over the queries"),
    "query-and-key-exchanged": ("query.weight", "key.weight"),
    "gains-exchanged": ("norm1.gain", "norm2.gain"),
    "output-transposed": ("output.weight",),
    "value-transposed": ("value.weight",),
    "columns-in-another-order": ("query.weight",),
    "weight-off-by-3-percent": ("feed_forward.hidden.weight",),
    "bias-lost": ("value.bias",),
    "one-weight-wrong": ("feed_forward.output.weight",),
    "one-weight-is-NaN": ("NaN",),
}
"""Fault → what names it: one of these in an error, or in a diagnosis."""
POST_ONLY = ("residual-twice",)
REFUSED = {("one-weight-is-NaN", "int8")}
"""What the tool makes no file of."""


@dataclass(frozen=True)
class Planted:
    fault: str
    format: str
    placement: str
    exporter: str

    @property
    def name(self) -> str:
        return f"{self.fault}, {self.format}"

    def right(self, folder: Path) -> Path:
        """The file without the fault, in float32: what `--against` names."""
        return self._written(folder, "")

    def make(self, folder: Path) -> Path:
        tool = FORMATS[self.format]
        if tool is None:
            return self._written(folder, self.fault)
        (folder / "wide").mkdir()
        TOOLS[tool][1](self._written(folder / "wide", self.fault), folder / "model.onnx")
        return folder / "model.onnx"

    def _written(self, folder: Path, fault: str) -> Path:
        write = exporters.torchscript if self.exporter == "traced" else exporters.dynamo
        return write(layer(self.placement, "gelu", fault), folder / "model.onnx")


def planted() -> Iterator[Planted]:
    for number, fault in enumerate(NAMES):
        for format in FORMATS:
            if (fault, format) in REFUSED:
                continue
            pre = number % 2 and fault not in POST_ONLY
            yield Planted(fault, format, "pre" if pre else "post", "exported" if number % 4 == 3 else "traced")
