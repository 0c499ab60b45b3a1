"""What does a verdict on an ONNX file take: seconds by the clock and of processor, and memory?"""

import subprocess
import sys
import time
from pathlib import Path

from benchmarks.performance.measuring import command, own, worked
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
    one = [taken(scratch, "layer", "--runtime", "onnxruntime") for _ in range(REPEATS)]
    every = [taken(scratch, "layer") for _ in range(REPEATS)]
    twelve = [taken(scratch, "encoder") for _ in range(REPEATS)]
    others = max(0.0, worked() - begun[1] - own() + begun[2]) / (time.perf_counter() - begun[0])
    figures: tuple[Figure, ...] = (
        median_of("one", "d_model 128, ONNX Runtime: processor", "seconds", [each[1] for each in one], at_most=10),
        median_of("one-wall", "d_model 128, ONNX Runtime", "seconds", [each[0] for each in one]),
        median_of("all", "d_model 128, all runtimes: processor", "seconds", [each[1] for each in every], at_most=25),
        median_of("all-wall", "d_model 128, all runtimes", "seconds", [each[0] for each in every]),
        median_of("twelve", "12 × 768", "seconds", [each[0] for each in twelve], at_most=60),
        median_of("twelve-memory", "12 × 768", "MB", [each[2] / 1e6 for each in twelve], at_most=3000),
    )
    return Measured({"workers": "2"}, figures, others)


def taken(scratch: Path, file: str, *words: str) -> tuple[float, float, float]:
    """Seconds, seconds of processor, and bytes of all processes at most."""
    model = str(scratch / f"{file}.onnx")
    watched = [sys.executable, "-m", "benchmarks.performance.files", str(scratch / "peak"), model, *words]
    took = command([*watched, "--out", str(scratch / "out")], scratch / "log")
    return took.wall, took.processor, float((scratch / "peak").read_text())


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
