"""`python -m tools core`: finds the cases of the level core."""

import click

from encoder_conformance.commands.options import jobs_option
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.files import replace_file
from encoder_conformance.platform.paths import SPECS, shown
from encoder_conformance.spec.load import CORE
from tools import ROOT
from tools.core.build import CoreSelection, find_core
from tools.core.page import PAGE, page
from tools.core.sensitivity import write_sensitivity

_TEXT = """# yaml-language-server: $schema=schema/core.schema.json
# Written by `python -m tools core build`; docs/core.md says what each case is there for.
cases:
{cases}
"""


@click.group()
def core() -> None:
    """The level core: the smallest set of required cases that detects every deviation and cites every clause."""


@core.command(epilog="Example: python -m tools core build --jobs 2")
@jobs_option
def build(jobs: int) -> None:
    """Measure which case detects which deviation, and choose the core. Takes some minutes.

    Run it after a change of the catalogue, of a small layer or of a situation. Writes specs/core.yaml,
    specs/sensitivity.json and docs/core.md.
    """
    if SPECS != ROOT / "specs":
        raise InputError(
            "writes the specification, which is an installed copy here",
            where="python -m tools core build",
            hint="run it in a checkout of the project",
        )
    selection = find_core(jobs)
    for line in write(selection):
        click.echo(line)


def write(selection: CoreSelection) -> list[str]:
    """Write the core, its sensitivity table and its page. Returns a line for each file."""
    write_sensitivity(selection.sensitivity)
    replace_file(SPECS / CORE, _TEXT.format(cases="\n".join(f"  - {case}" for case in selection.cases)).encode())
    replace_file(PAGE, page(selection).encode())
    return [f"{shown(path)}: {len(selection.cases)} cases" for path in (SPECS / CORE, PAGE)]
