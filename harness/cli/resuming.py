"""`conform run --resume`: what an earlier run has judged is taken over.

What that needs is imported where it is asked for: the workers of a run wait for every import before they start.
"""

import contextlib
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from encoder_conformance.cli.statuses import INCOMPLETE
from encoder_conformance.errors import InputError
from encoder_conformance.results import Report
from encoder_conformance.scheduling import Assignment

if TYPE_CHECKING:
    from encoder_conformance.shards.resume import Resumed


@dataclass(frozen=True)
class EarlierRun:
    """A run that is to be completed, under the name that the user gave it."""

    name: Path
    report: Report


def earlier_run(earlier: Path, out: Path | None) -> EarlierRun:
    """Read the run that is to be completed. Raises InputError if it is in `out`, which the new one overwrites."""
    from encoder_conformance.report.reading import read_report

    if out and out.exists() and earlier.exists() and (out.samefile(earlier) or out.samefile(earlier.parent)):
        raise InputError("is the folder of the new run too", where=f"--resume {earlier}", hint="give --out another one")
    return EarlierRun(earlier, read_report(earlier))


def resumable(assignments: list[Assignment], earlier: EarlierRun, seed: int, device: str) -> "Resumed":
    """What an earlier run has judged of these assignments, and the rest; says on standard error how much."""
    from encoder_conformance.shards.resume import resume

    resumed = resume(assignments, earlier.report, seed, device)
    left = sum(len(assignment.tasks) for assignment in resumed.rest)
    click.echo(f"{earlier.name}: {len(resumed.kept.records)} checks are taken over, {left} are asked", err=True)
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
            from encoder_conformance.cli.merge import exit_status, show_tallies, write_report
            from encoder_conformance.report.folder import NAME
            from encoder_conformance.report.reading import read_report
            from encoder_conformance.shards.merge import merge

            new = [read_report(folder)] if (folder / NAME).exists() else []
            report = merge([resumed.kept, *new], ["the earlier run", str(folder)][: 1 + len(new)])
            write_report(report, folder)
            show_tallies(report)
            completion.status = exit_status(report)
