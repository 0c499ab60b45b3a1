"""What does a verdict on an ONNX file take: seconds by the clock and of processor, and memory?"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.performance.measuring import Took, command, in_turns
from benchmarks.performance.page import Figure, Measured, median_of

QUESTION = (
    "What does `conform validate` take? The files are PyTorch's own layers, exported by torch.export: one layer of "
    "d_model 128, in one runtime and in all that are here, and twelve of d_model 768 from token ids, of the shapes of "
    "BERT-base, which is sampled. Memory is that of all its processes together, at most."
)
SOURCES = (
    "What does `conform validate --against` take of a large file? It is that of files, twelve layers of d_model 768 "
    "from token ids, and its source is the module that it was exported from. The cache folder is empty. Memory is that "
    "of all processes together, at most."
)
REPEATS = 3
_EVERY = 0.25
"""Seconds between two looks at the memory."""


@dataclass(frozen=True)
class Validated(Took):
    """`most`: the bytes of all its processes at most; 0 where nobody looked."""

    most: float = 0.0


def measure(scratch: Path) -> Measured:
    scratch.mkdir(parents=True)
    for kind in ("layer", "encoder"):
        written = str(scratch / f"{kind}.onnx")
        command([sys.executable, "-m", "benchmarks.performance.deployed", kind, written], scratch / "log")
    turns = in_turns(
        {
            "one": partial(validated, scratch, "layer", "--runtime", "onnxruntime"),
            "all": partial(validated, scratch, "layer"),
            "twelve": partial(watched, scratch, "encoder"),
        },
        REPEATS,
    )
    one, every, twelve = (turns.taken[name] for name in ("one", "all", "twelve"))
    figures: tuple[Figure, ...] = (
        *_both("one", "d_model 128, ONNX Runtime", one, at_most=10),
        *_both("all", "d_model 128, all runtimes", every, at_most=25),
        median_of("twelve", "12 × 768", "seconds", [each.wall for each in twelve], at_most=60),
        median_of("twelve-memory", "12 × 768", "MB", [each.most / 1e6 for each in twelve], at_most=3000),
    )
    return Measured({"workers": "2"}, figures, turns.others)


def measure_sources(scratch: Path) -> Measured:
    scratch.mkdir(parents=True)
    command(
        [sys.executable, "-m", "benchmarks.performance.deployed", "encoder", str(scratch / "encoder.onnx")],
        scratch / "log",
    )
    source = f"{Path(__file__).with_name('deployed.py')}:encoder"
    turns = in_turns({"twelve": partial(watched, scratch, "encoder", "--against", source)}, REPEATS)
    twelve = turns.taken["twelve"]
    figures: tuple[Figure, ...] = (
        median_of("twelve", "12 × 768", "seconds", [each.wall for each in twelve], at_most=90),
        median_of("twelve-processor", "12 × 768: processor", "seconds", [each.processor for each in twelve]),
        median_of("twelve-memory", "12 × 768", "MB", [each.most / 1e6 for each in twelve], at_most=3000),
    )
    return Measured({"workers": "2"}, figures, turns.others)


def _both(id: str, what: str, taken: list[Validated], at_most: float) -> Iterator[Figure]:
    """Seconds of processor, which have a target, and by the clock."""
    processor, wall = [each.processor for each in taken], [each.wall for each in taken]
    yield median_of(id, f"{what}: processor", "seconds", processor, at_most=at_most)
    yield median_of(f"{id}-wall", what, "seconds", wall)


def validated(scratch: Path, file: str, *words: str) -> Validated:
    called = [sys.executable, "-m", "encoder_conformance.commands.main", *asked(scratch, file), *words]
    took = command(called, scratch / "log", **_nothing_kept(scratch))
    return Validated(took.wall, took.processor)


def watched(scratch: Path, file: str, *words: str) -> Validated:
    """Looking takes some processor time, too."""
    peak = scratch / "peak"
    called = [sys.executable, "-m", "benchmarks.performance.files", str(peak), *asked(scratch, file), *words]
    took = command(called, scratch / "log", **_nothing_kept(scratch))
    return Validated(took.wall, took.processor, float(peak.read_text()))


def _nothing_kept(scratch: Path) -> dict[str, str]:
    """The environment of a first verdict: an empty cache folder."""
    return {"XDG_CACHE_HOME": tempfile.mkdtemp(dir=scratch)}


def asked(scratch: Path, file: str) -> tuple[str, ...]:
    return "validate", str(scratch / f"{file}.onnx"), "--out", str(scratch / "out")


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
    process = subprocess.Popen([sys.executable, "-m", "encoder_conformance.commands.main", *words])
    peak.write_text(str(largest_of_all(process)))
    raise SystemExit(process.returncode)
