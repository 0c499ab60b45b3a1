"""`conform new`: a folder for a new implementation."""

from pathlib import Path

import click

from encoder_conformance.new.frameworks import FRAMEWORKS
from encoder_conformance.new.making import make
from encoder_conformance.paths import shown
from encoder_conformance.smoke.placeholders import placeholders_of


@click.command(epilog="Example: conform new my_backend --framework pytorch")
@click.argument("name")
@click.option(
    "--framework",
    type=click.Choice(list(FRAMEWORKS)),
    required=True,
    help="What it is written in; numpy is the plain form, for any other.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Where the folder is made; default: here.",
)
def new(name: str, framework: str, out: Path) -> None:
    """Make a folder with an adapter that works but for a few blanks, and say where they are."""
    folder = make(name, framework, out)
    click.echo(f"{shown(folder)}: {', '.join(sorted(path.name for path in folder.iterdir()))}")
    for blank in placeholders_of(folder):
        click.echo(f"  {blank}")
    click.echo(f"Fill these in, and try it: conform smoke {_as_path(folder)}")


def _as_path(folder: Path) -> str:
    """With a slash, so that it is taken for a folder."""
    path = shown(folder)
    return path if "/" in path else f"./{path}"
