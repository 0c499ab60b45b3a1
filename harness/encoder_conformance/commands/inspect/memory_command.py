"""`conform memory`: the activation memory of a forward pass, predicted and measured."""

import json
import os
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

import click

from encoder_conformance.commands.inspect import looking
from encoder_conformance.commands.inspect.layer_selection import at_size, encoder_layer_of, refuse_too_large, stacked
from encoder_conformance.commands.inspect.liveness import PLACEMENTS, liveness
from encoder_conformance.commands.inspect.memory import (
    PUBLISHED_PARTS,
    STATES,
    longest_sequence,
    parse_amount,
    parts,
    states,
    total,
)
from encoder_conformance.commands.inspect.memory_table import show
from encoder_conformance.commands.inspect.peak import BACKWARD, measure, require_linux
from encoder_conformance.platform.errors import InputError
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS, DtypeName
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.situation import Check
from encoder_conformance.spec.size import LARGEST_BUILT, refuse_larger
from encoder_conformance.subjects.starting import find_task

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
@click.option("--dropout", type=click.FloatRange(0, 1, max_open=True), help="This rate instead of the layer's own.")
@looking.batch_option
@click.option(
    "--sequence",
    "sequences",
    type=click.IntRange(1),
    multiple=True,
    help=f"S, or several; default: {looking.SEQUENCE}.",
)
@click.option("--layers", type=click.IntRange(1), help="Number of layers in sequence; default: that of the layer.")
@looking.dtype_option
@click.option(
    "--limit", metavar="8GiB", help="Also find the longest sequence whose activations fit in this much memory."
)
@click.option(
    "--states",
    "state_set",
    type=click.Choice(list(STATES)),
    help="Also count the parameters: weights alone, or with gradients and the optimizer's state.",
)
@click.option(
    "--measure", "measured", is_flag=True, help="Also measure a worker's peak memory during a forward pass; Linux only."
)
@click.option(
    "--backward",
    is_flag=True,
    help="Also measure forward and backward through all layers, without and with checkpointing.",
)
@looking.impl_option
@looking.json_option
def memory(
    layer: looking.LayerOptions,
    dropout: float | None,
    batch: int | None,
    sequences: tuple[int, ...],
    layers: int | None,
    dtype: DtypeName,
    limit: str | None,
    state_set: str | None,
    measured: bool,
    backward: bool,
    impl: str | None,
    as_json: bool,
) -> None:
    """Show the memory of the activations of one forward pass, part by part, in MiB of 2^20 bytes.

    The parts are those of one layer, each counted once; a stack's embedding and final norm are left out.
    docs/looking.md explains which tensors are alive when, and what a backward pass keeps.
    """
    for is_set, option in ((impl is not None, "--impl"), (backward, "--backward")):
        if is_set and not measured:
            raise InputError("only a measurement asks an implementation", where=option, hint="add --measure")
    chosen = layer.chosen(dropout)
    encoder_layer_of(chosen, "`memory` counts the activations of an encoder layer")
    one_layer, sequences = chosen.one_of_it, sequences or (looking.SEQUENCE,)
    sizes = _Sizes(one_layer, layers or chosen.stack.layers, batch or looking.BATCH, dtype)
    limit_bytes = parse_amount(limit, "--limit") if limit is not None else None
    facts: dict[str, Any] = {
        "d_model": one_layer.d_model,
        "num_heads": one_layer.attention.num_heads,
        "d_ff": one_layer.feed_forward.d_ff,
        "batch": sizes.batch,
        "layers": sizes.layers,
        "dtype": dtype,
        "dropout": one_layer.dropout.model_dump(),
        "bytes": [_predict(sizes, S) for S in sequences],
    }
    if state_set is not None:
        facts["states"] = states(chosen, state_set, sizes.itemsize, sizes.layers)
    if measured:
        facts["measured"] = _measure_peaks(impl, sizes, sequences, backward=backward)
    if limit_bytes is not None:
        facts["limit"] = _find_longest(sizes, limit_bytes, sum(facts.get("states", {}).values()))
    if as_json:
        click.echo(json.dumps(facts, indent=1))
    else:
        show(facts)


@dataclass(frozen=True)
class _Sizes:
    """The sizes of one question: `layers` layers like `layer`, of some batch and dtype."""

    layer: Layer
    layers: int
    batch: int
    dtype: DtypeName

    @property
    def itemsize(self) -> int:
        return FORMATS[self.dtype].numpy.itemsize


def _find_longest(sizes: _Sizes, limit_bytes: int, state_bytes: int) -> dict[str, int]:
    """The longest sequence within `limit_bytes`. `state_bytes`: the part of the limit that the parameters take."""
    layer, batch, itemsize, layers = sizes.layer, sizes.batch, sizes.itemsize, sizes.layers
    longest = longest_sequence(layer, batch, itemsize, layers, limit_bytes - state_bytes)
    total_bytes, next_bytes = (state_bytes + total(layer, batch, S, itemsize, layers) for S in (longest, longest + 1))
    return {"bytes": limit_bytes, "sequence": longest, "total": total_bytes, "next": next_bytes, "states": state_bytes}


def _predict(sizes: _Sizes, sequence: int) -> dict[str, Any]:
    layers, itemsize = sizes.layers, sizes.itemsize
    by_placement: dict[str, Any] = {}
    for placement in PLACEMENTS:
        model = liveness(at_size(sizes.layer, sizes.batch, sequence), placement)
        by_placement[placement] = {
            "peak": model.peak * itemsize,
            "at": model.at,
            "holding": model.holding,
            "kept": layers * model.kept * itemsize,
            "keeping": model.keeping,
            "kept_in_training": layers * model.kept_in_training * itemsize,
            "keeping_in_training": model.keeping_in_training,
        }
    part_bytes = parts(sizes.layer, sizes.batch, sequence, itemsize)
    return {
        "sequence": sequence,
        **part_bytes,
        "total": sum(part_bytes.values()),
        "total_without_attn_out": sum(part_bytes[part] for part in PUBLISHED_PARTS),
        "all_layers": layers * sum(part_bytes.values()),
        **by_placement,
    }


def _measure_peaks(
    impl: str | None, sizes: _Sizes, sequences: tuple[int, ...], *, backward: bool
) -> list[dict[str, Any]]:
    """The peak of one layer forward and, with `backward`, of a stack of all layers forward and backward."""
    require_linux()
    peaks, stack = [], stacked(sizes.layer, sizes.layers)
    refuse_larger(stack if backward else sizes.layer, LARGEST_BUILT, "--layers, --layer" if backward else "--layer")
    training = bool(sizes.layer.dropout.rates())  # where nothing is dropped, both modes are the same
    for S in sequences:
        passes: list[tuple[str, Case, Check]] = [("forward", at_size(sizes.layer, sizes.batch, S), "output")]
        for checkpoint, description in BACKWARD.items() if backward else ():
            case = at_size(stack, sizes.batch, S, checkpoint=checkpoint, training=training)
            passes.append((description, case, "gradients"))
        for description, case, check in passes:
            ready, task = find_task(impl, case, sizes.dtype, check)
            name = ready.implementation.name
            refuse_too_large(sum(map(prod, case.expected_shapes(check).values())), case.situation.batch, sizes.dtype)
            with looking.at_work(f"measuring {name}, {description}, at S = {S}"):
                peak = measure(ready, task, os.cpu_count() or 1)
            facts = {"implementation": name, "sequence": S, "layers": case.layer.stack.layers, "pass": description}
            peaks.append({**facts, **asdict(peak), "rise": peak.rise})
    return peaks
