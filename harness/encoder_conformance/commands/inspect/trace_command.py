"""`conform trace`: every stage's shape, read from the live module."""

import os
from dataclasses import asdict, astuple
from math import prod

import click
from rich.text import Text

from encoder_conformance.commands.completion import cases
from encoder_conformance.commands.inspect import looking
from encoder_conformance.commands.inspect.dropouts import with_dropped
from encoder_conformance.commands.inspect.layer_selection import describe_case, find_case, refuse_too_large
from encoder_conformance.commands.inspect.stack_layers import input_rows, trace_inside
from encoder_conformance.commands.inspect.trace import TracedRow, estimate_judging_seconds
from encoder_conformance.commands.inspect.trace import trace as compute_trace
from encoder_conformance.commands.options import print_json
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.golden.build import compute_all
from encoder_conformance.oracle.golden.goldens import Goldens
from encoder_conformance.platform.errors import InputError
from encoder_conformance.reports.run.terminal import show_line
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.load import constants
from encoder_conformance.spec.parameters import parameters_of
from encoder_conformance.subjects.starting import find_task, open_session

_EXAMPLES = """
\b
Examples:
  conform trace --layer pre-gelu-512 --batch 32 --sequence 50
  conform trace --d-model 768 --num-heads 12 --d-ff 3072
  conform trace --layer encoder-512 --length 45 --length 38
  conform trace --impl ./my_backend --case post-gelu/padding-right
  conform trace --layer my-layer.yaml --batch 2 --sequence 16 --judge
"""


@click.command(epilog=_EXAMPLES)
@looking.impl_option
@click.option(
    "--case", metavar="LAYER/SITUATION", shell_complete=cases, help="Trace this case, and judge it by its golden."
)
@looking.layer_options
@looking.batch_option
@looking.sequence_option
@click.option(
    "--length",
    "lengths",
    type=click.IntRange(0),
    multiple=True,
    help="Mask padding: the number of valid positions of an item; given several times, repeated over the items.",
)
@looking.dtype_option
@click.option("--judge", is_flag=True, help="Judge each stage by the oracle; slow at large sizes.")
@looking.json_option
def trace(
    layer: looking.LayerOptions,
    impl: str | None,
    case: str | None,
    batch: int | None,
    sequence: int | None,
    lengths: tuple[int, ...],
    dtype: DtypeName,
    judge: bool,
    as_json: bool,
) -> int:
    """Show every stage of a layer: its name, shape and description, and with a golden its rms error in σ.

    The shapes are those of the tensors that the implementation returns at these sizes. For a stack, the stages inside
    each layer are shown too: the layer is run by itself, on its input in the stack.
    """
    if case is not None:
        sizes = (*astuple(layer), batch, sequence, lengths or None)
        if judge or any(value is not None for value in sizes):
            hint = "leave out --layer, the sizes and --judge, or leave out --case"
            raise InputError("a case has a layer, sizes and a golden of its own", where="--case", hint=hint)
        selected = find_case(case)
    else:
        selected = layer.case(batch, sequence, lengths)
    ready, task = find_task(impl, selected, dtype, "stages")
    refuse_too_large(selected.expected_shapes("stages").values(), selected.situation.batch, dtype)
    expected = _expected_stages(selected, judge=judge, frozen=case is not None)
    name, description = ready.implementation.name, describe_case(selected)
    with open_session(ready, os.cpu_count() or 1) as session, looking.at_work(f"running {name}"):
        observed = session.require(session.observe(task))
        rows = compute_trace(task, observed, expected)
        if selected.layer.is_stack:
            rows = trace_inside(session, task, rows, observed)
        rows = with_dropped(session, task, rows)
        subject = f"{name} ({looking.versions(session.versions)})"
    counts = {parameter.name: prod(parameter.shape(selected.layer)) for parameter in parameters_of(selected.layer)}
    if as_json:
        facts = {"implementation": name, "versions": session.versions, "dtype": dtype, "case": description}
        shown = {"given": list(map(asdict, input_rows(task))), "stages": list(map(asdict, rows))}
        print_json({**facts, **shown, "parameters": counts})
    else:
        _show(f"{description}, {dtype}, as {subject} shows it", input_rows(task), rows, judged=expected is not None)
        click.echo(f"{sum(counts.values()):,} parameters in {len(counts)} tensors, which it gave back bit for bit")
    return 0 if all(row.conforms for row in rows) else 1


def _expected_stages(case: Case, *, judge: bool, frozen: bool) -> Expected | None:
    if frozen:
        goldens = Goldens([case])
        goldens.compute()
        return goldens(case)
    if not judge:
        return None
    seconds = estimate_judging_seconds(case)
    if seconds > 10:
        click.echo(f"the oracle will take about {seconds:.0f} s to judge this", err=True)
    with looking.at_work("the oracle computes the expected stages"):
        [(_, expected)] = compute_all([case], constants(), 1)
    return expected


def _show(title: str, inputs: list[TracedRow], rows: list[TracedRow], *, judged: bool) -> None:
    screen = looking.heading(title)
    table = looking.table(("stage", "shape"), ["rms σ"] if judged else [], ["what it is"])
    for row in (*inputs, *rows):
        shape = str(list(row.shape)) if row.shape is not None else "–"
        rms = "" if row.rms is None else f"{row.rms:.2f}" if row.rms < 1e4 else f"{row.rms:.1e}"
        note = f"✗ {row.problem}. {row.note}".rstrip() if row.problem else row.note
        table.add_row(row.stage, shape, *([rms] if judged else []), Text(note), style=None if row.conforms else "red")
    screen.print(table)
    wrong = [row for row in rows if not row.conforms]
    for row in wrong[:1]:
        shape = str(list(row.shape)) if row.shape else ""
        problem = f"{shape} {row.problem}".strip() if row.problem else "wrong"
        text = f"✗ {len(wrong)} of {len(rows)} stages are not as specified; the first is {row.stage}: {problem}"
        show_line(screen, text, "red")
