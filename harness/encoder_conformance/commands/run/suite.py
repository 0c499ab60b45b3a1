"""The suite as `conform run` asks it: the plan, what of it an earlier run has judged, and the verdict.

It is imported once the first workers have started.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from encoder_conformance.commands.run.judging import Planned, judge_assignments
from encoder_conformance.commands.run.resuming import EarlierRuns, completed, resumable
from encoder_conformance.commands.run.update import update_declared
from encoder_conformance.commands.run_arguments import RunArguments
from encoder_conformance.engine.head_start import HeadStart
from encoder_conformance.engine.scheduling import Assignment
from encoder_conformance.implementation.interpreter import Missing, Ready
from encoder_conformance.implementation.manifest import Implementation
from encoder_conformance.implementation.task import Task
from encoder_conformance.oracle.golden.goldens import Goldens
from encoder_conformance.platform.errors import InputError
from encoder_conformance.reports.merge.partition import part_of
from encoder_conformance.reports.run.last_lines import WholePlan
from encoder_conformance.reports.run.reading import read_report
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.load import load, published_specification
from encoder_conformance.spec.size import LARGEST_BUILT, refuse_larger
from encoder_conformance.subjects.plan import asked_of, plan, select


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
    every_case = _every_case(arguments, ready)
    selected = select({case.id: case for case in every_case}, arguments.globs, arguments.chosen_level)
    assignments = [Assignment(each, _planned(each.implementation, selected, arguments)) for each in ready]
    if arguments.shard:
        assignments = part_of(assignments, arguments.shard, earlier.seconds)
    resumed = resumable(assignments, earlier.interrupted, arguments) if earlier.interrupted else None
    if resumed:
        assignments = resumed.rest
    whole = len(selected) == len(every_case) and not (arguments.shard or resumed)
    with completed(resumed, folder) as completion:
        if assignments:
            everything = {
                each.name: WholePlan.of(_planned(each.ready.implementation, every_case, arguments))
                for each in (() if whole else assignments)
            }
            goldens = Goldens(selected, arguments.at_once)
            planned = Planned(assignments, goldens, absent, everything)
            finished = judge_assignments(planned, folder, arguments, started)
            completion.status = finished.show(arguments.out)
            if arguments.update_declared and finished.report.complete:
                _update_declared(folder, assignments, arguments.reason)
    return completion.status


def _every_case(arguments: RunArguments, ready: Sequence[Ready]) -> list[Case]:
    """The specification's and those of published layers, as far as they are asked of any of these; or those of the
    user's own layer."""
    if (own := arguments.layer_file) is None:
        asked = {each.implementation.is_of_published for each in ready}
        cases = (
            *(load().cases.values() if False in asked else ()),
            *(published_specification().cases.values() if True in asked else ()),
        )
    else:
        specification = load(extra_layers=(own,))
        refuse_larger(specification.layers[own.stem], LARGEST_BUILT, f"--layer {own}")
        cases = tuple(case for case in specification.cases.values() if case.layer.layer == own.stem)
    return [replace(case, seed=arguments.seed) for case in cases]


def _planned(implementation: Implementation, cases: list[Case], arguments: RunArguments) -> list[Task]:
    """What of these cases it is asked. The user's own layer is asked of whichever is named.

    Raises InputError if none of them is for it.
    """
    own = cases if arguments.layer_file else asked_of(implementation, cases)
    if not own:
        hint = "published layers are asked of an implementation of them, and nothing else is (L-8)"
        raise InputError(f"none of these cases is asked of {implementation.name}", where="--case", hint=hint)
    return plan(implementation, own, arguments.dtypes)


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
