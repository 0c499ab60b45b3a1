"""What does a run of many implementations cost its parent process: a check, and a record?"""

import json
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.performance.measuring import ROOT, command
from benchmarks.performance.page import Figure, Measured, median_of

QUESTION = (
    "What does a run of many implementations cost `conform run`'s own process, its workers not counted? Twenty copies "
    "of the NumPy layer in tests/fakes, each an implementation of its own, answer every required check in float32: no "
    "framework takes a processor from the process that is measured. Records are counted by themselves: copies that "
    "show attention weights and declare everything else unsupported have as many records, and few take a request."
)
CHECKS = ("--level", "required", "--dtype", "float32")
RECORDS = ("--level", "optional")
IMPLEMENTATIONS, COPIES = 20, (4, 12, 36)
MILLISECONDS, MEGABYTES, LINEAR = 3.0, 200.0, 1.1


@dataclass(frozen=True)
class Held:
    """What a run's own process came to: its records, its largest memory in bytes and its seconds of processor."""

    records: int
    peak: int
    processor: float

    @property
    def milliseconds(self) -> float:
        return 1000 * self.processor / self.records


def measure(scratch: Path) -> Measured:
    scratch.mkdir(parents=True)
    fake = ROOT / "tests" / "fakes" / "honest"
    twenty = run(copies(fake, IMPLEMENTATIONS, scratch), CHECKS, scratch)
    weights = {"checks": "[weights]", "timeouts": "{start: 60, build: 60, run: 60}"}
    few, some, many = (run(copies(fake, count, scratch, **weights), RECORDS, scratch) for count in COPIES)
    checks = f"{IMPLEMENTATIONS} implementations, {twenty.records:,} checks"
    figures = (
        _one("checks-memory", checks, "MB", twenty.peak / 1e6, MEGABYTES),
        _one("checks-processor", f"{checks}: processor time of one", "milliseconds", twenty.milliseconds, MILLISECONDS),
        *(_one(f"records-{each.records}", f"{each.records:,} records: processor time of one", "milliseconds",
               each.milliseconds, None) for each in (few, some, many)),
        _one("records-linear", f"a record of {many.records:,} / of {few.records:,}", "ratio",
             many.milliseconds / few.milliseconds, LINEAR),
        _one("records-memory", f"{many.records:,} records", "MB", many.peak / 1e6, MEGABYTES),
    )  # fmt: skip
    return Measured({"workers": "2"}, figures, None)


def _one(id: str, what: str, kind: str, value: float, at_most: float | None) -> Figure:
    return median_of(id, what, kind, [value], at_most=at_most)  # type: ignore[arg-type]


def run(impls: tuple[str, ...], cases: tuple[str, ...], scratch: Path) -> Held:
    named = [word for name in impls for word in ("--impl", name)]
    out, said = scratch / "report", scratch / "peak"
    words = ["run", *named, *cases, "--out", str(out)]
    command([sys.executable, "-m", "benchmarks.performance.peak", str(said), *words], scratch / "log")
    with (out / "records.jsonl").open("rb") as lines:
        records = sum(1 for _ in lines)
    measured = json.loads(said.read_text())
    return Held(records, measured["bytes"], measured["processor"])


def copies(folder: Path, count: int, scratch: Path, **manifest: str) -> tuple[str, ...]:
    """The paths of so many more implementations that are this one's, under names of their own. `manifest`: lines of
    impl.yaml that they have instead, by key."""
    made = []
    for number in range(1, count + 1):
        name = f"{folder.name}_{number}"
        copy = scratch / name
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("__pycache__", "*.log"), dirs_exist_ok=True)
        text = (copy / "impl.yaml").read_text(encoding="utf-8")
        for key, value in {"name": name, **manifest}.items():
            text, found = re.subn(rf"(?m)^(\s*){key}: .*$", rf"\g<1>{key}: {value}", text)
            assert found == 1, key
        (copy / "impl.yaml").write_text(text, encoding="utf-8")
        made.append(str(copy))
    return tuple(made)
