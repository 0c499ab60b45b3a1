"""`conform parameters`: the parameters of a live layer, total and trainable, by name."""

import json
import os
from dataclasses import asdict
from math import prod

import click

from encoder_conformance.commands.inspect import looking
from encoder_conformance.commands.inspect.layer_selection import describe_case, refuse_too_large
from encoder_conformance.commands.inspect.parameters import Parameters
from encoder_conformance.commands.inspect.parameters import parameters as read_parameters
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.situation import Check
from encoder_conformance.subjects.starting import find_task

_EXAMPLES = """
\b
Examples:
  conform parameters --impl pytorch --layer pre-gelu-512
  conform parameters --impl pytorch --gradients --batch 2 --sequence 10
  conform parameters --impl ./my_backend --d-model 768 --num-heads 12 --d-ff 3072 --json
"""


@click.command(epilog=_EXAMPLES)
@looking.impl_option
@looking.layer_options
@looking.batch_option
@looking.sequence_option
@looking.dtype_option
@click.option(
    "--gradients", is_flag=True, help="Also show the norm of the gradient by the input and by each parameter."
)
@looking.json_option
def parameters(
    layer: looking.LayerOptions,
    impl: str | None,
    batch: int | None,
    sequence: int | None,
    dtype: DtypeName,
    gradients: bool,
    as_json: bool,
) -> None:
    """Show the parameters of a live layer: the name and shape of each, and the total and trainable counts.

    The shapes are those that the live layer returned. --batch and --sequence set the input for --gradients; the
    gradients are of the sum of output times a drawn cotangent. Exit status: 0; 1 there was no answer, or the layer
    does not return the parameters that it was sent; 2 wrong usage or bad input.
    """
    case = layer.case(batch, sequence)
    check: Check = "gradients" if gradients else "output"
    ready, task = find_task(impl, case, dtype, check)
    refuse_too_large(sum(map(prod, case.expected_shapes("gradients").values())), case.situation.batch, dtype)
    name = ready.implementation.name
    with looking.at_work(f"running {name}"):
        result = read_parameters(ready, task, os.cpu_count() or 1, gradients=gradients)
    if as_json:
        facts = {"implementation": name, "dtype": dtype, "case": describe_case(case), **asdict(result)}
        click.echo(json.dumps(facts, indent=1, ensure_ascii=False))
    else:
        _show(
            case, f"{describe_case(case)}, {dtype}, as {name} ({looking.versions(result.versions)}) holds them", result
        )


def _show(case: Case, title: str, result: Parameters) -> None:
    screen = looking.heading(title)
    with_gradients = any(row.gradient is not None for row in result.rows)
    numbers = ("numbers", "trainable", *(["gradient's norm"] if with_gradients else []))
    table = looking.table(("parameter", "shape"), numbers, ["its own name"])
    if result.by_input is not None:
        table.add_row("x, the input", looking.bracketed(case.x_shape), "", "", f"{result.by_input:.4g}", "")
    for row in result.rows:
        trainable = "" if row.trainable is None else "yes" if row.trainable else "no"
        norm = [f"{row.gradient:.4g}" if row.gradient is not None else ""] if with_gradients else []
        table.add_row(row.name, looking.bracketed(row.shape), f"{row.numbers:,}", trainable, *norm, row.own)
    screen.print(table)
    trainable = (
        f"{result.trainable:,} trainable" if result.trainable is not None else "how many are trainable is unknown"
    )
    text = f"{result.total:,} parameters in {len(result.rows)} tensors, {trainable}"
    screen.print(text, highlight=False, soft_wrap=True, markup=False)
    if result.unsaid:
        screen.print(f"(initialising them failed: {result.unsaid})", highlight=False, soft_wrap=True, markup=False)
