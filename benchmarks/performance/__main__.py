"""`python -m benchmarks.performance`: every question measured anew, and docs/performance.md written.

python -m benchmarks.performance                      all of them: an hour and a half on two quiet cores
python -m benchmarks.performance --only overhead      one of them; the others stay as they are
python -m benchmarks.performance --page               the page alone, of the figures that are kept
"""

import argparse
import datetime
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.performance import checks, files, layer_times, load, memory, overhead, site, startup, verdicts
from benchmarks.performance.machine import machine, versions
from benchmarks.performance.measuring import ROOT
from benchmarks.performance.page import Answer, Kept, Measured, read, still_known, write
from encoder_conformance.platform.processors import processor

QUESTIONS: dict[str, tuple[str, Callable[[Path], Measured]]] = {
    "overhead": (overhead.QUESTION, overhead.measure),
    "overhead-of-four": (overhead.QUESTION, overhead.measure_four),
    "verdicts": (verdicts.QUESTION, verdicts.measure),
    "memory": (memory.QUESTION, memory.measure),
    "load": (load.QUESTION, load.measure),
    "files": (files.QUESTION, files.measure),
    "sources": (files.SOURCES, files.measure_sources),
    "checks": (checks.QUESTION, checks.measure),
    "site": (site.QUESTION, site.measure),
    "startup": (startup.QUESTION, startup.measure),
    **{name: (layer_times.QUESTION, measure) for name, measure in layer_times.MEASURES.items()},
}


def answer(name: str) -> Answer:
    question, measure = QUESTIONS[name]
    with tempfile.TemporaryDirectory() as scratch:
        found = measure(Path(scratch) / name)
    return Answer(
        question=question,
        processor=processor(),
        taken_on=datetime.datetime.now(datetime.UTC).date().isoformat(),
        commit=_commit(),
        others=found.others,
        settings=found.settings,
        figures=found.figures,
        notes=found.notes,
    )


def _commit() -> str:
    words = ["git", "describe", "--always", "--exclude", "*"]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=QUESTIONS, action="append", help="may be given more than once")
    parser.add_argument("--page", action="store_true", help="measure nothing")
    options = parser.parse_args()
    for name in () if options.page else options.only or QUESTIONS:
        sys.stderr.write(f"{name} …\n")
        keep(name, answer(name))
    if options.page and (kept := read()):
        write(kept)


def keep(name: str, found: Answer) -> None:
    """Put one answer in the place of the one before. What others have kept meanwhile stays."""
    kept = read()
    answers = {**(kept.answers if kept else {}), name: found}
    ordered = {name: answers[name] for name in QUESTIONS if name in answers}
    write(Kept(machine=machine(), versions=still_known(kept, versions()), answers=ordered))


if __name__ == "__main__":
    main()
