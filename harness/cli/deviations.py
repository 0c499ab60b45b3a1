"""`conform deviations`: the kill matrix."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase

import click

from encoder_conformance.deviations.catalogue import catalogue
from encoder_conformance.deviations.kill import Kill, best, kills
from encoder_conformance.deviations.reasons import not_played
from encoder_conformance.docs.tables import kill_table
from encoder_conformance.errors import InputError, nearest
from encoder_conformance.plan import select
from encoder_conformance.spec.constants import constants
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.load import load


@click.command(epilog="Example: conform deviations --deviation 'norm-*' --dtype float32")
@click.option("--deviation", "globs", multiple=True, metavar="GLOB", help="Deviations to play; default: all.")
@click.option("--case", "cases", multiple=True, metavar="GLOB", help="Cases to play them against; default: all.")
@click.option("--dtype", "dtypes", multiple=True, type=click.Choice(list(FORMATS)), help="Default: both.")
@click.option("--jobs", type=click.IntRange(1), help="Processes side by side; default: one a processor.")
@click.option("--json", "as_json", is_flag=True, help="Every (deviation, case, dtype, check) as JSON.")
def deviations(
    globs: tuple[str, ...], cases: tuple[str, ...], dtypes: tuple[str, ...], jobs: int | None, as_json: bool
) -> None:
    """Play every deviation against every case, in σ: does the suite see it, and where best?

    The table is Markdown: for each deviation the required case that shows it best at the output and at any stage.
    Where a deviation changes nothing in what is asked, a sentence says why, and which layers to ask instead.
    """
    names = [name for name in catalogue() if any(fnmatchcase(name, glob) for glob in globs or ("*",))]
    if not names:
        hint = f"{nearest(globs[0], catalogue())} (conform list deviations)"
        raise InputError(f"matches no deviation: {globs[0]!r}", where="--deviation", hint=hint)
    chosen = select(load().with_golden, cases, None)
    found = list(kills(names, chosen, dtypes or tuple(FORMATS), jobs or os.cpu_count() or 1))
    caught = {kill.deviation for kill in found if kill.sigma > constants().rms_limit}
    silent = not_played([name for name in names if name not in caught], chosen, load().cases.values())
    if as_json:
        click.echo(json.dumps([asdict(kill) for kill in found], indent=1))
    else:
        _show(found, dtypes or tuple(FORMATS))
    for each in silent:
        click.echo(each.sentence, err=as_json)


def _show(found: list[Kill], dtypes: Sequence[str]) -> None:
    """One table a format. A case that is not required is in no table, which asks for the best of those that are."""
    for dtype in dtypes:
        in_format = best([kill for kill in found if kill.dtype == dtype], constants().rms_limit)
        if in_format:
            click.echo(f"\n{dtype}\n\n{kill_table(in_format)}\n")
    if found and not any(kill.required for kill in found):
        click.echo("The cases that were asked are not required, and the table is of required cases: --json has them.")
