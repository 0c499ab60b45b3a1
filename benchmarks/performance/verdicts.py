"""How many checks are judged a second, warm, and how many tests do ONNX's own backend tests run?"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.performance.measuring import Took, command, in_turns, ratios
from benchmarks.performance.page import Measured, median_of

QUESTION = (
    "How many checks are judged a second? The implementation is PyTorch, which neither compiles nor exports, on "
    "the small layers in float32 and float64: outputs, stages, weights, gradients, refusals, invariants and "
    "initialisation. Warm is what more checks cost: those of the long run less those of a short one, by the "
    "seconds of the long run less those of the short one. Beside it ONNX's own backend node tests run with ONNX "
    "Runtime, in one process; warm is without imports and collecting."
)
LONG = ("--case", "*-relu/*", "--case", "*-gelu/*", "--dtype", "float32", "--dtype", "float64")
SHORT = ("--case", "post-gelu/no-mask", "--dtype", "float32")
REPEATS = 5
TARGET = 200.0


@dataclass(frozen=True)
class Rate:
    """Verdicts, in the seconds of the whole command and in those of the verdicts alone."""

    verdicts: int
    whole: float
    warm: float


class Conform:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def judged(self, cases: tuple[str, ...]) -> tuple[int, Took]:
        words = ["run", "--impl", "pytorch", *cases, "--out", str(self.folder / "report")]
        took = command([sys.executable, "-m", "encoder_conformance.commands.main", *words], self.folder / "log")
        records = json.loads((self.folder / "report" / "report.json").read_bytes())["records"]
        return sum(record["outcome"] == "pass" for record in records), took

    def rate(self) -> Rate:
        few, short = self.judged(SHORT)
        many, long = self.judged(LONG)
        share = (many - few) / many
        return Rate(many, long.wall, (long.wall - short.wall) / share)


def node_tests(folder: Path) -> Rate:
    found = folder / "node_tests.json"
    took = command([sys.executable, "-m", "benchmarks.performance.onnx_tests", str(found)], folder / "log-onnx")
    said = json.loads(found.read_text())
    return Rate(said["judged"], took.wall, said["seconds"])


def measure(scratch: Path) -> Measured:
    scratch.mkdir(parents=True)
    conform = Conform(scratch)
    conform.judged(SHORT)  # what is read for the first time is read slowly
    turns = in_turns({"conform": conform.rate, "onnx": lambda: node_tests(scratch)}, REPEATS)
    ours, theirs = turns.taken["conform"], turns.taken["onnx"]
    warm = [rate.verdicts / rate.warm for rate in ours], [rate.verdicts / rate.warm for rate in theirs]
    whole = [rate.verdicts / rate.whole for rate in ours], [rate.verdicts / rate.whole for rate in theirs]
    settings = {"checks": str(ours[0].verdicts), "ONNX's node tests": str(theirs[0].verdicts)}
    figures = (
        median_of("warm", "checks judged, warm", "a second", warm[0], at_least=TARGET),
        median_of("whole", "checks judged, of the whole command", "a second", whole[0]),
        median_of("onnx-warm", "ONNX's node tests, warm", "a second", warm[1]),
        median_of("onnx-whole", "ONNX's node tests, of the whole command", "a second", whole[1]),
        median_of("against-onnx", "checks / ONNX's node tests, warm", "ratio", ratios(*warm)),
        median_of("against-onnx-whole", "checks / ONNX's node tests, of the whole command", "ratio", ratios(*whole)),
    )
    return Measured(settings, figures, turns.others)
