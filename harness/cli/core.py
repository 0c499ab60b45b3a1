"""`conform core`: finds the cases of the level core."""

import click

from encoder_conformance.cli.options import jobs_option
from encoder_conformance.core.build import CoreSelection, find_core
from encoder_conformance.core.sensitivity import write_sensitivity
from encoder_conformance.docs.core import PAGE, page
from encoder_conformance.errors import InputError
from encoder_conformance.files import replace_file
from encoder_conformance.paths import SPECS, shown
from encoder_conformance.spec.load import CORE

_TEXT = """# yaml-language-server: $schema=schema/core.schema.json
# Written by `conform core build`; docs/core.md says what each case is there for.
cases:
{cases}
"""


@click.group()
def core() -> None:
    """The level core: the smallest set of required cases that detects every deviation and cites every clause."""


@core.command(epilog="Example: conform core build --jobs 2")
@jobs_option
def build(jobs: int) -> None:
    """Measure which case detects which deviation, and choose the core. Takes some minutes.

    Run it after a change of the catalogue, of a small layer or of a situation. Writes specs/core.yaml,
    specs/sensitivity.json and docs/core.md.
    """
    if not PAGE.parent.is_dir():
        raise InputError(
            "writes the specification, which is an installed copy here",
            where="conform core build",
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
