"""What `conform memory` prints: a column for each sequence, and below it what two decimals leave out."""

from typing import Any

from rich import box
from rich.table import Table

from encoder_conformance.inspect.liveness import PLACEMENTS
from encoder_conformance.inspect.memory import PARTS, PUBLISHED_PARTS, added_as_shown, growth, mib
from encoder_conformance.inspect.peak import BACKWARD
from encoder_conformance.report.terminal import console


def show(facts: dict[str, Any]) -> None:
    """`facts` are those of `--json`."""
    screen = console()
    sizes = f"B = {facts['batch']}, D = {facts['d_model']}, H = {facts['num_heads']}, F = {facts['d_ff']}"
    screen.print(f"Activations in MiB: {sizes}, {facts['dtype']}", style="bold", highlight=False, soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("part", no_wrap=True)
    table.add_column("numbers", no_wrap=True)
    for predicted in facts["bytes"]:
        table.add_column(f"S = {predicted['sequence']}", justify="right", no_wrap=True)
    _add_parts(table, facts)
    _add_alive(table, facts)
    _add_states(table, facts)
    _add_measured(table, facts)
    screen.print(table)
    for line in _rounding(facts):
        screen.print(line, highlight=False, soft_wrap=True)
    if "limit" in facts:
        screen.print(_limit(facts), highlight=False, soft_wrap=True)


def _add_parts(table: Table, facts: dict[str, Any]) -> None:
    found = facts["bytes"]
    for part, numbers in PARTS.items():
        table.add_row(part, numbers, *(mib(predicted[part]) for predicted in found))
    if len(found) > 1:
        first = found[0]
        grown = (growth(predicted["attn_scores"], first["attn_scores"]) for predicted in found)
        table.add_row(f"attn_scores against S = {first['sequence']}", "S²", *grown)
    table.add_section()
    table.add_row("total", "", *(added_as_shown([predicted[part] for part in PARTS]) for predicted in found))
    without = (added_as_shown([predicted[part] for part in PUBLISHED_PARTS]) for predicted in found)
    table.add_row("total without attn_out", "", *without)
    if facts["layers"] > 1:
        table.add_row(f"{facts['layers']} layers", "", *(mib(predicted["all_layers"]) for predicted in found))


def _add_alive(table: Table, facts: dict[str, Any]) -> None:
    layers = f", {facts['layers']} layers" if facts["layers"] > 1 else ""
    rows = {"peak": "largest alive at once", "kept": f"kept for backward{layers}"}
    if any(facts["dropout"].values()):
        rows["kept_in_training"] = f"kept in training, with dropout{layers}"
    table.add_section()
    for key, said in rows.items():
        for placement in PLACEMENTS:
            row = (mib(predicted[placement][key]) for predicted in facts["bytes"])
            table.add_row(f"{placement}-norm, {said}", "", *row)


def _add_states(table: Table, facts: dict[str, Any]) -> None:
    table.add_section()
    for state, size in facts.get("states", {}).items():
        table.add_row(f"{state} of all parameters", "", *(mib(size) for _ in facts["bytes"]))


def _add_measured(table: Table, facts: dict[str, Any]) -> None:
    """A row for each kind of pass; with both ways back, how much less the one with checkpoints takes."""
    rises: dict[tuple[str, int, str], list[int]] = {}
    for found in facts.get("measured", ()):
        rises.setdefault((found["implementation"], found["layers"], found["pass"]), []).append(found["rise"])
    table.add_section()
    for (name, layers, said), sizes in rises.items():
        of = f", {layers} layers" if layers > 1 else ""
        table.add_row(f"{name}, measured, {said}{of}", "", *map(mib, sizes))
    kept, again = ([sizes for (_, _, said), sizes in rises.items() if said == way] for way in BACKWARD.values())
    for without, with_it in zip(kept, again, strict=True):
        saved = (f"{'-' * (more > less)}{mib(abs(less - more))}" for less, more in zip(without, with_it, strict=True))
        table.add_row("saved by checkpointing", "", *saved)


def _rounding(facts: dict[str, Any]) -> list[str]:
    lines = []
    for predicted in facts["bytes"]:
        sizes, S, layers = [predicted[part] for part in PARTS], predicted["sequence"], facts["layers"]
        if (shown := added_as_shown(sizes)) == mib(predicted["total"]):
            continue
        lines.append(f"S = {S}: the lines as shown add up to {shown}; {_exactly(predicted['total'])}")
        if layers > 1:
            times, exact = added_as_shown(sizes, layers), _exactly(predicted["all_layers"])
            lines.append(f"S = {S}, {layers} layers: {layers} × {shown} as shown are {times}; {exact}")
    return lines


def _exactly(size: int) -> str:
    return f"{size:,} bytes are {mib(size)}"


def _limit(facts: dict[str, Any]) -> str:
    limit, layers = facts["limit"], f"{facts['layers']} layer" + ("s" if facts["layers"] > 1 else "")
    beside = f", beside {' and '.join(facts['states'])} of {limit['states']:,} bytes" if "states" in facts else ""
    S, what = limit["sequence"], f"{facts['batch']} × S through {layers} in {limit['bytes']:,} bytes{beside}"
    fits = f"S = {S} takes {limit['total']:,} bytes ({mib(limit['total'])} MiB)" if S else "none: not even S = 1 fits"
    after = f"S = {S + 1} would take {limit['next']:,} ({mib(limit['next'])} MiB)"
    return f"Longest sequence, {what}: {fits}; {after}"
