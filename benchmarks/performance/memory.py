"""How much memory does the parent hold, however many checks it judges?"""

from pathlib import Path

from benchmarks.performance import load
from benchmarks.performance.measuring import ROOT
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
    copies = load.copies(ROOT / "impls" / "pytorch", COPIES, scratch)
    runs = (
        ("hundred", ("pytorch",), HUNDRED, 3),
        ("thousand", ("pytorch",), THOUSAND, 3),
        ("thousands", ("pytorch",), EVERYTHING, 1),
        ("ten-thousand", copies, EVERYTHING, 1),
    )
    return Measured({"workers": "2"}, tuple(figure(scratch, *run) for run in runs), None)


def figure(scratch: Path, id: str, impls: tuple[str, ...], cases: tuple[str, ...], repeats: int) -> Figure:
    runs = [load.run(impls, cases, scratch) for _ in range(repeats)]
    return median_of(id, f"{runs[0].records:,} checks", "MB", [run.peak / 1e6 for run in runs], at_most=TARGET)
