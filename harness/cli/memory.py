"""`conform memory`: the activations of a forward pass, predicted and measured."""

import json
import os
from dataclasses import asdict
from math import prod
from typing import Any

import click

from encoder_conformance.cli import looking
from encoder_conformance.cli.memory_table import show
from encoder_conformance.errors import InputError
from encoder_conformance.inspect.layer_selection import at_size, encoder_layer_of, stacked
from encoder_conformance.inspect.liveness import PLACEMENTS, liveness
from encoder_conformance.inspect.memory import (
    PUBLISHED_PARTS,
    STATES,
    longest_sequence,
    parse_amount,
    parts,
    states,
    total,
)
from encoder_conformance.inspect.peak import BACKWARD, measure, refuse_elsewhere
from encoder_conformance.inspect.session import find_task, must_fit
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS, DtypeName
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.situation import Check

_EXAMPLES = """
\b
Examples:
  conform memory --layer pre-gelu-512 --batch 32 --sequence 50 --layers 6
  conform memory --sequence 50 --sequence 100 --sequence 512 --sequence 1024
  conform memory --d-model 1024 --num-heads 16 --d-ff 4096 --layers 24 --batch 1 --limit 8GiB --states adam
  conform memory --sequence 512 --measure --impl pytorch
  conform memory --layers 6 --dropout 0.1 --measure --backward --impl pytorch
"""


@click.command(epilog=_EXAMPLES)
@looking.layer_options
@click.option("--dropout", type=click.FloatRange(0, 1, max_open=True), help="This rate in place of the layer's four.")
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
    "--states",
    "kept",
    type=click.Choice(list(STATES)),
    help="Also count the parameters: weights alone, or with their gradients and what the optimizer keeps of them.",
)
@click.option("--measure", "measured", is_flag=True, help="Also a worker's peak memory during a forward pass; Linux.")
@click.option(
    "--backward", is_flag=True, help="Measure forward and backward through all layers too, and with checkpointing."
)
@looking.impl_option
@looking.json_option
def memory(
    layer: str | None,
    d_model: int | None,
    num_heads: int | None,
    d_ff: int | None,
    dropout: float | None,
    batch: int | None,
    sequences: tuple[int, ...],
    layers: int | None,
    dtype: DtypeName,
    limit: str | None,
    kept: str | None,
    measured: bool,
    backward: bool,
    impl: str | None,
    as_json: bool,
) -> None:
    """Show what the activations of one forward pass take, part by part, in MiB of 2^20 bytes.

    The parts are those of one layer, counted once each; a stack's embedding and final norm are left out.
    docs/looking.md says what is alive when, and what a backward pass keeps.
    """
    for given, option in ((impl is not None, "--impl"), (backward, "--backward")):
        if given and not measured:
            raise InputError("only a measurement asks an implementation", where=option, hint="add --measure")
    chosen = looking.chosen_layer(layer, d_model, num_heads, d_ff, dropout)
    encoder_layer_of(chosen, "`memory` counts the activations of an encoder layer")
    layers = layers or chosen.stack.layers
    at, batch, sequences = chosen.one_of_it, batch or looking.BATCH, sequences or (looking.SEQUENCE,)
    itemsize = FORMATS[dtype].numpy.itemsize
    amount = parse_amount(limit, "--limit") if limit is not None else None
    facts: dict[str, Any] = {
        "d_model": at.d_model,
        "num_heads": at.attention.num_heads,
        "d_ff": at.feed_forward.d_ff,
        "batch": batch,
        "layers": layers,
        "dtype": dtype,
        "dropout": at.dropout.model_dump(),
        "bytes": [_predicted(at, batch, S, itemsize, layers) for S in sequences],
    }
    if kept is not None:
        facts["states"] = states(chosen, kept, itemsize, layers)
    if measured:
        facts["measured"] = _peaks(impl, at, batch, sequences, dtype, layers, backward=backward)
    if amount is not None:
        facts["limit"] = _longest(at, batch, itemsize, layers, amount, sum(facts.get("states", {}).values()))
    if as_json:
        click.echo(json.dumps(facts, indent=1))
    else:
        show(facts)


def _longest(layer: Layer, batch: int, itemsize: int, layers: int, amount: int, beside: int) -> dict[str, int]:
    """`beside`: the bytes of what the limit has to hold beside the activations, whatever the sequence."""
    longest = longest_sequence(layer, batch, itemsize, layers, amount - beside)
    at, after = (beside + total(layer, batch, S, itemsize, layers) for S in (longest, longest + 1))
    return {"bytes": amount, "sequence": longest, "total": at, "next": after, "states": beside}


def _predicted(layer: Layer, batch: int, sequence: int, itemsize: int, layers: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for placement in PLACEMENTS:
        model = liveness(at_size(layer, batch, sequence), placement)
        found[placement] = {
            "peak": model.peak * itemsize,
            "at": model.at,
            "holding": model.holding,
            "kept": layers * model.kept * itemsize,
            "keeping": model.keeping,
            "kept_in_training": layers * model.kept_in_training * itemsize,
            "keeping_in_training": model.keeping_in_training,
        }
    held = parts(layer, batch, sequence, itemsize)
    return {
        "sequence": sequence,
        **held,
        "total": sum(held.values()),
        "total_without_attn_out": sum(held[part] for part in PUBLISHED_PARTS),
        "all_layers": layers * sum(held.values()),
        **found,
    }


def _peaks(
    impl: str | None,
    layer: Layer,
    batch: int,
    sequences: tuple[int, ...],
    dtype: DtypeName,
    layers: int,
    *,
    backward: bool,
) -> list[dict[str, Any]]:
    """Of one layer forward; and of all of them, one stack, forward and backward, where that is asked for."""
    refuse_elsewhere()
    found, stack = [], stacked(layer, layers)
    training = bool(layer.dropout.rates())  # where nothing is dropped, both modes are the same
    for S in sequences:
        passes: list[tuple[str, Case, Check]] = [("forward", at_size(layer, batch, S), "output")]
        for checkpoint, said in BACKWARD.items() if backward else ():
            case = at_size(stack, batch, S, checkpoint=checkpoint, training=training)
            passes.append((said, case, "gradients"))
        for said, case, check in passes:
            ready, task = find_task(impl, case, dtype, check)
            name = ready.implementation.name
            must_fit(sum(map(prod, case.expected_shapes(check).values())), case, dtype)
            with looking.at_work(f"measuring {name}, {said}, at S = {S}"):
                peak = measure(ready, task, os.cpu_count() or 1)
            about = {"implementation": name, "sequence": S, "layers": case.layer.stack.layers, "pass": said}
            found.append({**about, **asdict(peak), "rise": peak.rise})
    return found
