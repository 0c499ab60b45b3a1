"""`conform merge`: one report of several runs."""

from pathlib import Path

import click
from rich.text import Text

from encoder_conformance.commands.commands import INCOMPLETE, NOT_AS_EXPECTED
from encoder_conformance.commands.options import ANY_PATH, FOLDER
from encoder_conformance.judging.records import Report
from encoder_conformance.judging.tally import Tally
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.files import replace_file, writable
from encoder_conformance.reports.merge.merge import merge, missing_parts
from encoder_conformance.reports.run.folder import NAME
from encoder_conformance.reports.run.reading import read_report
from encoder_conformance.reports.run.terminal import console
from encoder_conformance.spec.outcome import EXPECTED

_EXAMPLES = """
\b
Examples:
  conform merge part1 part2 part3 --to report
  conform merge runs/linux runs/macos --to both
"""


@click.command(epilog=_EXAMPLES)
@click.argument("runs", nargs=-1, required=True, metavar="RUN…", type=ANY_PATH)
@click.option("--to", required=True, type=FOLDER, help="Folder for report.json.")
def merge_(runs: tuple[Path, ...], to: Path) -> int:
    """Unite runs into one report: the parts of `conform run --shard`, or runs of different implementations.

    Runs that contradict each other are refused: in versions, in what a case specifies, in the seed, or in an outcome.
    """
    if (to / NAME).exists():
        raise InputError("is there already", where=str(to / NAME), hint="choose another folder")
    reports = [read_report(run) for run in runs]
    report = merge(reports, [str(run) for run in runs])
    write_report(report, to)
    show_tallies(report)
    if missing := missing_parts(reports):
        console().print(f"INCOMPLETE: missing part {', '.join(missing)}", style="bold red", soft_wrap=True)
    console().print(f"{len(runs)} runs in {to / NAME}", soft_wrap=True)
    return exit_status(report)


def write_report(report: Report, folder: Path) -> None:
    """Write report.json. Raises InputError."""
    with writable(str(folder), "choose another"):
        replace_file(folder / NAME, report.model_dump_json(indent=1).encode())


def show_tallies(report: Report) -> None:
    """Print a line for each implementation."""
    for implementation in report.implementations:
        tally = Tally.of(record.outcome for record in report.records if record.implementation == implementation.name)
        console().print(Text(f"{implementation.name}: {tally}", style=tally.style), soft_wrap=True)


def exit_status(report: Report) -> int:
    """The status of a run with all these records."""
    if any(record.outcome not in EXPECTED for record in report.records if report.complete):
        return NOT_AS_EXPECTED
    return 0 if report.complete and report.records else INCOMPLETE
