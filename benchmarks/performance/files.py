"""What does a verdict on an ONNX file take: seconds by the clock and of processor, and memory?"""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.performance.measuring import Took, command, own, worked
from benchmarks.performance.page import Figure, Measured, median_of

QUESTION = (
    "What does `conform validate` take? The files are PyTorch's own layers, exported by torch.export: one layer of "
    "d_model 128, in one runtime and in all that are here, and twelve of d_model 768 from token ids, of the shapes of "
    "BERT-base, which is sampled. Memory is that of all its processes together, at most."
)
REPEATS = 3
_EVERY = 0.25
"""Seconds between two looks at the memory."""


def measure(scratch: Path) -> Measured:
    scratch.mkdir(parents=True)
    for kind in ("layer", "encoder"):
        written = str(scratch / f"{kind}.onnx")
        command([sys.executable, "-m", "benchmarks.performance.deployed", kind, written], scratch / "log")
    begun = time.perf_counter(), worked(), own()
    one = [took(scratch, "layer", "--runtime", "onnxruntime") for _ in range(REPEATS)]
    every = [took(scratch, "layer") for _ in range(REPEATS)]
    twelve = [watched(scratch, "encoder") for _ in range(REPEATS)]
    others = max(0.0, worked() - begun[1] - own() + begun[2]) / (time.perf_counter() - begun[0])
    figures: tuple[Figure, ...] = (
        median_of(
            "one", "d_model 128, ONNX Runtime: processor", "seconds", [each.processor for each in one], at_most=10
        ),
        median_of("one-wall", "d_model 128, ONNX Runtime", "seconds", [each.wall for each in one]),
        median_of(
            "all", "d_model 128, all runtimes: processor", "seconds", [each.processor for each in every], at_most=25
        ),
        median_of("all-wall", "d_model 128, all runtimes", "seconds", [each.wall for each in every]),
        median_of("twelve", "12 × 768", "seconds", [each.wall for each, _ in twelve], at_most=60),
        median_of("twelve-memory", "12 × 768", "MB", [most / 1e6 for _, most in twelve], at_most=3000),
    )
    return Measured({"workers": "2"}, figures, others)


def _both(id: str, what: str, taken: list[Took], at_most: float) -> Iterator[Figure]:
    """Seconds of processor, which have a target, and by the clock."""
    processor, wall = [each.processor for each in taken], [each.wall for each in taken]
    yield median_of(id, f"{what}: processor", "seconds", processor, at_most=at_most)
    yield median_of(f"{id}-wall", what, "seconds", wall)


def took(scratch: Path, file: str, *words: str) -> Took:
    validate = [sys.executable, "-m", "encoder_conformance.cli.main", "validate", str(scratch / f"{file}.onnx"), *words]
    return command([*validate, "--out", str(scratch / "out")], scratch / "log")


def watched(scratch: Path, file: str) -> tuple[Took, float]:
    """The same, and the bytes of all its processes at most."""
    words = [str(scratch / "peak"), str(scratch / f"{file}.onnx"), "--out", str(scratch / "out")]
    found = command([sys.executable, "-m", "benchmarks.performance.files", *words], scratch / "log")
    return found, float((scratch / "peak").read_text())


def largest_of_all(process: subprocess.Popen[bytes]) -> int:
    """Bytes that the process and all below it held at most, until it ends."""
    most = 0
    while process.poll() is None:
        most = max(most, sum(map(_resident, _and_below(process.pid))))
        time.sleep(_EVERY)
    return most


def _and_below(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(folder.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def _resident(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * next((int(line.split()[1]) for line in lines if line.startswith("VmRSS:")), 0)


if __name__ == "__main__":
    peak, words = Path(sys.argv[1]), sys.argv[2:]
    process = subprocess.Popen([sys.executable, "-m", "encoder_conformance.cli.main", "validate", *words])
    peak.write_text(str(largest_of_all(process)))
    raise SystemExit(process.returncode)
