"""`python -m tools golden`: build the frozen expectations, or verify that the oracle still agrees with them."""

import click

from encoder_conformance.commands.options import jobs_option
from encoder_conformance.oracle.golden.build import compute_all
from encoder_conformance.oracle.golden.store import (
    GOLDEN,
    check_ids,
    golden_path,
    read_golden,
    read_golden_manifest,
    write_golden,
    write_golden_manifest,
)
from encoder_conformance.spec.load import constants, load
from encoder_conformance.subjects.plan import select
from tools.golden.verify import disagreement, still_frozen, with_frozen_tensors

_CASE = click.option("--case", "globs", multiple=True, metavar="GLOB", help="Cases, as layer/situation; default: all.")


@click.group()
def golden() -> None:
    """Build or verify the frozen expectations in specs/golden/."""


@golden.command(epilog="Example: python -m tools golden build --case 'my-layer/*'")
@_CASE
@jobs_option
@click.option("--prune", is_flag=True, help="Also remove goldens that no longer belong to a case.")
def build(globs: tuple[str, ...], jobs: int, prune: bool) -> None:
    """Compute and freeze goldens and conditions. Files and tensors that the oracle still agrees with stay the same,
    byte for byte.

    Commit goldens separately, with the reason.
    """
    cases = load().with_golden
    chosen = select(cases, globs, None)
    manifest = read_golden_manifest() if (GOLDEN / "manifest.json").exists() else None
    entries = dict(manifest.cases) if manifest else {}
    kept = 0
    for done, (case, expected) in enumerate(compute_all(chosen, constants(), jobs), 1):
        entry = still_frozen(case, entries[case.id], expected, constants()) if case.id in entries else None
        kept += entry is not None
        if entry is None and case.id in entries:
            expected = with_frozen_tensors(case, entries[case.id], expected, constants())
        entries[case.id] = entry or write_golden(case, expected, constants())
        click.echo(f"[{done}/{len(chosen)}] {case.id}{': kept' if entry else ''}", err=True)
    if prune:
        for removed in set(entries) - set(cases):
            golden_path(removed).unlink(missing_ok=True)
            del entries[removed]
            click.echo(f"removed {removed}", err=True)
    write_golden_manifest(entries)
    size = sum(path.stat().st_size for path in GOLDEN.rglob("*.safetensors"))
    built = f"built {len(chosen) - kept} goldens, kept {kept} that the oracle still agrees with"
    click.echo(f"{built}; specs/golden holds {len(entries)}, {size / 1e6:.1f} MB")


@golden.command(epilog="Example: python -m tools golden verify --case '*/padding-right'")
@_CASE
@jobs_option
def verify(globs: tuple[str, ...], jobs: int) -> int:
    """Check every golden against its checksum and against the oracle. Exit status: 1 if any disagrees."""
    cases = load().with_golden
    manifest = read_golden_manifest()
    check_ids(cases, manifest)
    chosen = select(cases, globs, None)
    frozen = {case.id: read_golden(case, manifest, constants()) for case in chosen}
    wrong = 0
    for done, (case, today) in enumerate(compute_all(chosen, constants(), jobs), 1):
        problem = disagreement(frozen[case.id], today)
        wrong += bool(problem)
        click.echo(f"[{done}/{len(chosen)}] {case.id}" + (f": {problem}" if problem else ""), err=True)
    click.echo(f"{len(chosen) - wrong} of {len(chosen)} goldens agree with their checksums and with the oracle")
    return 1 if wrong else 0
