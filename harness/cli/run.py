"""`conform run`: judges implementations and prints the matrix."""

import contextlib
import os
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path

import click

from encoder_conformance.allocator import give_large_arrays_back
from encoder_conformance.asking import prepare_to_judge
from encoder_conformance.cli.chosen import chosen_implementations
from encoder_conformance.cli.options import Duration, interpreters, progress_bar, refuse_unwritable
from encoder_conformance.errors import InputError
from encoder_conformance.golden.build import compute_all
from encoder_conformance.golden.frozen import FrozenGoldens
from encoder_conformance.impl.manifest import Device
from encoder_conformance.judge.expected import Expected
from encoder_conformance.judge.outcome import EXPECTED, Outcome
from encoder_conformance.plan import plan, select
from encoder_conformance.report.closing import remainder
from encoder_conformance.report.collection import Collection
from encoder_conformance.report.ledger import Ledger, environment
from encoder_conformance.report.terminal import console, show_report
from encoder_conformance.results import Report
from encoder_conformance.runner import Run
from encoder_conformance.scheduling import Assignment
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import constants
from encoder_conformance.spec.dtypes import FORMATS, DtypeName
from encoder_conformance.spec.level import LEVELS, Level
from encoder_conformance.spec.load import load

_EXAMPLES = """
\b
Examples:
  conform run                                      the core: a verdict in a minute
  conform run --impl pytorch --level required
  conform run --impl ./my_backend --dtype float32 --fail-fast
  conform run --impl onnx_pytorch --impl onnx_pytorch:opset=20,level=basic
  conform run --case 'pre-gelu/*' --case '*/padding-right'
  conform run --layer my-layer.yaml --impl jax_pure
  conform run --python keras_tf=/opt/tf/bin/python
  conform run --budget 30s
  conform run --seed 1 --threads 2
"""


@click.command(epilog=_EXAMPLES)
@click.option(
    "--impl",
    "impls",
    multiple=True,
    metavar="NAME|FOLDER[:KEY=VALUE,…]",
    help="Implementation to judge, with its choices; default: all.",
)
@click.option("--case", "globs", multiple=True, metavar="GLOB", help="Cases to run, as layer/situation; default: all.")
@click.option(
    "--layer",
    "layer_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Judge your own layer (YAML) instead of the specification's, in the situations of its family.",
)
@click.option(
    "--level",
    type=click.Choice(LEVELS),
    help="Only cases of this level or a stricter one; default: core, and any level where --case names cases.",
)
@click.option(
    "--dtype", "dtypes", multiple=True, type=click.Choice(list(FORMATS)), help="Default: every dtype of each case."
)
@click.option("--budget", type=Duration(), help="End after this time (30s, 5m), and report what was not reached.")
@click.option("--fail-fast", is_flag=True, help="End at the first case that fails, and diagnose it.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    help="Parallel workers; default: one per processor, if each is worth its start.",
)
@click.option("--threads", type=click.IntRange(1), help="Threads of each worker's framework; default: a fair share.")
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Seed of inputs and parameters; 0 has frozen goldens, for any other the oracle computes them first.",
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
    level: Level | None,
    dtypes: tuple[DtypeName, ...],
    budget: float | None,
    fail_fast: bool,
    device: Device,
    jobs: int | None,
    threads: int | None,
    seed: int,
    pythons: tuple[str, ...],
    out: Path,
    update_declared: bool,
) -> int:
    """Judge implementations against the specification and print the matrix.

    Without --level and --case it runs the core: the few cases that detect every known deviation. The cases that
    exclude most deviations come first.

    Exit status: 0 all as expected; 1 something did not conform; 2 wrong usage or bad input; 3 incomplete.
    """
    start_time = time.monotonic()
    give_large_arrays_back()
    if update_declared and (globs or layer_file or level or dtypes or budget or fail_fast):
        raise InputError(
            "a part of the suite cannot say what an implementation's deviations are",
            where="--update-declared",
            hint="run it without --case, --layer, --level, --dtype, --budget and --fail-fast",
        )
    specification = load(extra_layers=(layer_file,) if layer_file else ())
    all_cases = [replace(case, seed=seed) for case in specification.cases.values()]
    if layer_file:
        all_cases = [case for case in all_cases if case.layer.layer == layer_file.stem]
    by_id = {case.id: case for case in all_cases}
    selected = select(by_id, globs, level or (None if globs or update_declared else "core"))
    ready, absent = chosen_implementations(impls, interpreters(pythons), device)
    refuse_unwritable(out)
    assignments = [Assignment(each, plan(each.implementation, selected, dtypes)) for each in ready]
    frozen = not (layer_file or seed)
    goldens = (
        FrozenGoldens(specification, constants()) if frozen else _compute_goldens(selected, jobs or os.cpu_count() or 1)
    )
    in_progress = Run(
        assignments,
        goldens,
        constants(),
        jobs=jobs,
        device=device,
        logs=out / "logs",
        threads=threads,
        until=None if budget is None else start_time + budget,
        fail_fast=fail_fast,
    )
    with _start_workers(in_progress):
        all_tasks = [plan(each.implementation, all_cases, dtypes) for each in ready]
        if isinstance(goldens, FrozenGoldens):
            goldens.check(selected)
            goldens.read_ahead(in_progress.cases_asked_first())
        prepare_to_judge(selected)
    ledger = Ledger(out, assignments, absent, in_progress, environment(assignments, in_progress, device, seed))
    collection = Collection(assignments, ledger, in_progress, excludes=frozen)
    try:
        with progress_bar() as progress:
            collection.collect(progress)
    except BaseException as error:
        collection.interrupted()
        error.add_note(f"what was judged until then is in {ledger.path}, marked incomplete")
        raise
    if budget and not collection.answered:
        raise InputError(
            f"{budget:g} s are over before a worker has answered",
            where="--budget",
            hint="give it more: a framework takes some seconds to import",
        )
    report = collection.close("first failure" if collection.failed and fail_fast else "budget" if budget else None)
    show_report(console(), report, out, remainder(report, assignments, all_tasks))
    if update_declared and report.complete:
        from encoder_conformance.deviations.update import (
            update_declared as write_declared,  # a twentieth of the command's start
        )

        for assignment in assignments:
            changed = write_declared(report, assignment.ready.implementation, assignment.ready.folder)
            for line in changed:
                click.echo(f"{assignment.ready.folder / 'impl.yaml'}: {line}")
            if any(line.startswith("+") for line in changed):
                click.echo("Write there why it deviates (reason), where to see it (link) and in which cases (when).")
    return _exit_status(report)


def _exit_status(report: Report) -> int:
    outcomes = {record.outcome for record in report.records}
    if report.ended_by in ("budget", "first failure") and not outcomes <= {*EXPECTED, Outcome.NOT_RUN}:
        return 1  # the user ended it, and what was judged until then did not conform
    if not report.complete or outcomes <= {Outcome.UNSUPPORTED}:
        return 3
    return 0 if outcomes <= EXPECTED else 1


@contextlib.contextmanager
def _start_workers(in_progress: Run) -> Generator[None]:
    """Start the run's workers, and stop them if the block fails."""
    in_progress.begin()
    try:
        yield
    except BaseException:
        in_progress.abort()
        raise


def _compute_goldens(cases: list[Case], jobs: int) -> Callable[[Case], Expected]:
    """The goldens of `cases`, computed by the oracle: for the user's own layer, or another seed."""
    goldens = {}
    try:
        with progress_bar() as progress, contextlib.closing(compute_all(cases, constants(), jobs)) as computed:
            bar = progress.add_task("computing goldens", total=len(cases))
            for case, expected in computed:
                goldens[case.id] = expected
                progress.update(bar, advance=1, description=f"computed the golden of {case.id}")
    except BaseException as error:
        progress_text = f"{len(goldens)} of {len(cases)} goldens were computed, and they are not kept"
        error.add_note(f"nothing was judged, and no report is written: {progress_text}")
        raise
    return lambda case: goldens[case.id]
