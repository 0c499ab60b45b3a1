"""One part of a plan, in a process of its own beside a cluster's worker: it ends when that worker does.

python -m encoder_conformance.commands.cluster.part_command FOLDER
    reads FOLDER/part.json, writes the run there; standard input stays
                                                  open as long as the result is wanted
"""

import contextlib
import os
import sys
import threading
import time
from pathlib import Path

from encoder_conformance.commands.cluster.worker import REQUEST, PlanPart, cases_of
from encoder_conformance.commands.run.judging import Planned, judge_assignments
from encoder_conformance.engine.run_options import RunOptions
from encoder_conformance.engine.scheduling import Assignment
from encoder_conformance.implementation.manifest import find_implementation
from encoder_conformance.oracle.golden.goldens import Goldens
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.memory import give_large_arrays_back
from encoder_conformance.reports.merge.partition import part_of
from encoder_conformance.reports.run.folder import begun_run
from encoder_conformance.subjects.plan import asked_of, plan
from encoder_conformance.subjects.starting import require_ready
from encoder_conformance.worker.limits import WorkerLimits, default_memory


def judge_part(part: PlanPart, folder: Path) -> None:
    """Judge it into this folder. Raises InputError if the implementation cannot be started here."""
    question = part.question
    found, implementation = find_implementation(part.implementation)
    ready = require_ready(implementation, found, {}, "this worker")
    cases = cases_of(question)
    whole = Assignment(ready, plan(implementation, asked_of(implementation, cases), question.dtypes))
    assignments = part_of([whole], part.shard, {})
    names = {task.case.id for task in assignments[0].tasks}
    cases = [case for case in cases if case.id in names]
    options = RunOptions(
        jobs=part.jobs,
        device=question.device,
        threads=question.threads,
        seed=question.seed,
        begun=time.monotonic(),
        limits=WorkerLimits(question.memory or default_memory(), question.isolate),
        quiet=True,
    )
    with begun_run(folder) as out:
        judge_assignments(Planned(assignments, Goldens(cases, part.jobs)), out, options)


def _end_with_parent() -> None:
    """End this process when standard input ends, which is when the cluster's worker is gone. The adapters' guards see
    that this process is gone, and end them."""

    def watch() -> None:
        sys.stdin.buffer.read()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _show_life() -> None:
    """Write something to standard output every second: a process that is stopped ends nothing and says nothing."""

    def beat() -> None:
        with contextlib.suppress(OSError):  # nobody waits any more
            while True:
                os.write(1, b".")
                time.sleep(1)

    threading.Thread(target=beat, daemon=True).start()


def main(folder: Path) -> int:
    _end_with_parent()
    _show_life()
    give_large_arrays_back()
    try:
        judge_part(PlanPart.model_validate_json((folder / REQUEST).read_bytes()), folder)
    except InputError as error:
        print("\n".join(error.lines()), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.stdout.flush()
    status = main(Path(sys.argv[1]))
    sys.stderr.flush()
    os._exit(status)  # the thread that watches is in a read that nothing ends
