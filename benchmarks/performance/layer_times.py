"""How long do our own layers take beside the best that their framework offers?"""

import json
import sys
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.performance.layers.contest import ALONE, BATCH, LAYER, OURS, THREADS, Taken
from benchmarks.performance.measuring import command, ratios
from benchmarks.performance.page import Figure, Measured, median_of

QUESTION = (
    "How long does one of our own layers take, beside the best that its framework offers? Every contender of a "
    "row has the same parameters and input, and their outputs are compared before any is timed. No mask, no "
    "dropout; backward gives the gradients by x and by every parameter. The ratio takes the fastest of ours and "
    "the fastest of theirs, each by its median."
)
FRAMEWORKS = {"pytorch": "PyTorch", "keras": "Keras on TensorFlow", "jax": "JAX", "onnx": "ONNX"}
TARGET = 1.05
SLOW, FAST = "nn.TransformerEncoderLayer, slow path", "nn.TransformerEncoderLayer, fast path"
WITHIN = {
    "pytorch": {"eager": (SLOW, FAST, "ours, eager")},
    "onnx": {
        "in ONNX Runtime": (
            "ours, ONNX Runtime, level all",
            "ours fused by onnxruntime.transformers",
            "nn.TransformerEncoderLayer exported without a mask",
            "the same fused by onnxruntime.transformers",
            "the operator Attention (onnx_attention)",
        )
    },
}
"""Framework → a part of its contenders that is worth a ratio of its own, and has no target."""


def measure(framework: str, scratch: Path) -> Measured:
    scratch.mkdir(parents=True)
    command([sys.executable, "-m", f"benchmarks.performance.layers.{framework}"], scratch / "log")
    said = json.loads((scratch / "log").read_text().splitlines()[-1])
    figures = [figure for row, taken in said["rows"].items() for figure in of_row(framework, row, taken)]
    settings = {"layer": f"`{LAYER}`", "B": str(BATCH), "dtype": "float32", "threads": str(THREADS)}
    return Measured(settings, tuple(figures), said["others"])


def of_row(framework: str, row: str, taken: Taken) -> list[Figure]:
    parts = [
        against(f"{row}, {part}", {name: taken[name] for name in names if name in taken}, None)
        for part, names in WITHIN.get(framework, {}).items()
    ]
    each = [
        median_of(f"{row}: {name}", f"{row}: {name}", "milliseconds", [1000 * seconds for seconds in found])
        for name, found in taken.items()
    ]
    return [against(row, taken, TARGET), *parts, *each]


def against(row: str, taken: Taken, target: float | None) -> Figure:
    """The fastest of ours to the fastest of theirs."""
    ours = [name for name in taken if name.startswith(OURS)]
    theirs = [name for name in taken if not name.startswith((OURS, ALONE))]
    best, other = (min(names, key=lambda name: median(taken[name])) for names in (ours, theirs))
    return median_of(row, f"**{row}: {best} / {other}**", "ratio", ratios(taken[best], taken[other]), at_most=target)


MEASURES = {f"layers-{name}": partial(measure, name) for name in FRAMEWORKS}
