"""`python -m tools deviations`: the detection matrix."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase

import click

from encoder_conformance.commands.options import jobs_option
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.platform.errors import InputError, nearest
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.load import constants, load
from encoder_conformance.subjects.plan import select
from tools.deviations.reasons import not_played
from tools.kill import Kill, best, kills
from tools.pages.tables import kill_table


@click.command(epilog="Example: python -m tools deviations --deviation 'norm-*' --dtype float32")
@click.option("--deviation", "globs", multiple=True, metavar="GLOB", help="Deviations to simulate; default: all.")
@click.option("--case", "cases", multiple=True, metavar="GLOB", help="Cases to simulate them in; default: all.")
@click.option("--dtype", "dtypes", multiple=True, type=click.Choice(list(FORMATS)), help="Default: both.")
@jobs_option
@click.option("--json", "as_json", is_flag=True, help="Every (deviation, case, dtype, check) as JSON.")
def deviations(
    globs: tuple[str, ...], cases: tuple[str, ...], dtypes: tuple[str, ...], jobs: int, as_json: bool
) -> None:
    """Simulate every deviation in every case, in σ: does the suite detect it, and which case does so best?

    The table is Markdown: for each deviation the required case that shows it best at the output and at any stage.
    If a deviation changes nothing in these cases, a sentence says why, and which layers would show it.
    """
    names = [name for name in catalogue() if any(fnmatchcase(name, glob) for glob in globs or ("*",))]
    if not names:
        hint = f"{nearest(globs[0], catalogue())} (conform list deviations)"
        raise InputError(f"matches no deviation: {globs[0]!r}", where="--deviation", hint=hint)
    chosen = select(load().with_golden, cases, None)
    records = list(kills(names, chosen, dtypes or tuple(FORMATS), jobs))
    detected = {kill.deviation for kill in records if kill.sigma > constants().rms_limit}
    silent = not_played([name for name in names if name not in detected], chosen, load().cases.values())
    if as_json:
        click.echo(json.dumps([asdict(kill) for kill in records], indent=1))
    else:
        _show(records, dtypes or tuple(FORMATS))
    for explanation in silent:
        click.echo(explanation.sentence, err=as_json)


def _show(records: list[Kill], dtypes: Sequence[str]) -> None:
    """Print a table for each dtype. The tables rank required cases only."""
    for dtype in dtypes:
        best_by_deviation = best([kill for kill in records if kill.dtype == dtype], constants().rms_limit)
        if best_by_deviation:
            click.echo(f"\n{dtype}\n\n{kill_table(best_by_deviation)}\n")
    if records and not any(kill.required for kill in records):
        click.echo("None of these cases is required, and the table shows required cases only: --json shows them.")
