"""How long do our own layers take beside the best that their framework offers?"""

import json
import sys
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.performance.layers.contest import BATCH, LAYER, OURS, THREADS, Rows
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


def measure(framework: str, scratch: Path) -> Measured:
    scratch.mkdir(parents=True)
    command([sys.executable, "-m", f"benchmarks.performance.layers.{framework}"], scratch / "log")
    rows: Rows = json.loads((scratch / "log").read_text().splitlines()[-1])
    figures = [figure for row, taken in rows.items() for figure in of_row(row, taken)]
    settings = {"layer": f"`{LAYER}`", "B": str(BATCH), "dtype": "float32", "threads": str(THREADS)}
    return Measured(settings, tuple(figures))


def of_row(row: str, taken: dict[str, list[float]]) -> list[Figure]:
    ours = [name for name in taken if name.startswith(OURS)]
    best, other = (min(names, key=lambda name: median(taken[name])) for names in (ours, taken.keys() - set(ours)))
    against = ratios(taken[best], taken[other])
    said = f"**{row}: {best} / {other}**"
    each = [
        median_of(f"{row}: {name}", f"{row}: {name}", "milliseconds", [1000 * seconds for seconds in found])
        for name, found in taken.items()
    ]
    return [median_of(row, said, "ratio", against, at_most=TARGET), *each]


MEASURES = {f"layers-{name}": partial(measure, name) for name in FRAMEWORKS}
