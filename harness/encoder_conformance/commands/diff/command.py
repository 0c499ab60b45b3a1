"""`conform diff`: two layers with the same parameters."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from encoder_conformance.commands.check.covered import up_to
from encoder_conformance.commands.check.stated import CheckRequest
from encoder_conformance.commands.check.verdict import choices
from encoder_conformance.commands.commands import unless_faulty
from encoder_conformance.commands.completion import layers
from encoder_conformance.commands.diff.comparing import compare
from encoder_conformance.commands.diff.results import DiffResult, TensorDifference, WholeDiffResult
from encoder_conformance.commands.diff.show_whole import show_whole
from encoder_conformance.commands.diff.whole import compare_modules
from encoder_conformance.commands.files_as_targets import refuse_files
from encoder_conformance.commands.options import (
    GIVEN_FILE,
    deliver,
    jobs_option,
    result_options,
    shown_progress,
)
from encoder_conformance.judging.tally import Tally
from encoder_conformance.platform.errors import InputError
from encoder_conformance.reports.run.folder import LOGS, begun_result
from encoder_conformance.reports.run.terminal import SIGMA, console, diagnosis_text, show_finding, show_line
from encoder_conformance.spec.stages import stages
from encoder_conformance.subjects.opening import is_module, is_unread, open_module, open_subject
from encoder_conformance.subjects.subject import Subject, SubjectRequest

NAME = "diff.json"

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
@click.option(
    "--layer", metavar="ID|YAML|hf:NAME", shell_complete=layers, help="What both should be; default: what A is, else B."
)
@click.option(
    "--inputs",
    type=GIVEN_FILE,
    metavar="FILE.safetensors",
    help="Your own x [batch, sequence, d_model] and lengths [batch]; default: the core's.",
)
@jobs_option
@result_options("diff", NAME)
def diff(
    first: str, second: str, layer: str | None, inputs: Path | None, jobs: int, out: Path | None, as_json: bool
) -> int:
    """Compare two layers: B gets A's parameters, and both the same inputs.

    A and B are each a module (as of `conform check`; MODULE@PATH names a part), an implementation, or an ONNX file.
    Where they are apart it says which of them is off, and by which known bug. Two modules of which no layer can be read
    are compared by their outputs, each with its own parameters.
    """
    refuse_files(*filter(is_module, (first, second)))
    stated = CheckRequest(first).stating(layer, "`diff` compares encoder layers")
    if first == second:
        raise InputError("is both A and B", where=first, hint="name two")
    with begun_result("diff", NAME, out) as file:
        result = _compared(stated, second, inputs, jobs, file.parent / LOGS)
        if isinstance(result, WholeDiffResult):
            deliver(file, result, lambda: show_whole(console(), result), as_json=as_json)
            return result.status
        deliver(file, result, lambda: show_diff(console(), result), as_json=as_json)
    return unless_faulty(result.status, [each for side in result.sides for each in side.diagnoses])


def _compared(
    stated: CheckRequest, second: str, inputs: Path | None, jobs: int, logs: Path
) -> DiffResult | WholeDiffResult:
    """The target that was stated, and the second, compared; two modules of which no layer was read by their outputs."""
    stated = stated.with_layer_read(logs / "diff-stated.log")
    as_boxes = stated.layer is None and inputs is None and is_module(stated.target) and is_module(second)
    with shown_progress() as progress, contextlib.ExitStack() as opened:
        progress.begin("starting both", 2)

        def opening(named: str, log: str) -> Subject:
            request = SubjectRequest(named, layer=stated.layer, resize=stated.resize, supposing=True)
            subject = (open_module if as_boxes else open_subject)(request, logs / log)
            opened.callback(subject.close)
            progress.step(named)
            return subject

        a, b = opening(stated.target, "diff-a.log"), opening(second, "diff-b.log")
        if as_boxes and (is_unread(a) or is_unread(b)):
            return compare_modules(a, b, SubjectRequest(second), progress)
        return compare(a, b, stated.layer, inputs, jobs, progress)


def show_diff(screen: Console, result: DiffResult) -> None:
    for mark, side in zip("AB", result.sides, strict=True):
        what = choices(side.layer) if side.layer else f"as {result.layer.layer}"
        show_line(screen, f"{mark}  {side.name}: {what}")
    screen.print(_table(result))
    for mark, side in zip("AB", result.sides, strict=True):
        tally = Tally.of(record.outcome for record in side.records)
        show_line(screen, f"{mark} against {result.layer.layer} ({choices(result.layer)}): {tally}")
        for diagnosis in side.diagnoses:
            show_line(screen, diagnosis_text(diagnosis), "bold")
    for finding in result.findings:
        show_finding(screen, finding)
    for record in result.unanswered[:4]:
        message = record.message.splitlines()[0] if record.message else record.outcome.value
        show_line(screen, f"✗ {record.implementation} {record.case} {record.check}: {message}", "red")
    show_line(screen, last_line(result), "bold red" if result.status else "bold green")
    show_line(screen, f"{SIGMA}.", "dim")


def _table(result: DiffResult) -> Table:
    """A row for each stage and the largest of the gradients, over all cases."""
    table = Table(box=None, header_style="bold")
    for title in ("worst of all cases", "A − B, √2 σ", "A, σ", "B, σ", "in"):
        table.add_column(title, justify="left" if title in ("worst of all cases", "in") else "right")
    for name, worst in _worst(result):
        numbers = (_number(value) for value in (worst.rms, *worst.sides))
        table.add_row(name, *numbers, worst.case.rpartition("/")[2], style=None if worst.agrees else "red")
    return table


def _worst(result: DiffResult) -> Iterator[tuple[str, TensorDifference]]:
    groups: dict[str, list[TensorDifference]] = {}
    for each in result.apart:
        name = "gradients" if each.check == "gradients" else each.tensor
        groups.setdefault(name, []).append(each)
    for name, found in groups.items():
        worst = max(found, key=lambda each: float("inf") if each.rms is None else each.rms)
        yield (f"gradient of {worst.tensor}" if name == "gradients" else name), worst


def _number(value: float | None) -> str:
    return "shape" if value is None else f"{value:.2f}" if value < 100 else f"{value:.2g}"


def last_line(result: DiffResult) -> str:
    if result.status == 2:
        return "Nothing could be compared: see above."
    if result.status == 0:
        largest = max((each.rms or 0.0) for each in result.apart)
        without = ", ".join(dict.fromkeys(name for side in result.sides for name in side.without))
        alike = f"They agree{f', without {without},' if without else ''} within {largest:.2f} √2 σ"
        off = [side for side in result.sides if side.failed]
        right = f"neither is {result.layer.layer}" if off else "both are right"
        return f"{alike}, and {right}: asked {up_to(result.asked)}, {', '.join(_covering(result))}"
    if not (result.differing or result.unanswered):
        return "Their numbers agree, and a call or a checkpoint of one means another thing in the other: see above"
    order = stages(result.layer)  # of computation, over all cases
    differing = [each.tensor for each in result.differing if each.check != "gradients"]
    where = f", first at {min(differing, key=order.index)}" if differing else ""
    return f"They differ{where}: {_blamed(result)}"


def _covering(result: DiffResult) -> Iterator[str]:
    """Beside sizes and format, what an agreement covers: masks, and gradients with nothing dropped."""
    yield "with masks and without" if any(each.longest_masked for each in result.asked) else "without masks"
    back = any("gradients" in each.checks for each in result.asked)
    yield "with gradients, in evaluation alone" if back else "forward alone"


def _blamed(result: DiffResult) -> str:
    one, other = result.sides
    if one.failed and other.failed:
        return "both are off"
    if not (one.failed or other.failed):
        return "each is right within its noise, at opposite ends of it"
    mark, side = ("A", one) if one.failed else ("B", other)
    found = [each for each in side.diagnoses if each.confidence == "explained"]
    names = dict.fromkeys(name for each in found for name in each.deviations)
    return f"{mark} is off" + (f", by {' and '.join(names)}" if names else "")
