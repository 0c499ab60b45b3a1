"""The suite as `conform run` asks it: the plan, what of it an earlier run has judged, and the verdict.

It is imported once the first workers have started.
"""

import sys
from dataclasses import replace
from pathlib import Path

import click

from encoder_conformance.commands.commands import INCOMPLETE
from encoder_conformance.commands.merge import exit_status, show_tallies, write_report
from encoder_conformance.commands.run.chosen import EarlierRuns
from encoder_conformance.commands.run.judging import Planned, judge_assignments
from encoder_conformance.commands.run.update import update_declared
from encoder_conformance.commands.run_arguments import RunArguments
from encoder_conformance.engine.head_start import HeadStart
from encoder_conformance.engine.scheduling import Assignment
from encoder_conformance.implementation.interpreter import Missing, Ready
from encoder_conformance.judging.records import Report
from encoder_conformance.oracle.golden.goldens import Goldens
from encoder_conformance.reports.merge.merge import merge
from encoder_conformance.reports.merge.partition import part_of
from encoder_conformance.reports.merge.resume import Resumed, resume
from encoder_conformance.reports.run.folder import NAME
from encoder_conformance.reports.run.last_lines import WholePlan
from encoder_conformance.reports.run.reading import read_report
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.load import load
from encoder_conformance.spec.size import LARGEST_BUILT, refuse_larger
from encoder_conformance.subjects.plan import plan, select


def judge_suite(
    arguments: RunArguments,
    earlier: EarlierRuns,
    ready: list[Ready],
    absent: list[Missing],
    folder: Path,
    started: HeadStart,
) -> int:
    """Judge these implementations and print the report. Returns the exit status.

    Raises InputError if there is nothing to ask.
    """
    every_case = _every_case(arguments)
    selected = select({case.id: case for case in every_case}, arguments.globs, arguments.chosen_level)
    assignments = [Assignment(each, plan(each.implementation, selected, arguments.dtypes)) for each in ready]
    if arguments.shard:
        assignments = part_of(assignments, arguments.shard, earlier.seconds)
    resumed = _resumable(assignments, earlier.interrupted, arguments) if earlier.interrupted else None
    if resumed:
        assignments = resumed.rest
    whole = len(selected) == len(every_case) and not (arguments.shard or resumed)
    status = INCOMPLETE
    try:
        if assignments:
            everything = [
                WholePlan.of(each.tasks if whole else plan(each.ready.implementation, every_case, arguments.dtypes))
                for each in assignments
            ]
            goldens = Goldens(selected, arguments.at_once)
            planned = Planned(assignments, goldens, absent, everything)
            finished = judge_assignments(planned, folder, arguments, started)
            status = finished.show(arguments.out)
            if arguments.update_declared and finished.report.complete:
                _update_declared(folder, assignments, arguments.reason)
    finally:  # whether the new run ended or was interrupted
        if resumed and resumed.kept.records:
            status = _completed(resumed.kept, folder)
    return status


def _resumable(assignments: list[Assignment], earlier: Report, arguments: RunArguments) -> Resumed:
    """Divide these assignments into what an earlier run has judged and the rest; says on standard error how much."""
    resumed = resume(assignments, earlier, arguments.seed, arguments.device)
    left = sum(len(assignment.tasks) for assignment in resumed.rest)
    click.echo(f"{arguments.earlier}: {len(resumed.kept.records)} checks are taken over, {left} are asked", err=True)
    for name in resumed.changed:
        click.echo(f"{name} is asked anew: it, its environment or this machine changed, or is unknown", err=True)
    return resumed


def _completed(kept: Report, folder: Path) -> int:
    """Have the report in `folder` hold what was taken over, too. Returns the exit status of both together."""
    new = [read_report(folder)] if (folder / NAME).exists() else []
    report = merge([kept, *new], ["the earlier run", str(folder)][: 1 + len(new)])
    write_report(report, folder)
    show_tallies(report)
    return exit_status(report)


def _every_case(arguments: RunArguments) -> list[Case]:
    """The specification's, or those of the user's own layer."""
    own = arguments.layer_file
    specification = load(extra_layers=(own,) if own else ())
    cases = [replace(case, seed=arguments.seed) for case in specification.cases.values()]
    if own is None:
        return cases
    refuse_larger(specification.layers[own.stem], LARGEST_BUILT, f"--layer {own}")
    return [case for case in cases if case.layer.layer == own.stem]


def _update_declared(folder: Path, assignments: list[Assignment], reason: str | None) -> None:
    """`reason` is asked for, where it is not given and somebody is there to ask."""

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
