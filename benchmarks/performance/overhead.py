"""How much longer does `conform run` take than a script that makes the same adapter calls?"""

import pickle
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.performance.measuring import CORES, Took, command, in_turns, ratio
from benchmarks.performance.page import Figure

QUESTION = (
    "How much longer does `conform run` take than a script that makes the very same adapter calls? The script is one "
    "process an implementation, imports the adapter and asks it what the run asked, in the same order, with the same tensors. "
    "It reads these from a file, and compares the answers with nothing; the harness draws them, sends them to a worker, "
    "reads the answers, judges and reports. Whole commands, imports of the framework included."
)
SMALL = ("--case", "*-relu/*", "--case", "*-gelu/*", "--dtype", "float32", "--dtype", "float64")
FOUR = ("pytorch", "keras_tf", "jax_pure", "onnx_pytorch")
FOUR_CASES = ("--case", "post-gelu/*", "--case", "pre-relu/*", "--dtype", "float32", "--dtype", "float64")
TARGET = 1.15


class Contest:
    """One `conform run` with a choice of implementations and cases, and what stands in for it without the harness."""

    def __init__(self, impls: Sequence[str], cases: Sequence[str], folder: Path) -> None:
        self.impls, self.folder, self.recorded = impls, folder, folder / "asked.pickle"
        named = [word for name in impls for word in ("--impl", name)]
        self.words = ["run", "--level", "optional", *named, *cases, "--out", str(folder / "report")]
        folder.mkdir(parents=True)
        # Fills the caches of compiled programs and exported models too, so that neither side compiles or exports.
        module = "benchmarks.performance.recording"
        command([sys.executable, "-m", module, str(self.recorded), *self.words, "--jobs", "1"], folder / "log")
        self.requests = sum(map(len, pickle.loads(self.recorded.read_bytes()).values()))

    def run(self, *options: str) -> Took:
        conform = [sys.executable, "-m", "harness.cli.main", *self.words, *options]
        return command(conform, self.folder / "log", **_THREADS)

    def bare(self) -> list[Took]:
        """As many scripts side by side as there are workers in a run by default: one a core."""
        with ThreadPoolExecutor(CORES) as pool:
            return list(pool.map(self._bare_of, self.impls))

    def _bare_of(self, name: str) -> Took:
        words = [sys.executable, "-m", "benchmarks.performance.bare", str(self.recorded), name]
        return command(words, self.folder / f"log-{name}", **_THREADS)


_THREADS: Mapping[str, str] = {"PYTHONUNBUFFERED": ""}


def measure(scratch: Path, repeats: int) -> tuple[dict[str, str], list[Figure], list[str]]:
    raise NotImplementedError
