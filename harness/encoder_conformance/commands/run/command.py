"""`conform run`: judges implementations and prints the matrix.

What judges them is imported once their workers have started (suite.py): they import their frameworks at the same time.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from encoder_conformance.commands.completion import implementations
from encoder_conformance.commands.options import (
    ANY_PATH,
    FOLDER,
    GIVEN_FILE,
    Duration,
    PartType,
    Seed,
    cases_option,
    dtypes_option,
    file_alone,
    interpreters_option,
    worker_limits,
)
from encoder_conformance.commands.run_arguments import RunArguments
from encoder_conformance.platform.interrupts import ended_at_once
from encoder_conformance.platform.memory import give_large_arrays_back
from encoder_conformance.platform.processors import share
from encoder_conformance.reports.run.folder import LATEST, LOGS, RUNS
from encoder_conformance.spec.level import LEVELS

if TYPE_CHECKING:
    from encoder_conformance.implementation.interpreter import Ready
    from encoder_conformance.worker.launch import Launch

_EXAMPLES = """
\b
Examples:
  conform run                                  the core: a verdict in a minute
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
    shell_complete=implementations,
    metavar="NAME|FOLDER[:KEY=VALUE,…]",
    help="Implementation to judge, with its choices; default: all.",
)
@cases_option
@click.option(
    "--layer",
    "layer_file",
    type=GIVEN_FILE,
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
@click.option(
    "--shard", type=PartType(), help="One part of the plan, of about equal parts; `conform merge` unites them."
)
@click.option(
    "--balanced-by",
    type=ANY_PATH,
    metavar="RUN",
    help="An earlier run, whose seconds make the parts equal. Every part needs the same.",
)
@click.option(
    "--resume",
    "earlier",
    type=ANY_PATH,
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
    type=FOLDER,
    help="Folder for report.json, records.jsonl and the workers' logs; "
    f"default: a new one in {RUNS}, to which {RUNS / LATEST} then points.",
)
@click.option("--keep-failing", is_flag=True, help="Keep the tensors of checks that fail, in failing/ of that folder.")
@click.option("--json", "as_json", is_flag=True, help="report.json on standard output, and nothing else.")
@click.option("--quiet", is_flag=True, help="Print what is wrong, the result, and nothing else.")
@click.option("--verbose", is_flag=True, help="Print a line for each check as it is judged.")
@click.option("--update-declared", is_flag=True, help="Bring each impl.yaml's list of deviations up to this run.")
@click.option("--reason", help="With --update-declared: why it deviates, of each deviation that is new in the list.")
def run(**given: Any) -> int:
    """Judge implementations against the specification and print the matrix.

    Without --level and --case it runs the core: the few cases that detect every known bug, the most informative
    first.
    """
    arguments = RunArguments(begun=time.monotonic(), **given)
    arguments.refuse_contradictions()
    give_large_arrays_back()
    if arguments.scheduler:
        with ended_at_once():
            from encoder_conformance.commands.cluster.on_cluster import run_on_cluster

        return run_on_cluster(arguments)
    return _run_here(arguments)


def _run_here(arguments: RunArguments) -> int:
    """Start the first workers, and while they import their frameworks, import what judges their answers."""
    with ended_at_once():
        from encoder_conformance.commands.run.chosen import chosen_implementations
        from encoder_conformance.commands.run.resuming import earlier_runs
        from encoder_conformance.engine.head_start import head_start
        from encoder_conformance.reports.run.folder import NAME, begun_run

    earlier = earlier_runs(arguments)  # before this run has a folder: `latest` is then this one's
    with begun_run(arguments.out) as folder, file_alone(folder / NAME if arguments.as_json else None):
        ready, absent = chosen_implementations(arguments.impls, arguments.pythons, arguments.device)
        with head_start(_launches(arguments, ready, folder)) as started:
            from encoder_conformance.commands.run.suite import judge_suite

            return judge_suite(arguments, earlier, ready, absent, folder, started)


def _launches(arguments: RunArguments, ready: "list[Ready]", folder: Path) -> "Iterator[Launch]":
    """How the first workers are started. Goldens that are not frozen are computed first, by all processors."""
    from encoder_conformance.engine.head_start import first_served
    from encoder_conformance.worker.launch import Launch, log_of

    published = any(each.implementation.is_of_published for each in ready)
    if arguments.seed or arguments.layer_file or published or arguments.limits.isolate:
        return
    threads = arguments.threads or share(arguments.at_once)
    for each in first_served(ready, lambda each: each.implementation.timeouts.longest_task)[: arguments.at_once]:
        yield Launch.of(each, threads, log_of(folder / LOGS, each.implementation.name), arguments.limits)
