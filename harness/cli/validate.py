"""`conform validate`: validates an ONNX file from any source."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from encoder_conformance.cli.options import interpreters, layer_parameters_of, progress_bar, refuse_unwritable
from encoder_conformance.errors import InputError
from encoder_conformance.files import replace_file
from encoder_conformance.inspect.layer_selection import encoder_layer_of, find_layer
from encoder_conformance.report.terminal import console
from encoder_conformance.validate.rows import ROWS
from encoder_conformance.validate.show import show_validation
from encoder_conformance.validate.validation import Asked, MaskMeaning, Progress, validate

_EXAMPLES = """
\b
Examples:
  conform validate model.onnx
  conform validate model.onnx --layer post-relu-512 --parameters weights.safetensors
  conform validate model.onnx --layer my-layer.yaml --mask ignore --runtime onnxruntime
  conform validate quantised.onnx --limit 0.02 --json > validation.json
"""


@click.command("validate", epilog=_EXAMPLES)
@click.argument("model", type=click.Path(path_type=Path), metavar="MODEL.onnx")
@click.option("--layer", metavar="ID|YAML", help="The expected layer; default: inferred from the graph, and shown.")
@click.option(
    "--parameters",
    metavar="FILE|portable",
    help="The expected parameters: safetensors in the specification's names, or portable: the specification's own.",
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
    type=click.Choice(list(dict.fromkeys(runtime for runtime, _ in ROWS))),
    help="Default: every installed one, at every level.",
)
@click.option("--limit", type=click.FloatRange(0), help="Relative error that a file with integer weights may have.")
@click.option("--python", "pythons", multiple=True, metavar="NAME=PATH", help="Interpreter for onnx_file.")
@click.option(
    "--jobs", type=click.IntRange(1), help="Processes that compute expected outputs; default: one per processor."
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("conform-report"),
    show_default=True,
    help="Folder for validation.json and the workers' logs.",
)
@click.option("--json", "as_json", is_flag=True, help="validation.json on standard output, and nothing else.")
def validate_(
    model: Path,
    layer: str | None,
    parameters: str | None,
    mask: MaskMeaning | None,
    runtimes: tuple[str, ...],
    limit: float | None,
    pythons: tuple[str, ...],
    jobs: int | None,
    out: Path,
    as_json: bool,
) -> int:
    """Validate an ONNX file: its structure, sizes, masks, numbers, runtimes and levels. No specification is needed:
    the layer is inferred from the graph, and judged with the file's own parameters.

    Exit status: 0 it does what it should; 1 it was judged and does not; 2 it could not be judged, or wrong usage.
    """
    expected_layer = encoder_layer_of(find_layer(layer), "`validate` judges files of encoder layers") if layer else None
    if parameters and expected_layer is None:
        hint = "name the layer of these parameters"
        raise InputError("needs a layer", where="--parameters", hint=f"--layer: {hint}")
    expected_parameters = layer_parameters_of(expected_layer, parameters) if expected_layer and parameters else None
    refuse_unwritable(out)
    request = Asked(model, expected_layer, expected_parameters, mask, runtimes, interpreters(pythons), limit)
    with _progress() as progress:
        validation = validate(request, out, jobs or os.cpu_count() or 1, progress)
    text = validation.model_dump_json(indent=1)
    replace_file(out / "validation.json", text.encode())
    if as_json:
        click.echo(text)
    else:
        show_validation(console(), validation)
        click.echo(f"Everything: {out / 'validation.json'}")
    return validation.status


@contextmanager
def _progress() -> Iterator[Progress]:
    with progress_bar() as bar:
        task = bar.add_task("starting")
        yield Progress(
            begin=lambda message, total: bar.reset(task, total=total, description=message),
            step=lambda message: bar.update(task, advance=1, description=message),
        )
