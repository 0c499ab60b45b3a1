"""What `conform run` asks: the plan of each implementation, what of it an earlier run has judged, and the verdict.

It is imported once the first workers have started.
"""

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from encoder_conformance.cli.judging import RunOptions, judge_assignments
from encoder_conformance.cli.resuming import EarlierRun, completed, resumable
from encoder_conformance.golden.choice import goldens_of
from encoder_conformance.impl.interpreter import Missing, Ready
from encoder_conformance.plan import plan, select
from encoder_conformance.scheduling import Assignment
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.load import load
from encoder_conformance.spec.situation import Level
from encoder_conformance.spec.size import LARGEST_BUILT, refuse_larger
from encoder_conformance.worker.early import EarlyWorkers

if TYPE_CHECKING:
    from encoder_conformance.shards.partition import Seconds


@dataclass(frozen=True)
class Suite:
    """What is asked. `level`: None for every level. `layer_file`: a user's own layer, instead of the specification's.

    `recorded`: what an earlier run took, which makes parts equal. `interrupted`: a run that is to be completed.
    """

    globs: tuple[str, ...]
    layer_file: Path | None
    level: Level | None
    dtypes: tuple[DtypeName, ...]
    recorded: "Seconds"
    interrupted: EarlierRun | None
    updates_declared: bool
    reason: str | None
    """Why an implementation deviates, of what is new among its declared deviations."""


def judge_suite(
    suite: Suite,
    ready: list[Ready],
    absent: list[Missing],
    early: EarlyWorkers,
    folder: Path,
    out: Path | None,
    options: RunOptions,
) -> int:
    """Judge these implementations and print the report. Returns the exit status. `out`: the folder that the user named.

    Raises InputError if there is nothing to ask.
    """
    own = suite.layer_file
    specification = load(extra_layers=(own,) if own else ())
    all_cases = [replace(case, seed=options.seed) for case in specification.cases.values()]
    if own:
        refuse_larger(specification.layers[own.stem], LARGEST_BUILT, f"--layer {own}")
        all_cases = [case for case in all_cases if case.layer.layer == own.stem]
    selected = select({case.id: case for case in all_cases}, suite.globs, suite.level)
    assignments = [Assignment(each, plan(each.implementation, selected, suite.dtypes)) for each in ready]
    if options.shard:
        from encoder_conformance.shards.partition import part_of

        assignments = part_of(assignments, options.shard, suite.recorded)
    interrupted = suite.interrupted
    resumed = resumable(assignments, interrupted, options.seed, options.device) if interrupted else None
    if resumed:
        assignments = resumed.rest
    whole = len(selected) == len(all_cases) and not (options.shard or resumed)
    with completed(resumed, folder) as completion:
        if assignments:
            judged = judge_assignments(
                assignments,
                absent,
                selected,
                goldens_of(selected, options.jobs or os.cpu_count() or 1),
                folder,
                options,
                lambda: [
                    each.tasks if whole else plan(each.ready.implementation, all_cases, suite.dtypes)
                    for each in assignments
                ],
                early,
            )
            completion.status = judged.show(out)
            if suite.updates_declared and judged.report.complete:
                _update_declared(folder, assignments, suite.reason)
    return completion.status


def _update_declared(folder: Path, assignments: list[Assignment], reason: str | None) -> None:
    """`reason` is asked for, where it is not given and somebody is there to ask."""
    from encoder_conformance.deviations.update import update_declared  # a twentieth of the command's start
    from encoder_conformance.report.reading import read_report

    def reason_of(deviation: str) -> str | None:
        if reason or not sys.stdin.isatty():
            return reason
        return click.prompt(f"Why does it deviate by {deviation}? (Enter: do not declare it)", "", show_default=False)

    report = read_report(folder)
    for assignment in assignments:
        changed = update_declared(report, assignment.ready.implementation, assignment.ready.folder, reason_of)
        for line in changed:
            click.echo(f"{assignment.ready.folder / 'impl.yaml'}: {line}")
        if any(line.startswith("+") for line in changed):
            click.echo("Write there where to see it (link) and in which cases (when).")
        if any(line.startswith("?") for line in changed):
            click.echo("Not declared, because nobody said why: give --reason TEXT, or write them there.")
