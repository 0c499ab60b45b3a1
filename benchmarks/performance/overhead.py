"""How much longer does `conform run` take than a script that makes the same adapter calls?"""

import pickle
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.performance.measuring import CORES, Took, command, in_turns, ratios
from benchmarks.performance.page import Figure, Measured, median_of
from encoder_conformance.platform.processors import blas_threads

QUESTION = (
    "How much longer does `conform run` take than a script that makes the very same adapter calls? The script is "
    "one process an implementation. It imports the adapter and asks it what the run asked, in the same order, "
    "with the same tensors, read from a file; it compares the answers with nothing. The harness draws the "
    "tensors, sends them to its workers, reads the answers, judges them and reports. Both are whole commands, "
    "imports of the framework included, with nothing left to compile or export. In two things a worker is cheaper than "
    "the script, which does what Python does by default: it looks for no cycles among the objects that the framework's "
    "import makes, and it is ended by the harness, where the script takes all of them down first."
)
SMALL = ("--case", "*-relu/*", "--case", "*-gelu/*")
FOUR = ("pytorch", "keras_tf", "jax_pure", "onnx_pytorch")
OF_FOUR = ("--case", "post-gelu/*", "--case", "pre-gelu/*")
TARGET = 1.15
REPEATS, REPEATS_OF_FOUR = 5, 3


class Contest:
    """One `conform run` with a choice of implementations and cases, and what stands in for it without the harness."""

    def __init__(self, impls: Sequence[str], cases: Sequence[str], folder: Path) -> None:
        folder.mkdir(parents=True)
        self.impls, self.folder, self.recorded = impls, folder, folder / "asked.pickle"
        named = [word for name in impls for word in ("--impl", name)]
        formats = ["--dtype", "float32", "--dtype", "float64", "--threads", "1"]
        self.words = ["run", *named, *cases, *formats, "--out", str(folder / "report")]
        # This fills the caches of compiled programs and exported models too: neither side compiles or exports later.
        module = "benchmarks.performance.recording"
        words = [sys.executable, "-m", module, str(self.recorded), *self.words, "--jobs", "1"]
        command(words, folder / "log")

    @property
    def settings(self) -> dict[str, str]:
        asked = pickle.loads(self.recorded.read_bytes())
        return {
            "implementations": ", ".join(self.impls),
            "requests": f"{sum(map(len, asked.values())):,}",
            "threads of each worker and script": "1",
        }

    def run(self, *options: str) -> Took:
        conform = [sys.executable, "-m", "encoder_conformance.commands.main", *self.words, *options]
        return command(conform, self.folder / "log")

    def bare(self) -> Took:
        """The scripts, as many side by side as a run has workers by default: one a core."""
        begun = time.perf_counter()
        with ThreadPoolExecutor(CORES) as pool:
            took = list(pool.map(self._bare_of, self.impls))
        return Took(time.perf_counter() - begun, sum(one.processor for one in took))

    def _bare_of(self, name: str) -> Took:
        words = [sys.executable, "-m", "benchmarks.performance.bare", str(self.recorded), name]
        return command(words, self.folder / f"log-{name}", **blas_threads(1))


def measure(scratch: Path) -> Measured:
    one = Contest(("pytorch",), SMALL, scratch)
    turns = in_turns({"run": one.run, "one worker": lambda: one.run("--jobs", "1"), "bare": one.bare}, REPEATS)
    run, one_worker, bare = (turns.taken[name] for name in ("run", "one worker", "bare"))
    figures = (
        _wall("one", "`conform run` as it is, two workers / script", run, bare, TARGET),
        _wall("one-worker", "`conform run --jobs 1` / script", one_worker, bare, TARGET),
        _processor("one-processor", "processor time, `conform run` as it is / script", run, bare),
        _processor("one-worker-processor", "processor time, `conform run --jobs 1` / script", one_worker, bare),
        _seconds("one-seconds", "`conform run` as it is", run),
        _seconds("one-worker-seconds", "`conform run --jobs 1`", one_worker),
        _seconds("bare-seconds", "script", bare),
    )
    return Measured(one.settings, figures, turns.others)


def measure_four(scratch: Path) -> Measured:
    four = Contest(FOUR, OF_FOUR, scratch)
    turns = in_turns({"run": four.run, "bare": four.bare}, REPEATS_OF_FOUR)
    run, bare = turns.taken["run"], turns.taken["bare"]
    figures = (
        _wall("four", "`conform run` / four scripts, two at a time", run, bare, None),
        _processor("four-processor", "processor time, `conform run` / scripts", run, bare),
        _seconds("four-seconds", "`conform run`", run),
        _seconds("four-bare-seconds", "scripts", bare),
    )
    return Measured(four.settings, figures, turns.others)


def _seconds(id: str, what: str, taken: list[Took]) -> Figure:
    return median_of(id, what, "seconds", [took.wall for took in taken])


def _wall(id: str, what: str, run: list[Took], bare: list[Took], target: float | None) -> Figure:
    return median_of(id, what, "ratio", ratios([t.wall for t in run], [t.wall for t in bare]), at_most=target)


def _processor(id: str, what: str, run: list[Took], bare: list[Took]) -> Figure:
    return median_of(id, what, "ratio", ratios([t.processor for t in run], [t.processor for t in bare]))
