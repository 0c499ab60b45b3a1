"""`conform run`: the matrix."""

import contextlib
import os
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import click

from harness.cli.options import interpreters, progress_bar, refuse_unwritable, say_what_is_left_out
from harness.deviations.declared import check_declared
from harness.deviations.update import update_declared as write_declared
from harness.errors import InputError, nearest
from harness.golden.build import compute_all
from harness.golden.expected import Expected
from harness.golden.store import check_ids, read_golden, read_manifest
from harness.impl.interpreter import Missing, Ready, resolve
from harness.impl.manifest import Device, find_implementation, judged_unasked
from harness.judge.outcome import EXPECTED, Outcome
from harness.lines import Share
from harness.plan import plan, select
from harness.report.ledger import Ledger, environment
from harness.report.model import Report
from harness.report.terminal import console, show_report
from harness.runner import Run
from harness.spec.case import Case
from harness.spec.constants import constants
from harness.spec.dtypes import FORMATS, DtypeName
from harness.spec.level import LEVELS
from harness.spec.load import Specification, load

_EXAMPLES = """
\b
Examples:
  conform run
  conform run --impl pytorch --impl ./my_backend --dtype float32
  conform run --impl onnx_pytorch --impl onnx_pytorch:opset=20,level=basic
  conform run --case 'pre-gelu/*' --case '*/padding-right'
  conform run --layer my-layer.yaml --impl jax_pure
  conform run --python keras_tf=/opt/tf/bin/python
  conform run --seed 1 --threads 2
"""


@click.command(epilog=_EXAMPLES)
@click.option(
    "--impl",
    "impls",
    multiple=True,
    metavar="NAME|FOLDER[:KEY=VALUE,…]",
    help="Implementation to judge, and what it is told; default: all.",
)
@click.option("--case", "globs", multiple=True, metavar="GLOB", help="Cases to ask, as layer/situation; default: all.")
@click.option(
    "--layer",
    "layer_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Judge your own layer (YAML) instead of the specification's, in every situation of its family.",
)
@click.option("--level", type=click.Choice(LEVELS), help="Only cases of this level or a stricter one.")
@click.option(
    "--dtype", "dtypes", multiple=True, type=click.Choice(list(FORMATS)), help="Default: each that a case is asked in."
)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option("--jobs", type=click.IntRange(1), help="Workers side by side; default: one a processor.")
@click.option("--threads", type=click.IntRange(1), help="Threads of each worker's framework; default: a fair share.")
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Draw inputs and parameters anew; 0 has frozen goldens, the oracle computes any other's first.",
)
@click.option("--python", "pythons", multiple=True, metavar="NAME=PATH", help="Interpreter for an implementation.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("conform-report"),
    show_default=True,
    help="Folder for report.json and the workers' logs.",
)
@click.option("--update-declared", is_flag=True, help="Bring each impl.yaml's list of deviations up to this run.")
def run(
    impls: tuple[str, ...],
    globs: tuple[str, ...],
    layer_file: Path | None,
    level: str | None,
    dtypes: tuple[DtypeName, ...],
    device: Device,
    jobs: int | None,
    threads: int | None,
    seed: int,
    pythons: tuple[str, ...],
    out: Path,
    update_declared: bool,
) -> int:
    """Judge implementations against the specification and print the matrix.

    Exit status: 0 all as expected; 1 something did not conform; 2 wrong usage or bad input; 3 incomplete.
    """
    if update_declared and (globs or layer_file or level or dtypes):
        raise InputError(
            "a part of the suite cannot say what an implementation's deviations are",
            where="--update-declared",
            hint="run it without --case, --layer, --level and --dtype",
        )
    specification = load(extra_layers=(layer_file,) if layer_file else ())
    cases = specification.cases
    if layer_file:
        cases = {name: case for name, case in cases.items() if case.layer.layer == layer_file.stem}
    selected = select(cases, globs, next((known for known in LEVELS if known == level), None))
    chosen = [replace(case, seed=seed) for case in selected]
    ready, absent = _implementations(impls, interpreters(pythons), device)
    jobs = jobs or os.cpu_count() or 1
    refuse_unwritable(out)
    shares = [Share(r, plan(r.implementation, chosen, dtypes)) for r in ready]
    expected: dict[str, Expected] = {}
    in_progress = Run(
        shares,
        lambda case: expected[case.id],
        constants(),
        jobs=jobs,
        device=device,
        logs=out / "logs",
        threads=threads,
    )
    if layer_file or seed:
        expected |= _computed(chosen, jobs)
    else:
        with _under_way(in_progress):
            expected |= _frozen(chosen, specification)
    ledger = Ledger(out, shares, absent, in_progress, environment(shares, in_progress, device, seed))
    try:
        _collect(in_progress, ledger, total=sum(len(share.tasks) for share in shares))
    except BaseException as error:
        for record in in_progress.left():
            ledger.add(record)
        ledger.close()
        error.add_note(f"what was judged until then is in {ledger.path}, marked incomplete")
        raise
    report = ledger.close(in_progress.diagnoses())
    show_report(console(), report, out)
    if update_declared and report.complete:
        for share in shares:
            changed = write_declared(report, share.ready.implementation, share.ready.folder)
            for line in changed:
                click.echo(f"{share.ready.folder / 'impl.yaml'}: {line}")
    return _status(report)


def _status(report: Report) -> int:
    outcomes = {record.outcome for record in report.records}
    if not report.complete or outcomes <= {Outcome.UNSUPPORTED}:
        return 3
    return 0 if outcomes <= EXPECTED else 1


def _collect(in_progress: Run, ledger: Ledger, total: int) -> None:
    """Gather the records."""
    with progress_bar() as progress:
        bar = progress.add_task("starting workers", total=total)
        with contextlib.closing(iter(in_progress)) as records:
            for record in records:
                ledger.add(record)
                progress.update(bar, advance=1, description=f"{record.implementation} {record.case} {record.dtype}")


def _implementations(
    named: tuple[str, ...], pythons: dict[str, str], device: Device
) -> tuple[list[Ready], list[Missing]]:
    """Those that can be started here; one that was asked for by name and cannot be is an error."""
    say_what_is_left_out()
    chosen = [find_implementation(name) for name in dict.fromkeys(named)] if named else judged_unasked()
    names = [implementation.name for _, implementation in chosen]
    folder_names = [implementation.folder_name for _, implementation in chosen]
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"two implementations are called {name}", where="--impl", hint="rename one's folder and key"
            )
    for name in pythons:
        if name not in folder_names:
            raise InputError(f"names {name!r}, which is not judged", where="--python", hint=nearest(name, folder_names))
    ready, absent = [], []
    for folder, implementation in chosen:
        check_declared([entry.deviation for entry in implementation.deviations], f"{folder / 'impl.yaml'}")
        found = resolve(implementation, folder, pythons)
        if isinstance(found, Ready) and device not in implementation.capabilities.devices:
            devices = ", ".join(implementation.capabilities.devices)
            found = Missing(implementation, f"runs on {devices}, not on {device}", f"--device {devices.split(', ')[0]}")
        if isinstance(found, Ready):
            ready.append(found)
        elif named:
            raise InputError(f"{implementation.name}: {found.reason}", where="--impl", hint=found.hint)
        else:
            absent.append(found)
    if not ready:
        lines = "; ".join(f"{m.implementation.name}: {m.reason}" for m in absent)
        raise InputError(
            f"no implementation can be started here ({lines})", hint="pip install 'encoder-conformance[all]'"
        )
    return ready, absent


@contextlib.contextmanager
def _under_way(in_progress: Run) -> Generator[None]:
    """Its workers start meanwhile; they are ended if what is done meanwhile fails."""
    in_progress.begin()
    try:
        yield
    except BaseException:
        in_progress.abort()
        raise


def _frozen(cases: list[Case], specification: Specification) -> dict[str, Expected]:
    """The frozen goldens, every one checked before anything is asked."""
    manifest = read_manifest()
    check_ids(specification.with_golden, manifest)
    return {case.id: read_golden(case, manifest, constants()) for case in cases}


def _computed(cases: list[Case], jobs: int) -> dict[str, Expected]:
    """Goldens that are computed now: those of a layer of the user's own, or of another seed."""
    found = {}
    try:
        with progress_bar() as progress, contextlib.closing(compute_all(cases, constants(), jobs)) as computed:
            bar = progress.add_task("computing goldens", total=len(cases))
            for case, expected in computed:
                found[case.id] = expected
                progress.update(bar, advance=1, description=f"computed the golden of {case.id}")
    except BaseException as error:
        computed_of_all = f"{len(found)} of {len(cases)} goldens were computed, and they are not kept"
        error.add_note(f"nothing was judged, and no report is written: {computed_of_all}")
        raise
    return found
