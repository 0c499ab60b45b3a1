"""`conform report`: one or more runs as a static site."""

from pathlib import Path

import click

from encoder_conformance.commands.options import ANY_PATH, overwrite_site_option
from encoder_conformance.reports.site.columns import read_columns
from encoder_conformance.reports.site.writing import write_site

_EXAMPLES = """
\b
Examples:
  conform report conform-report/latest --to site
  conform report runs/pytorch runs/jax runs/keras --to site --overwrite
"""


@click.command(epilog=_EXAMPLES)
@click.argument("runs", nargs=-1, required=True, metavar="RUN…", type=ANY_PATH)
@click.option("--to", "folder", required=True, type=ANY_PATH, help="The folder of the site; new, or empty.")
@overwrite_site_option
def report(runs: tuple[Path, ...], folder: Path, overwrite: bool) -> None:
    """Write runs as a static site: a matrix with filters, every cell's stages, diagnosis and command.

    RUN is a folder of `conform run --out`. The site needs no network and no server: open its index.html.
    """
    columns = read_columns(runs)
    size = write_site(columns, folder, overwrite=overwrite)
    click.echo(f"{folder / 'index.html'}: {len(columns)} implementations of {len(runs)} runs, {size / 1e6:.2g} MB")
