"""`conform memory`: the activations of a forward pass, predicted and measured."""

import json
import os
from dataclasses import asdict
from typing import Any

import click
from rich import box
from rich.table import Table

from harness.cli import looking
from harness.errors import InputError
from harness.look.alive import Placement, alive
from harness.look.asking import find_task, must_fit
from harness.look.memory import PARTS, added_as_shown, longest_sequence, mib, parse_amount, parts, total
from harness.look.peak import Peak, measure, refuse_elsewhere
from harness.look.subject import at_size
from harness.report.terminal import console
from harness.spec.dtypes import FORMATS, DtypeName
from harness.spec.layer import Layer

_EXAMPLES = """
\b
Examples:
  conform memory --layer pre-gelu-512 --batch 32 --sequence 50 --layers 6
  conform memory --sequence 50 --sequence 100 --sequence 512 --sequence 1024
  conform memory --d-model 1024 --num-heads 16 --d-ff 4096 --layers 24 --batch 1 --limit 8GiB
  conform memory --sequence 512 --measure --impl pytorch
"""
_PLACEMENTS: tuple[Placement, ...] = ("pre", "post")


@click.command(epilog=_EXAMPLES)
@looking.layer_options
@looking.batch_option
@click.option(
    "--sequence",
    "sequences",
    type=click.IntRange(1),
    multiple=True,
    help=f"S, or several; default: {looking.SEQUENCE}.",
)
@click.option("--layers", type=click.IntRange(1), help="Layers, one after another; default: as many as the layer has.")
@looking.dtype_option
@click.option("--limit", metavar="8GiB", help="Also the longest sequence whose activations fit in this much memory.")
@click.option(
    "--measure", "measured", is_flag=True, help="Also a worker's peak memory during a pass of one layer; Linux."
)
@looking.impl_option
@looking.json_option
def memory(
    layer: str | None,
    d_model: int | None,
    num_heads: int | None,
    d_ff: int | None,
    batch: int | None,
    sequences: tuple[int, ...],
    layers: int | None,
    dtype: DtypeName,
    limit: str | None,
    measured: bool,
    impl: str | None,
    as_json: bool,
) -> None:
    """Show what the activations of one forward pass take, part by part, in MiB of 2^20 bytes.

    The parts are those of one layer, counted once each; a stack's embedding and final norm are left out.
    docs/looking.md says what is alive when, and what a backward pass keeps.
    """
    if impl is not None and not measured:
        raise InputError("only a measurement asks an implementation", where="--impl", hint="add --measure")
    chosen = looking.chosen_layer(layer, d_model, num_heads, d_ff)
    layers = layers or chosen.stack.layers
    at, batch, sequences = chosen.one_of_it, batch or looking.BATCH, sequences or (looking.SEQUENCE,)
    itemsize = FORMATS[dtype].numpy.itemsize
    amount = parse_amount(limit, "--limit") if limit is not None else None
    peaks, name = _peaks(impl, at, batch, sequences, dtype) if measured else ({}, "")
    facts: dict[str, Any] = {
        "d_model": at.d_model,
        "num_heads": at.attention.num_heads,
        "d_ff": at.feed_forward.d_ff,
        "batch": batch,
        "layers": layers,
        "dtype": dtype,
        "bytes": [_predicted(at, batch, S, itemsize, layers) for S in sequences],
    }
    if measured:
        facts["measured"] = [
            {"implementation": name, "sequence": S, **asdict(peak), "rise": peak.rise} for S, peak in peaks.items()
        ]
    if amount is not None:
        longest = longest_sequence(at, batch, itemsize, layers, amount)
        at_and_after = [total(at, batch, S, itemsize, layers) for S in (longest, longest + 1)]
        facts["limit"] = {"bytes": amount, "sequence": longest, "total": at_and_after[0], "next": at_and_after[1]}
    if as_json:
        click.echo(json.dumps(facts, indent=1))
    else:
        _show(facts, peaks, name)


def _predicted(layer: Layer, batch: int, sequence: int, itemsize: int, layers: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for placement in _PLACEMENTS:
        model = alive(at_size(layer, batch, sequence), placement)
        found[placement] = {
            "peak": model.peak * itemsize,
            "at": model.at,
            "holding": model.holding,
            "kept": layers * model.kept * itemsize,
            "keeping": model.keeping,
        }
    held = parts(layer, batch, sequence, itemsize)
    return {
        "sequence": sequence,
        **held,
        "total": sum(held.values()),
        "all_layers": layers * sum(held.values()),
        **found,
    }


def _peaks(
    impl: str | None, layer: Layer, batch: int, sequences: tuple[int, ...], dtype: DtypeName
) -> tuple[dict[int, Peak], str]:
    refuse_elsewhere()
    peaks = {}
    for S in sequences:
        case = at_size(layer, batch, S)
        ready, task = find_task(impl, case, dtype, "output")
        must_fit(batch * S * layer.d_model, case, dtype)
        with looking.at_work(f"measuring {ready.implementation.name} at S = {S}"):
            peaks[S] = measure(ready, task, os.cpu_count() or 1)
    return peaks, ready.implementation.name


def _show(facts: dict[str, Any], peaks: dict[int, Peak], name: str) -> None:
    screen = console()
    sizes = f"B = {facts['batch']}, D = {facts['d_model']}, H = {facts['num_heads']}, F = {facts['d_ff']}"
    screen.print(f"Activations in MiB: {sizes}, {facts['dtype']}", style="bold", highlight=False, soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("part", no_wrap=True)
    table.add_column("numbers", no_wrap=True)
    for predicted in facts["bytes"]:
        table.add_column(f"S = {predicted['sequence']}", justify="right", no_wrap=True)
    for part, numbers in PARTS.items():
        table.add_row(part, numbers, *(mib(predicted[part]) for predicted in facts["bytes"]))
    table.add_section()
    totals = [added_as_shown([predicted[part] for part in PARTS]) for predicted in facts["bytes"]]
    table.add_row("total", "", *totals)
    if facts["layers"] > 1:
        table.add_row(f"{facts['layers']} layers", "", *(mib(predicted["all_layers"]) for predicted in facts["bytes"]))
    table.add_section()
    for placement in _PLACEMENTS:
        said = f"{placement}-norm, largest alive at once"
        table.add_row(said, "", *(mib(predicted[placement]["peak"]) for predicted in facts["bytes"]))
    for placement in _PLACEMENTS:
        said = f"{placement}-norm, kept for backward" + (f", {facts['layers']} layers" if facts["layers"] > 1 else "")
        table.add_row(said, "", *(mib(predicted[placement]["kept"]) for predicted in facts["bytes"]))
    if peaks:
        table.add_section()
        table.add_row(f"{name}, measured", "", *(mib(peak.rise) for peak in peaks.values()))
    screen.print(table)
    for predicted, shown in zip(facts["bytes"], totals, strict=True):
        if shown != mib(predicted["total"]):
            exact = f"{predicted['total']:,} bytes are {mib(predicted['total'])}"
            screen.print(f"S = {predicted['sequence']}: the lines as shown add up to {shown}; {exact}", highlight=False)
    if "limit" in facts:
        _show_limit(facts)


def _show_limit(facts: dict[str, Any]) -> None:
    limit, layers = facts["limit"], f"{facts['layers']} layer" + ("s" if facts["layers"] > 1 else "")
    S, what = limit["sequence"], f"{facts['batch']} × S through {layers} in {limit['bytes']:,} bytes"
    fits = f"S = {S} takes {limit['total']:,} bytes ({mib(limit['total'])} MiB)" if S else "none: not even S = 1 fits"
    after = f"S = {S + 1} would take {limit['next']:,} ({mib(limit['next'])} MiB)"
    console().print(f"Longest sequence, {what}: {fits}; {after}", highlight=False, soft_wrap=True)
