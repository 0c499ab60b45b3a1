"""`conform compare`: two runs side by side, or many in their order."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from encoder_conformance.commands.commands import INCOMPLETE, NOT_AS_EXPECTED
from encoder_conformance.commands.options import ANY_PATH, overwrite_site_option, print_json
from encoder_conformance.platform.errors import InputError
from encoder_conformance.reports.compare.comparison import Comparison, changed_machine, changed_versions, compare
from encoder_conformance.reports.compare.show import show_comparison, show_trend, transition
from encoder_conformance.reports.compare.trend import trends_of
from encoder_conformance.reports.run.reading import read_report
from encoder_conformance.reports.run.terminal import console
from encoder_conformance.reports.site.columns import read_columns, run_names
from encoder_conformance.reports.site.contexts import changes_context
from encoder_conformance.reports.site.writing import write_site

_EXAMPLES = """
\b
Examples:
  conform compare conform-report/20261101T080000Z conform-report/latest
  conform compare before.json after.json --json
  conform compare runs/torch-2.11 runs/torch-2.12 runs/torch-2.13
  conform compare last-release conform-report/latest --to site
"""


@click.command(epilog=_EXAMPLES)
@click.argument("runs", nargs=-1, required=True, metavar="OLD NEW…", type=ANY_PATH)
@click.option("--json", "as_json", is_flag=True, help="Every check that changed, as JSON.")
@click.option("--to", "folder", type=ANY_PATH, help="A folder for the runs and their changes as pages.")
@overwrite_site_option
def compare_(runs: tuple[Path, ...], as_json: bool, folder: Path | None, overwrite: bool) -> int:
    """Compare runs check by check: the same bits, within noise, newly out of line, newly in line.

    OLD and NEW are folders of runs, or their report.json. More than two are compared each with the one before it, and a
    trend names the run that changed what.
    """
    if len(runs) < 2:
        raise InputError("compare needs two runs", where=str(runs[0]), hint="conform compare OLD NEW")
    reports = [read_report(run) for run in runs]
    comparisons = [compare(old, new) for old, new in pairwise(reports)]
    if folder:
        columns = read_columns(runs)
        changes = changes_context(comparisons, run_names(runs), columns)
        write_site(columns, folder, overwrite=overwrite, changes=changes)
    if as_json:
        print_json([_as_json(each) for each in comparisons])
    for number, comparison in enumerate([] if as_json else comparisons):
        if len(comparisons) > 1:
            console().print(f"\n{runs[number]} → {runs[number + 1]}", style="bold", soft_wrap=True)
        show_comparison(console(), comparison)
    for trend in trends_of(reports, run_names(runs)) if len(runs) > 2 and not as_json else ():
        console().print(f"\n{trend.implementation}", style="bold", soft_wrap=True)
        show_trend(console(), trend)
    if folder and not as_json:
        click.echo(f"Pages: {folder / 'changes.html'}")
    return max((_status(each) for each in comparisons), key=[0, INCOMPLETE, NOT_AS_EXPECTED].index)


def _status(comparison: Comparison) -> int:
    if comparison.worse:
        return NOT_AS_EXPECTED
    return 0 if comparison.counts and comparison.old.complete and comparison.new.complete else INCOMPLETE


def _as_json(comparison: Comparison) -> dict[str, Any]:
    return {
        "old": comparison.old.started,
        "new": comparison.new.started,
        "reservations": comparison.reservations,
        "machine": changed_machine(comparison.old, comparison.new),
        "versions": changed_versions(comparison.old, comparison.new),
        "counts": {
            name: {change.value: count for change, count in counts.items()}
            for name, counts in comparison.counts.items()
        },
        "changes": [
            {
                **dict(zip(("implementation", "case", "dtype", "check"), each.record.key, strict=True)),
                "change": each.change.value,
                "transition": transition(each),
            }
            for each in comparison.changes
        ],
        "diagnoses": [diagnosis.model_dump(mode="json") for diagnosis in comparison.new_diagnoses],
    }
