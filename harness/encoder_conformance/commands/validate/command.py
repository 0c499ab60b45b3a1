"""`conform validate`: an ONNX file of any origin."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from encoder_conformance.commands.commands import unless_faulty
from encoder_conformance.commands.completion import deviations, layers
from encoder_conformance.commands.files_as_targets import refuse_files
from encoder_conformance.commands.inspect.layer_selection import encoder_layer_of, find_layer
from encoder_conformance.commands.options import (
    ANY_PATH,
    FILE,
    Duration,
    arguments_option,
    deliver,
    interpreters_option,
    jobs_option,
    layer_parameters_of,
    result_options,
    shown_progress,
    worker_limits,
)
from encoder_conformance.commands.validate.against_saved import is_saved
from encoder_conformance.commands.validate.evidence import ValidationRequest
from encoder_conformance.commands.validate.rounding.fixing import fixed
from encoder_conformance.commands.validate.runtimes import RUNTIMES
from encoder_conformance.commands.validate.show import show_validation
from encoder_conformance.commands.validate.validation import validate
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.platform.errors import InputError, nearest
from encoder_conformance.protocol.messages import MOST_NODES
from encoder_conformance.reports.run.folder import begun_result
from encoder_conformance.reports.run.terminal import console
from encoder_conformance.subjects.opening import is_module
from encoder_conformance.subjects.subject import SubjectRequest

NAME = "validation.json"

_EXAMPLES = """
\b
Examples:
  conform validate model.onnx
  conform validate model.onnx --layer post-relu --parameters w.safetensors
  conform validate model.onnx --layer my-layer.yaml --mask ignore
  conform validate model.onnx --against model.py:encoder
  conform validate fused.onnx --against model.onnx
  conform validate model.onnx --strict            (in CI: a warning fails)
  conform validate somebody-elses.onnx --isolate --memory 4GiB
  conform validate int8.onnx --against model.onnx --data inputs.npz
  conform validate int8.onnx --against model.onnx --fix better.onnx
"""


class Limit(click.FloatRange):
    """A number from 0: NaN, which no error is above, holds nothing."""

    def __init__(self) -> None:
        super().__init__(0)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is no limit", param, ctx)
        return number


@click.command("validate", epilog=_EXAMPLES)
@click.argument("model", type=ANY_PATH, metavar="MODEL.onnx")
@click.option(
    "--layer",
    metavar="ID|YAML",
    shell_complete=layers,
    help="The layer that it should be; default: inferred from the graph.",
)
@click.option(
    "--parameters",
    metavar="FILE|portable",
    help="What it was made from: safetensors in the specification's names, or the specification's own drawn ones.",
)
@click.option(
    "--mask",
    type=click.Choice(["attend", "ignore", "additive"]),
    help="The meaning of true in its mask; default: inferred.",
)
@click.option(
    "--runtime",
    "runtimes",
    multiple=True,
    type=click.Choice(list(dict.fromkeys(runtime for runtime, _ in RUNTIMES))),
    help="Default: each that is here, at every level.",
)
@click.option("--limit", type=Limit(), help="Relative error that a file with integer weights may have.")
@click.option(
    "--data",
    metavar="FILE.npz|SCRIPT.py",
    help="Your own inputs, by the file's names: what a limit then holds. A script defines `data`: dicts of arrays, "
    "a function that gives them, or a CalibrationDataReader; SCRIPT.py:NAME another.",
)
@click.option(
    "--against",
    metavar="SOURCE",
    help="What it was made from: package.module:name, file.py:name, hf:TYPE, weights.safetensors, or a file .onnx; "
    "or inputs and outputs that were saved, in an .npz by the file's names.",
)
@arguments_option("the source's class")
@click.option("--at", metavar="PATH", help="The part of the source that was exported, such as encoder.layer.0.")
@click.option(
    "--deviation",
    "deviations",
    multiple=True,
    shell_complete=deviations,
    metavar="ID",
    help="What it does otherwise on purpose, gelu-quick or mask-causal for CLIP (conform list deviations).",
)
@click.option(
    "--fix",
    type=FILE,
    metavar="NEW.onnx",
    help="Write the file with what is safe and mechanical mended (order, axis names, stale shapes), and, with --limit, "
    "with what of its integers is better left in float; and judge that.",
)
@click.option(
    "--timeout",
    "seconds",
    type=Duration(),
    help="Time to look into the file, to load it, and for each answer; default: 5m, 2m.",
)
@click.option(
    "--nodes",
    "most_nodes",
    type=click.IntRange(1),
    default=MOST_NODES,
    show_default=True,
    help="The most nodes that are read, functions inlined.",
)
@click.option("--strict", is_flag=True, help="A warning fails, as an error does: exit status 1.")
@interpreters_option("onnx_file")
@worker_limits
@jobs_option
@result_options("validate", NAME)
def validate_(
    layer: str | None,
    parameters: str | None,
    against: str | None,
    arguments: dict[str, str],
    at: str | None,
    fix: Path | None,
    jobs: int,
    out: Path | None,
    as_json: bool,
    **stated: Any,
) -> int:
    """Validate an ONNX file: its structure, sizes, masks, numbers, runtimes and levels. No specification is needed:
    the layer is inferred from the graph, and judged with the file's own parameters.
    """
    command = "`validate` judges files of encoder layers"
    stated["layer"] = encoder_layer_of(find_layer(layer), command) if layer else None
    if parameters and not layer:
        hint = "name the layer that they are the parameters of"
        raise InputError("are those of a layer", where="--parameters", hint=f"--layer: {hint}")
    stated["parameters"] = layer_parameters_of(stated["layer"], parameters) if parameters else None
    if against is not None:
        stated["against"] = SubjectRequest(against, arguments, at=at)
        if is_module(against) and not is_saved(stated["against"]):
            refuse_files(against)
    elif arguments or at:
        raise InputError("is of a source", where="--arg, --at", hint="--against names it")
    for name in stated["deviations"]:
        if name not in catalogue():
            raise InputError(f"{name} is no known deviation", where="--deviation", hint=nearest(name, catalogue()))
    request = ValidationRequest(**stated)
    with begun_result("validate", NAME, out) as file:
        if fix is not None:
            request = _fixed(request, fix, file.parent, as_json=as_json)
        with shown_progress() as progress:
            validation = validate(request, file.parent, jobs, progress)
        deliver(file, validation, lambda: show_validation(console(), validation), as_json=as_json)
    return unless_faulty(validation.status, validation.diagnoses)


def _fixed(request: ValidationRequest, new: Path, out: Path, *, as_json: bool) -> ValidationRequest:
    """The request for the mended file, which is written; the same request where there is nothing to mend."""
    if new.exists():
        raise InputError("is there already", where=f"--fix {new}", hint="name a file that is not: nothing is replaced")
    with shown_progress() as progress:
        done = fixed(replace(request, fix=new), out, progress)
    if not done:
        click.echo(
            "Nothing is to be mended that is mechanical or a limit asks for; the file is judged as it is.", err=as_json
        )
        return request
    click.echo(f"Written to {new}: {'; '.join(done)}.", err=as_json)
    return replace(request, model=new)
