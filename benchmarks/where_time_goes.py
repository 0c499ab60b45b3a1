"""Where the time of a run goes: the float32 matrix, one implementation after another, each of its shares.

    python -m benchmarks.where_time_goes
    python -m benchmarks.where_time_goes --impl jax_pure --impl pytorch --case 'pre-gelu/*' --threads 1

Prints the seconds before any worker starts (the specification and the goldens read), then a row for each
implementation: those of its start, which is the framework's import; of its builds; of each check; and the parent's
own, which draws inputs and judges. Builds and checks are from the question to the answer, there and back over the
wire; in brackets, how many. The share beside each is of that implementation's whole. Seconds are this machine's and
this moment's: compare shares, and rows of one run. JAX finds the programs of earlier runs in its compilation cache;
JAX_ENABLE_COMPILATION_CACHE=false makes it compile them all.
"""

import argparse
import os
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any
from unittest import mock

from encoder_conformance.implementation.interpreter import Ready, resolve
from encoder_conformance.implementation.manifest import find_implementation, known_folders
from encoder_conformance.judging.asking import judged, put
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.protocol.frames import Frame
from encoder_conformance.protocol.messages import Request, Run
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.load import constants, load
from encoder_conformance.subjects.plan import plan, select
from encoder_conformance.worker.process import WorkerProcess
from encoder_conformance.worker.session import Session
from tools.pages.tables import markdown

COLUMNS = ("start", "build", "output", "stages", "gradients", "stop")
OTHERS = "other checks"
PARENT = "parent"


class Stopwatch:
    """Takes the place of `WorkerProcess.ask`: what was asked → how long each answer took."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)

    def watching(self) -> "mock._patch[object]":
        ask_worker = WorkerProcess.ask

        def timed(worker: WorkerProcess, request: Request, *others: Any, **named: Any) -> Frame:
            name = request.check if isinstance(request, Run) else request.op
            begun = time.perf_counter()
            try:
                return ask_worker(worker, request, *others, **named)
            finally:
                self.seconds[name if name in COLUMNS else OTHERS].append(time.perf_counter() - begun)

        return mock.patch.object(WorkerProcess, "ask", timed)


def taken_by(ready: Ready, cases: list[Case], expected: dict[str, Expected], threads: int) -> dict[str, list[float]]:
    """Take one implementation through every check, as `conform run` does. Its parts, and the parent's own."""
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder, watch.watching():
        session = Session(ready, "cpu", threads, Path(folder) / "log")
        begun = time.perf_counter()
        for task in plan(ready.implementation, cases, ("float32",)):
            judged(put(session, task, lambda case: expected[case.id]))
        session.close()
        whole = time.perf_counter() - begun
    return {**watch.seconds, PARENT: [whole - sum(map(sum, watch.seconds.values()))]}


def cell(seconds: list[float], whole: float) -> str:
    if not seconds:
        return ""
    count = f" ({len(seconds)})" if len(seconds) > 1 else ""
    return f"{sum(seconds):.1f} s, {sum(seconds) / whole:.0%}{count}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--impl", action="append", help="instead of all four; may be given more than once")
    parser.add_argument("--case", action="append", default=[], help="a glob; may be given more than once")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of each worker's framework")
    options = parser.parse_args()
    begun = time.perf_counter()
    cases = select(load().cases, tuple(options.case), None)
    manifest = read_golden_manifest()
    expected = {case.id: read_golden(case, manifest, constants()) for case in cases}
    print(f"specification and goldens of {len(cases)} cases: {time.perf_counter() - begun:.1f} s\n", flush=True)
    parts_named = (*COLUMNS, OTHERS, PARENT)
    print(markdown(("implementation", "whole", *parts_named), []), flush=True)
    for name in options.impl or sorted(known_folders()):
        folder, implementation = find_implementation(name)
        ready = resolve(implementation, folder, {})
        if not isinstance(ready, Ready):
            print(f"{name}: {ready.reason}")
            continue
        parts = taken_by(ready, cases, expected, options.threads)
        whole = sum(map(sum, parts.values()))
        cells = (cell(parts.get(part, []), whole) for part in parts_named)
        print(f"| {' | '.join((name, f'{whole:.1f} s', *cells))} |", flush=True)


if __name__ == "__main__":
    main()
