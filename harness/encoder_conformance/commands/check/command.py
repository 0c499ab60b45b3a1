"""`conform check`: a bare module, without an adapter."""

from pathlib import Path
from typing import Any

import click

from encoder_conformance.commands.check.also import variants_from
from encoder_conformance.commands.check.checking import Checking
from encoder_conformance.commands.check.kept_verdicts import Verdicts
from encoder_conformance.commands.check.show import show_check
from encoder_conformance.commands.check.stated import CheckRequest
from encoder_conformance.commands.check.writing import refuse_folder, write_adapter
from encoder_conformance.commands.commands import unless_faulty
from encoder_conformance.commands.completion import layers
from encoder_conformance.commands.files_as_targets import refuse_files
from encoder_conformance.commands.options import (
    ANY_PATH,
    Duration,
    arguments_option,
    deliver,
    given_option,
    interpreters_option,
    jobs_option,
    level_option,
    memory_option,
    result_options,
    shown_progress,
)
from encoder_conformance.platform.memory import keep_large_arrays
from encoder_conformance.protocol.variants import VARIANTS
from encoder_conformance.reports.run.folder import LOGS, begun_result
from encoder_conformance.reports.run.terminal import console
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.worker.limits import WorkerLimits

NAME = "check.json"

_EXAMPLES = """
\b
Examples:
  conform check model.py:encoder
  conform check my_package.layers:Block --arg width=128 --layer pre-gelu
  conform check my_port.py:Layer --layer hf:roberta
  conform check hf:bert --arg num_hidden_layers=2 --at encoder.layer.0
  conform check hf:bert --attention eager
  conform check model.py:Block --also compile,autocast-bf16,export,half
"""

formats_option = click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    type=click.Choice(list(FORMATS)),
    help="Format to ask it in; default: float64 and float32, those of them that it computes in.",
)


@click.command(epilog=_EXAMPLES)
@click.argument("target", metavar="TARGET")
@arguments_option("the class or function")
@given_option()
@click.option("--inputs", metavar="FILE", help="Arrays that its arguments are given (.npz, by name, with its x).")
@click.option("--at", metavar="PATH", help="The part of the module to judge, such as encoder.layer.0.")
@click.option(
    "--attention",
    type=click.Choice(("eager", "sdpa")),
    help="Which implementation of attention a model of transformers (hf:NAME) computes with; default: what it takes.",
)
@click.option(
    "--layer",
    metavar="ID|YAML|hf:NAME",
    shell_complete=layers,
    help="What it should be: a layer of the specification, or that of a model of transformers (hf:bert, hf:FOLDER, "
    "hf:bert@PATH), at the module's own sizes; or your own YAML file, at its.",
)
@click.option(
    "--write-adapter",
    "adapter",
    type=ANY_PATH,
    metavar="DIR",
    help="Write the adapter that was used, as a folder for `conform run --impl DIR`.",
)
@click.option(
    "--also",
    multiple=True,
    metavar="WORD,…",
    callback=lambda _, __, words: variants_from(words),
    help=f"Judge it in these forms, too: {', '.join(VARIANTS)}.",
)
@level_option
@formats_option
@interpreters_option("module_target, one that has the framework")
@click.option(
    "--timeout",
    "seconds",
    type=Duration(),
    help="Time to look into the module, and for each answer; default: 5m, 2m.",
)
@memory_option
@jobs_option
@click.option("--rerun", is_flag=True, help="Judge it anew, though nothing that its last verdict rests on has changed.")
@click.option("-v", "--verbose", is_flag=True, help="Also the map, stages, evidence, and each check that fails.")
@result_options("check", NAME)
def check(
    target: str,
    attention: str | None,
    layer: str | None,
    adapter: Path | None,
    memory: int | None,
    out: Path | None,
    as_json: bool,
    rerun: bool,
    verbose: bool,
    **asked: Any,
) -> int:
    """Judge a module: package.module:name, file.py:name or hf:TYPE. It needs no adapter and no export.

    It infers what layer the module is, proves the map of its parameters on the live module, and tests that. A module
    does not say what it should be: --layer does. Without it, what is unusual is a warning.
    """
    refuse_files(target)
    keep_large_arrays()
    limits = WorkerLimits(memory) if memory else None
    request = CheckRequest(target, limits=limits, narrow=True, supposing=True, **asked).with_attention(attention)
    request = request.stating(layer, "`check` judges encoder layers")
    if adapter is not None:
        refuse_folder(adapter)
    with begun_result("check", NAME, out) as file:
        verdicts = Verdicts(request, file.parent)
        result = None if rerun or adapter else verdicts.recalled()
        if result is None:
            with shown_progress() as progress:
                checking = Checking(request, file.parent / LOGS / "check.log", progress)
                result = checking.result()
            verdicts.keep(result, checking.files_read)
        deliver(file, result, lambda: show_check(console(), result, verbose=verbose), as_json=as_json)
    if adapter is not None:
        command = write_adapter(result.parts[0], checking.module.session.ready.implementation, adapter)
        click.echo(f"{adapter}: its adapter. {command}", err=as_json)
    return unless_faulty(result.status, [each for part in result.parts for each in part.diagnoses])
