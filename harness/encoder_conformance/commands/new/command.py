"""`conform new`: a folder for a new implementation."""

from pathlib import Path

import click

from encoder_conformance.commands.new.frameworks import FRAMEWORKS
from encoder_conformance.commands.new.making import make
from encoder_conformance.commands.smoke.placeholders import placeholders_of
from encoder_conformance.platform.paths import shown


@click.command(epilog="Example: conform new my_backend --framework pytorch")
@click.argument("name")
@click.option(
    "--framework",
    type=click.Choice(list(FRAMEWORKS)),
    required=True,
    help="Framework of the implementation; numpy is the plain template, for any other.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Parent of the new folder; default: the current folder.",
)
def new(name: str, framework: str, out: Path) -> None:
    """Make a folder with an adapter that is complete but for a few blanks, and list the blanks."""
    folder = make(name, framework, out)
    click.echo(f"{shown(folder)}: {', '.join(sorted(path.name for path in folder.iterdir()))}")
    for blank in placeholders_of(folder):
        click.echo(f"  {blank}")
    click.echo(f"Fill these in, then run: conform smoke {_folder_argument(folder)}")


def _folder_argument(folder: Path) -> str:
    """The folder as an argument of `conform smoke`, with a slash, so that it is not taken for a name."""
    path = shown(folder)
    return path if "/" in path else f"./{path}"
