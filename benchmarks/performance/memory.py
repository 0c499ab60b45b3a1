"""How much memory does the parent hold, however many checks it judges?"""

import json
import shutil
import sys
from pathlib import Path

from benchmarks.performance.measuring import ROOT, command
from benchmarks.performance.page import Figure, Measured, median_of

QUESTION = (
    "How much memory does `conform run`'s own process hold at most, its workers not counted? The thousands are "
    "PyTorch's, on all cases in every dtype; ten thousand are four copies of its adapter, each an implementation "
    "of its own."
)
COPIES = 4
HUNDRED = ("--case", "post-gelu/*", "--case", "post-relu/padding-*", "--dtype", "float32")
THOUSAND = ("--case", "*-relu/*", "--case", "*-gelu/*", "--dtype", "float32", "--dtype", "float64")
EVERYTHING = ("--level", "optional")
TARGET = 200.0


def measure(scratch: Path) -> Measured:
    scratch.mkdir(parents=True)
    copies = tuple(copied(number, scratch) for number in range(1, COPIES + 1))
    runs = (
        ("hundred", ("pytorch",), HUNDRED, 3),
        ("thousand", ("pytorch",), THOUSAND, 3),
        ("thousands", ("pytorch",), EVERYTHING, 1),
        ("ten-thousand", copies, EVERYTHING, 1),
    )
    return Measured({"workers": "2"}, tuple(figure(scratch, *run) for run in runs), None)


def figure(scratch: Path, id: str, impls: tuple[str, ...], cases: tuple[str, ...], repeats: int) -> Figure:
    taken, checks = [], 0
    for _ in range(repeats):
        checks, peak = held(scratch, impls, cases)
        taken.append(peak / 1e6)
    return median_of(id, f"{checks:,} checks", "MB", taken, at_most=TARGET)


def held(scratch: Path, impls: tuple[str, ...], cases: tuple[str, ...]) -> tuple[int, int]:
    """How many checks were judged, and the largest memory of the process that judged them."""
    named = [word for name in impls for word in ("--impl", name)]
    words = ["run", *named, *cases, "--out", str(scratch / "report")]
    said = scratch / "peak"
    command([sys.executable, "-m", "benchmarks.performance.peak", str(said), *words], scratch / "log")
    records = json.loads((scratch / "report" / "report.json").read_bytes())["records"]
    return sum(record["outcome"] == "pass" for record in records), int(said.read_text())


def copied(number: int, scratch: Path) -> str:
    """One more implementation that is PyTorch's, under a name of its own."""
    name = f"pytorch_{number}"
    folder = scratch / name
    shutil.copytree(ROOT / "impls" / "pytorch", folder, ignore=shutil.ignore_patterns("__pycache__"))
    manifest = folder / "impl.yaml"
    manifest.write_text(
        manifest.read_text(encoding="utf-8").replace("name: pytorch", f"name: {name}"), encoding="utf-8"
    )
    return str(folder)
