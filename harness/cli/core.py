"""`conform core`: finds the cases of the level core."""

import os

import click

from encoder_conformance.core.build import Found, find
from encoder_conformance.core.sensitivity import write_sensitivity
from encoder_conformance.docs.core import PAGE, page
from encoder_conformance.errors import InputError
from encoder_conformance.files import replace_file
from encoder_conformance.paths import SPECS, shown
from encoder_conformance.spec.core import FILE

_TEXT = """# yaml-language-server: $schema=schema/core.schema.json
# Written by `conform core build`; docs/core.md says what each case is there for.
cases:
{cases}
"""


@click.group()
def core() -> None:
    """The level core: the smallest set of required cases that sees every deviation and cites every clause."""


@core.command(epilog="Example: conform core build --jobs 2")
@click.option("--jobs", type=click.IntRange(1), help="Processes side by side; default: one a processor.")
def build(jobs: int | None) -> None:
    """Measure which case sees which deviation, and choose the core anew. Takes some minutes.

    Needed after a change of the catalogue, of a small layer or of a situation. Writes specs/core.yaml,
    specs/sensitivity.json and docs/core.md.
    """
    if not PAGE.parent.is_dir():
        raise InputError(
            "writes the specification, which is installed here",
            where="conform core build",
            hint="run it in a checkout of the project",
        )
    found = find(jobs or os.cpu_count() or 1)
    for line in write(found):
        click.echo(line)


def write(found: Found) -> list[str]:
    """Write what was found; says which files."""
    write_sensitivity(found.sensitivity)
    replace_file(SPECS / FILE, _TEXT.format(cases="\n".join(f"  - {case}" for case in found.cases)).encode())
    replace_file(PAGE, page(found).encode())
    return [f"{shown(path)}: {len(found.cases)} cases" for path in (SPECS / FILE, PAGE)]
