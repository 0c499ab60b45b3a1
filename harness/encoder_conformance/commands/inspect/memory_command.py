"""`conform memory`: the activation memory of a forward pass, predicted and measured."""

import json
import os
from dataclasses import asdict, dataclass
from typing import Any

import click
from rich.table import Table

from encoder_conformance.commands.inspect import looking
from encoder_conformance.commands.inspect.layer_selection import at_size, encoder_layer_of, refuse_too_large, stacked
from encoder_conformance.commands.inspect.liveness import PLACEMENTS, liveness
from encoder_conformance.commands.inspect.memory import (
    PARTS,
    PUBLISHED_PARTS,
    STATES,
    added_as_shown,
    growth,
    longest_sequence,
    mib,
    parse_amount,
    parts,
    states,
    total,
)
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
  conform memory --d-model 1024 --layers 24 --limit 8GiB --states adam
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
        kept, in_training = (layers * count * itemsize for count in (model.kept, model.kept_in_training))
        in_bytes = {"peak": model.peak * itemsize, "kept": kept, "kept_in_training": in_training}
        by_placement[placement] = {**asdict(model), **in_bytes}
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
            refuse_too_large(case.expected_shapes(check).values(), case.situation.batch, sizes.dtype)
            with looking.at_work(f"measuring {name}, {description}, at S = {S}"):
                peak = measure(ready, task, os.cpu_count() or 1)
            facts = {"implementation": name, "sequence": S, "layers": case.layer.stack.layers, "pass": description}
            peaks.append({**facts, **peak})
    return peaks


def show(facts: dict[str, Any]) -> None:
    """Print the table. `facts` is the content of `--json`."""
    sizes = f"B = {facts['batch']}, D = {facts['d_model']}, H = {facts['num_heads']}, F = {facts['d_ff']}"
    screen = looking.heading(f"Activations in MiB: {sizes}, {facts['dtype']}")
    table = looking.table(("part", "numbers"), (f"S = {predicted['sequence']}" for predicted in facts["bytes"]))
    _add_parts(table, facts)
    _add_alive(table, facts)
    _add_states(table, facts)
    _add_measured(table, facts)
    screen.print(table)
    for line in _rounding_lines(facts):
        screen.print(line, highlight=False, soft_wrap=True)
    if "limit" in facts:
        screen.print(_limit_line(facts), highlight=False, soft_wrap=True)


def _add_parts(table: Table, facts: dict[str, Any]) -> None:
    columns = facts["bytes"]
    for part, numbers in PARTS.items():
        table.add_row(part, numbers, *(mib(predicted[part]) for predicted in columns))
    if len(columns) > 1:
        first = columns[0]
        growths = (growth(predicted["attn_scores"], first["attn_scores"]) for predicted in columns)
        table.add_row(f"attn_scores against S = {first['sequence']}", "S²", *growths)
    table.add_section()
    table.add_row("total", "", *(added_as_shown([predicted[part] for part in PARTS]) for predicted in columns))
    totals_without_attn_out = (added_as_shown([predicted[part] for part in PUBLISHED_PARTS]) for predicted in columns)
    table.add_row("total without attn_out", "", *totals_without_attn_out)
    if facts["layers"] > 1:
        table.add_row(f"{facts['layers']} layers", "", *(mib(predicted["all_layers"]) for predicted in columns))


def _add_alive(table: Table, facts: dict[str, Any]) -> None:
    layers = f", {facts['layers']} layers" if facts["layers"] > 1 else ""
    rows = {"peak": "largest alive at once", "kept": f"kept for backward{layers}"}
    if any(facts["dropout"].values()):
        rows["kept_in_training"] = f"kept in training, with dropout{layers}"
    table.add_section()
    for key, description in rows.items():
        for placement in PLACEMENTS:
            row = (mib(predicted[placement][key]) for predicted in facts["bytes"])
            table.add_row(f"{placement}-norm, {description}", "", *row)


def _add_states(table: Table, facts: dict[str, Any]) -> None:
    table.add_section()
    for state, size in facts.get("states", {}).items():
        table.add_row(f"{state} of all parameters", "", *(mib(size) for _ in facts["bytes"]))


def _add_measured(table: Table, facts: dict[str, Any]) -> None:
    """A row for each kind of pass; if both backward passes were measured, also the memory saved by checkpointing."""
    rises: dict[tuple[str, int, str], list[int]] = {}
    for peak in facts.get("measured", ()):
        rises.setdefault((peak["implementation"], peak["layers"], peak["pass"]), []).append(peak["rise"])
    table.add_section()
    for (name, layers, description), sizes in rises.items():
        layers_text = f", {layers} layers" if layers > 1 else ""
        table.add_row(f"{name}, measured, {description}{layers_text}", "", *map(mib, sizes))
    stored, checkpointed = (
        [sizes for (_, _, description), sizes in rises.items() if description == backward_pass]
        for backward_pass in BACKWARD.values()
    )
    for stored_sizes, checkpointed_sizes in zip(stored, checkpointed, strict=True):
        saved = (
            f"{'-' * (more > less)}{mib(abs(less - more))}"
            for less, more in zip(stored_sizes, checkpointed_sizes, strict=True)
        )
        table.add_row("saved by checkpointing", "", *saved)


def _rounding_lines(facts: dict[str, Any]) -> list[str]:
    lines = []
    for predicted in facts["bytes"]:
        sizes, S, layers = [predicted[part] for part in PARTS], predicted["sequence"], facts["layers"]
        if (rounded_sum := added_as_shown(sizes)) == mib(predicted["total"]):
            continue
        lines.append(f"S = {S}: the lines as shown add up to {rounded_sum}; {_exact_text(predicted['total'])}")
        if layers > 1:
            times, exact = added_as_shown(sizes, layers), _exact_text(predicted["all_layers"])
            lines.append(f"S = {S}, {layers} layers: {layers} × {rounded_sum} as shown are {times}; {exact}")
    return lines


def _exact_text(size: int) -> str:
    return f"{size:,} bytes are {mib(size)}"


def _limit_line(facts: dict[str, Any]) -> str:
    limit, layers = facts["limit"], f"{facts['layers']} layer" + ("s" if facts["layers"] > 1 else "")
    states_text = f", beside {' and '.join(facts['states'])} of {limit['states']:,} bytes" if "states" in facts else ""
    S, scope = limit["sequence"], f"{facts['batch']} × S through {layers} in {limit['bytes']:,} bytes{states_text}"
    fits = f"S = {S} takes {limit['total']:,} bytes ({mib(limit['total'])} MiB)" if S else "none: not even S = 1 fits"
    beyond = f"S = {S + 1} would take {limit['next']:,} ({mib(limit['next'])} MiB)"
    return f"Longest sequence, {scope}: {fits}; {beyond}"
