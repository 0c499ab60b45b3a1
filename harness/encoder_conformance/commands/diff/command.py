"""`conform diff`: two layers with the same parameters."""

import contextlib
from pathlib import Path

import click

from encoder_conformance.commands.check.stated import CheckRequest
from encoder_conformance.commands.diff.comparing import DiffRequest, compare
from encoder_conformance.commands.diff.show import show_diff
from encoder_conformance.commands.options import deliver, jobs_option, refuse_unwritable, result_options, shown_progress
from encoder_conformance.platform.errors import InputError
from encoder_conformance.reports.run.terminal import console
from encoder_conformance.subjects.opening import open_subject
from encoder_conformance.subjects.subject import Subject, SubjectRequest

_EXAMPLES = """
\b
Examples:
  conform diff model.py:Old model.py:New
  conform diff torch_port.py:Layer keras_port.py:Layer
  conform diff model.py:Layer model.onnx --inputs x.safetensors
  conform diff hf:bert@encoder.layer.0 pytorch
"""


@click.command(epilog=_EXAMPLES)
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option("--layer", metavar="ID|YAML|hf:NAME", help="What both should be; default: what A is, else B.")
@click.option(
    "--inputs",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE.safetensors",
    help="Your own x [batch, sequence, d_model] and lengths [batch]; default: the core's.",
)
@jobs_option
@result_options("diff.json")
def diff(first: str, second: str, layer: str | None, inputs: Path | None, jobs: int, out: Path, as_json: bool) -> int:
    """Compare two layers: B gets A's parameters, and both the same inputs.

    A and B are each a module (as of `conform check`; MODULE@PATH names a part), an implementation, or an ONNX file.
    Where they are apart it says which of them is off, and by which known bug.

    Exit status: 0 they agree; 1 they do not; 2 they cannot be compared, or wrong usage.
    """
    stated = CheckRequest(first).stating(layer, "`diff` compares encoder layers")
    if first == second:
        raise InputError("is both A and B", where=first, hint="name two")
    refuse_unwritable(out)
    stated = stated.with_layer_read(out / "logs" / "diff-stated.log")
    with shown_progress() as progress, contextlib.ExitStack() as opened:
        progress.begin("starting both", 2)

        def opening(named: str, log: str) -> Subject:
            subject = open_subject(SubjectRequest(named, layer=stated.layer, resize=stated.resize), out / "logs" / log)
            opened.callback(subject.close)
            progress.step(named)
            return subject

        a, b = opening(first, "diff-a.log"), opening(second, "diff-b.log")
        result = compare(a, b, DiffRequest(stated.layer, inputs, jobs), progress)
    deliver(out / "diff.json", result, lambda: show_diff(console(), result), as_json=as_json)
    return result.status
