"""`conform export`: a layer as an ONNX file to deploy."""

import tempfile
from pathlib import Path

import click
import numpy as np

from encoder_conformance.commands.completion import layers
from encoder_conformance.commands.inspect.layer_selection import encoder_layer_of, find_layer
from encoder_conformance.commands.inspect.looking import at_work, dtype_option
from encoder_conformance.commands.options import ANY_PATH, GIVEN_FILE, interpreters_option, layer_parameters_of
from encoder_conformance.implementation.interpreter import Ready
from encoder_conformance.implementation.manifest import default_implementations, find_implementation
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.files import replace_file, writable
from encoder_conformance.protocol.frames import Tensors
from encoder_conformance.protocol.messages import Export, ReadCheckpoint
from encoder_conformance.spec.dtypes import FORMATS, DtypeName
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.parameters import unlike
from encoder_conformance.subjects.starting import open_session, require_ready
from encoder_conformance.worker.failure import Failure
from encoder_conformance.worker.session import Session

_EXAMPLES = """
\b
Examples:
  conform export onnx_pytorch --layer post-relu-512 --to model.onnx
  conform export onnx_direct:opset=23 --layer my-layer.yaml --to model.onnx
  conform export onnx_pytorch --layer pre-gelu --checkpoint m.pt --to m.onnx
"""


@click.command(epilog=_EXAMPLES)
@click.argument("exporter", metavar="EXPORTER[:KEY=VALUE,…]")
@click.option(
    "--layer", required=True, metavar="ID|YAML", shell_complete=layers, help="A layer's id or a file of your own."
)
@click.option(
    "--parameters",
    metavar="FILE|portable",
    default="portable",
    show_default=True,
    help="Safetensors in the specification's names, or portable: the specification's own.",
)
@click.option(
    "--checkpoint",
    type=GIVEN_FILE,
    help="A checkpoint of the framework: a PyTorch state dict, Keras weights.",
)
@dtype_option
@click.option(
    "--mask",
    type=click.Choice(["padding", "full"]),
    default="padding",
    show_default=True,
    help="padding: one mask [batch, sequence], true where x holds data; full: every mask of the specification.",
)
@interpreters_option("the exporter")
@click.option("--to", "target", required=True, type=ANY_PATH, help="The file to write.")
@click.option("--overwrite", is_flag=True, help="Replace the file if it is there.")
def export(
    exporter: str,
    layer: str,
    parameters: str,
    checkpoint: Path | None,
    dtype: DtypeName,
    mask: str,
    pythons: dict[str, str],
    target: Path,
    overwrite: bool,
) -> None:
    """Export a layer to ONNX by one of the exporters (conform list impls), with dynamic batch and sequence axes.

    The file has passed the ONNX checker; `conform validate` judges what it computes.
    """
    chosen = encoder_layer_of(find_layer(layer), "`export` writes encoder layers")
    ready = _find_exporter(exporter, pythons)
    if checkpoint and parameters != "portable":
        raise InputError("are given twice", where="--parameters, --checkpoint", hint="leave out one of them")
    _refuse_unwritable(target, overwrite=overwrite)
    with open_session(ready) as session, at_work(f"exporting {chosen.layer}"):
        tensors = _read_parameters(session, chosen, parameters, checkpoint, dtype)
        request = Export(layer=chosen, dtype=dtype, mask="full" if mask == "full" else "padding")
        answer = session.deploy(request, tensors)
    if isinstance(answer, Failure):
        raise click.ClickException(f"{ready.implementation.name} cannot export {chosen.layer}: {answer.message}")
    data = answer["file"].tobytes()
    with writable(f"--to {target}", "nothing was written"):
        replace_file(target, data)
    click.echo(f"{target}: {chosen.layer} in {dtype} by {ready.implementation.name}, {len(data) / 2**20:.2f} MiB")
    click.echo(f"Validate it: conform validate {target} --layer {layer}")


def _refuse_unwritable(target: Path, *, overwrite: bool) -> None:
    """Raises InputError if the file cannot be written, before an export that may take minutes."""
    where, hint = f"--to {target}", "name a file in an existing folder"
    with writable(where, hint):
        if target.is_dir() or not target.parent.is_dir():
            raise InputError("cannot be written", where=where, hint=hint)
        if target.is_file() and not overwrite:
            raise InputError("is there already", where=where, hint="name another file, or --overwrite")
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}."):
            pass


def _find_exporter(exporter: str, pythons: dict[str, str]) -> Ready:
    folder, implementation = find_implementation(exporter)
    if not implementation.capabilities.export:
        exporters = [candidate.name for _, candidate in default_implementations() if candidate.capabilities.export]
        hint = f"one of {', '.join(exporters)} does"
        raise InputError(f"{implementation.name} exports nothing", where=exporter, hint=hint)
    return require_ready(implementation, folder, pythons, "", exporter)


def _read_parameters(session: Session, layer: Layer, source: str, checkpoint: Path | None, dtype: DtypeName) -> Tensors:
    specified = _convert(layer_parameters_of(layer, source), dtype)
    if checkpoint is None:
        return specified
    answer = session.deploy(ReadCheckpoint(layer=layer, dtype=dtype, path=str(checkpoint.absolute())), specified)
    if isinstance(answer, Failure):
        raise InputError(f"does not hold {layer.layer}: {answer.message}", where=f"--checkpoint {checkpoint}")
    if problem := unlike(layer, {name: value.shape for name, value in answer.items()}):
        raise InputError(f"does not hold {layer.layer}: {problem}", where=f"--checkpoint {checkpoint}")
    return _convert(answer, dtype)


def _convert(parameters: Tensors, dtype: DtypeName) -> Tensors:
    return {name: np.ascontiguousarray(value.astype(FORMATS[dtype].numpy)) for name, value in parameters.items()}
