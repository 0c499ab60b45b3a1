"""`conform run --resume` and `--balanced-by`: what earlier runs have judged, and how long it took."""

import contextlib
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from encoder_conformance.commands.commands import INCOMPLETE
from encoder_conformance.commands.run_arguments import RunArguments
from encoder_conformance.platform.errors import InputError

if TYPE_CHECKING:  # workers of a run start before what judges their answers is imported
    from encoder_conformance.engine.scheduling import Assignment
    from encoder_conformance.judging.records import Report
    from encoder_conformance.reports.merge.partition import Resumed, Seconds


@dataclass(frozen=True)
class EarlierRuns:
    """`interrupted`: a run that is to be completed. `seconds`: those that a run took, which make parts equal."""

    interrupted: "Report | None" = None
    seconds: "Seconds" = field(default_factory=dict)


def earlier_runs(arguments: RunArguments) -> EarlierRuns:
    """Read them. Raises InputError if the run to complete is in --out, which the new one overwrites."""
    earlier, out, balanced_by = arguments.earlier, arguments.out, arguments.balanced_by
    if not (earlier or balanced_by):
        return EarlierRuns()
    from encoder_conformance.reports.merge.partition import recorded_seconds
    from encoder_conformance.reports.run.reading import read_report

    seconds = recorded_seconds(read_report(balanced_by).records) if balanced_by else {}
    if earlier is None:
        return EarlierRuns(None, seconds)
    if out and out.exists() and earlier.exists() and (out.samefile(earlier) or out.samefile(earlier.parent)):
        raise InputError("is the folder of the new run too", where=f"--resume {earlier}", hint="give --out another one")
    return EarlierRuns(read_report(earlier), seconds)


def resumable(assignments: "list[Assignment]", earlier: "Report", arguments: RunArguments) -> "Resumed":
    """Divide these assignments into what an earlier run has judged and the rest; says on standard error how much."""
    from encoder_conformance.reports.merge.partition import resume

    resumed = resume(assignments, earlier, arguments.seed, arguments.device)
    left = sum(len(assignment.tasks) for assignment in resumed.rest)
    click.echo(f"{arguments.earlier}: {len(resumed.kept.records)} checks are taken over, {left} are asked", err=True)
    for name in resumed.changed:
        click.echo(f"{name} is asked anew: it, its environment or this machine changed, or is unknown", err=True)
    return resumed


@dataclass
class Completion:
    """The exit status of a run, which what was taken over may change."""

    status: int = INCOMPLETE


@contextlib.contextmanager
def completed(resumed: "Resumed | None", folder: Path) -> Generator[Completion]:
    """Afterwards the report in `folder` has what was taken over too, whether the new run ended or was interrupted."""
    completion = Completion()
    try:
        yield completion
    finally:
        if resumed and resumed.kept.records:
            from encoder_conformance.commands.merge import exit_status, show_tallies, write_report
            from encoder_conformance.reports.merge.merge import merge
            from encoder_conformance.reports.run.folder import NAME
            from encoder_conformance.reports.run.reading import read_report

            new = [read_report(folder)] if (folder / NAME).exists() else []
            report = merge([resumed.kept, *new], ["the earlier run", str(folder)][: 1 + len(new)])
            write_report(report, folder)
            show_tallies(report)
            completion.status = exit_status(report)
