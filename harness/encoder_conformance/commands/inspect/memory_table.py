"""The table of `conform memory`: a column for each sequence length, and below it the effects of rounding."""

from typing import Any

from rich.table import Table

from encoder_conformance.commands.inspect import looking
from encoder_conformance.commands.inspect.liveness import PLACEMENTS
from encoder_conformance.commands.inspect.memory import PARTS, PUBLISHED_PARTS, added_as_shown, growth, mib
from encoder_conformance.commands.inspect.peak import BACKWARD


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
