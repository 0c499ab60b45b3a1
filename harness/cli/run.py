"""`conform run`: judges implementations and prints the matrix.

What judges them is imported once their workers have started (suite.py): they import their frameworks at the same time.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from encoder_conformance.allocator import give_large_arrays_back
from encoder_conformance.cli.chosen import chosen_implementations
from encoder_conformance.cli.options import (
    Duration,
    Part,
    Seed,
    dtypes_option,
    interpreters_option,
    worker_limits,
)
from encoder_conformance.errors import InputError
from encoder_conformance.impl.interpreter import Ready
from encoder_conformance.impl.manifest import Device
from encoder_conformance.report.folder import LATEST, LOGS, RUNS, begun_run
from encoder_conformance.results import Shard, Verbosity
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.level import LEVELS, Level
from encoder_conformance.threads import share
from encoder_conformance.worker.early import early_workers, served_first
from encoder_conformance.worker.launch import Launch
from encoder_conformance.worker.limits import Limits, default_memory
from encoder_conformance.worker.log import log_of

if TYPE_CHECKING:
    from encoder_conformance.shards.partition import Seconds

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
  conform run --level required --shard 1/3
  conform run --resume conform-report/latest
  conform run --level required --scheduler tcp://127.0.0.1:8786
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
@dtypes_option
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
    type=Seed(),
    default=0,
    show_default=True,
    help="Seed of inputs and parameters; 0 has frozen goldens, for any other the oracle computes them first. "
    "With random, one is drawn and printed: nobody can have its expected values before.",
)
@click.option("--shard", type=Part(), help="One part of the plan, of about equal parts; `conform merge` unites them.")
@click.option(
    "--balanced-by",
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="An earlier run, whose seconds make the parts equal. Every part needs the same.",
)
@click.option(
    "--resume",
    "earlier",
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="An earlier run, such as one that was interrupted: what it judged is taken over where nothing has changed.",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Run the plan on the workers of a Dask cluster: the scheduler's address, tcp://host:8786 (docs/scale.md).",
)
@interpreters_option("an implementation")
@worker_limits
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for report.json, records.jsonl and the workers' logs; "
    f"default: a new one in {RUNS}, to which {RUNS / LATEST} then points.",
)
@click.option("--keep-failing", is_flag=True, help="Keep the tensors of checks that fail, in failing/ of that folder.")
@click.option("--quiet", is_flag=True, help="Print what is wrong, the result, and nothing else.")
@click.option("--verbose", is_flag=True, help="Print a line for each check as it is judged.")
@click.option("--update-declared", is_flag=True, help="Bring each impl.yaml's list of deviations up to this run.")
@click.option("--reason", help="With --update-declared: why it deviates, of each deviation that is new in the list.")
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
    shard: Shard | None,
    balanced_by: Path | None,
    earlier: Path | None,
    scheduler: str | None,
    pythons: dict[str, str],
    out: Path | None,
    keep_failing: bool,
    quiet: bool,
    verbose: bool,
    update_declared: bool,
    reason: str | None,
    limits: Limits,
) -> int:
    """Judge implementations against the specification and print the matrix.

    Without --level and --case it runs the core: the few cases that detect every known deviation. The cases that
    exclude most deviations come first.

    Exit status: 0 all as expected; 1 something did not conform; 2 wrong usage or bad input; 3 incomplete.
    """
    start_time = time.monotonic()
    if quiet and verbose:
        raise InputError("are given together", where="--quiet, --verbose", hint="leave out one of them")
    verbosity: Verbosity = "quiet" if quiet else "verbose" if verbose else "usual"
    give_large_arrays_back()
    if update_declared and (globs or layer_file or level or dtypes or budget or fail_fast or shard or earlier):
        raise InputError(
            "a part of the suite cannot say what an implementation's deviations are",
            where="--update-declared",
            hint="run it without --case, --layer, --level, --dtype, --budget, --fail-fast, --shard and --resume",
        )
    if reason is not None and not update_declared:
        raise InputError("is of deviations that are declared", where="--reason", hint="add --update-declared")
    if scheduler:
        from encoder_conformance.cli.on_cluster import refuse_with_scheduler, run_on_cluster
        from encoder_conformance.cluster.part import Question

        refuse_with_scheduler(
            layer=layer_file, budget=budget, fail_fast=fail_fast, shard=shard, balanced_by=balanced_by,
            resume=earlier, python=pythons, update_declared=update_declared, keep_failing=keep_failing,
        )  # fmt: skip
        question = Question(
            globs=globs,
            level=level or (None if globs else "core"),
            dtypes=dtypes,
            seed=seed,
            device=device,
            threads=threads,
            memory=None if limits.memory == default_memory() else limits.memory,  # else each machine's own
            isolate=limits.isolate,
        )
        return run_on_cluster(scheduler, impls, question, jobs, out, quiet=quiet)
    if balanced_by and not shard:
        raise InputError("makes parts equal, and there are none", where="--balanced-by", hint="--shard I/N")
    # Earlier runs are read before this one has a folder: `latest` is then this one's.
    recorded: Seconds = {}
    interrupted = None
    if balanced_by:
        from encoder_conformance.report.reading import read_report
        from encoder_conformance.shards.partition import recorded_seconds

        recorded = recorded_seconds(read_report(balanced_by).records)
    if earlier:
        from encoder_conformance.cli.resuming import earlier_run

        interrupted = earlier_run(earlier, out)
    with begun_run(out) as folder:
        ready, absent = chosen_implementations(impls, pythons, device)
        at_once = jobs or os.cpu_count() or 1
        # Goldens that are not frozen are computed first, by all processors.
        first = served_first(ready, at_once) if seed == 0 and layer_file is None and not limits.isolate else []
        with early_workers(_launches(first, folder, threads or share(at_once), limits)) as early:
            from encoder_conformance.cli.judging import RunOptions
            from encoder_conformance.cli.suite import Suite, judge_suite

            options = RunOptions(
                jobs, device, threads, seed, start_time, budget, fail_fast, limits, shard, verbosity, keep_failing
            )
            suite = Suite(
                globs=globs,
                layer_file=layer_file,
                level=level or (None if globs or update_declared else "core"),
                dtypes=dtypes,
                recorded=recorded,
                interrupted=interrupted,
                updates_declared=update_declared,
                reason=reason,
            )
            return judge_suite(suite, ready, absent, early, folder, out, options)


def _launches(ready: list[Ready], folder: Path, threads: int, limits: Limits) -> Iterator[Launch]:
    for each in ready:
        yield Launch.of(each, threads, log_of(folder / LOGS, each.implementation.name), limits)
