"""`conform list`: what there is."""

import json
from collections.abc import Callable
from dataclasses import asdict

import click
from rich import box
from rich.table import Table
from rich.text import Text

from encoder_conformance.cli.options import say_what_is_left_out
from encoder_conformance.deviations.catalogue import catalogue
from encoder_conformance.impl.interpreter import Ready, resolve
from encoder_conformance.impl.manifest import known_folders, read_implementation_manifest
from encoder_conformance.report.terminal import console
from encoder_conformance.spec.clauses import clauses
from encoder_conformance.spec.coverage import coverage
from encoder_conformance.spec.load import load

Row = dict[str, str | int]


def _impls() -> list[Row]:
    say_what_is_left_out()
    rows: list[Row] = []
    for folder in known_folders().values():
        manifest = read_implementation_manifest(folder)
        found = resolve(manifest, folder, {})
        here = "ready" if isinstance(found, Ready) else f"{found.reason}: {found.hint}"
        told = "; ".join(f"{c.name}: {'…' if c.values == 'any' else ', '.join(c.values)}" for c in manifest.choices)
        rows.append({"name": manifest.name, "title": manifest.title, "choices": told, "here": here})
    return rows


def _layers() -> list[Row]:
    return [
        {
            "layer": layer.layer,
            "family": layer.family,
            "d_model": layer.d_model,
            "num_heads": layer.attention.num_heads,
            "d_ff": layer.feed_forward.d_ff,
            "norm": layer.norm.placement,
            "activation": layer.feed_forward.activation,
            "title": layer.title,
        }
        for layer in load().layers.values()
    ]


def _situations() -> list[Row]:
    return [
        {"situation": s.situation, "level": s.level, "batch": s.batch, "sequence": s.sequence, "title": s.title}
        for s in load().situations.values()
    ]


def _cases() -> list[Row]:
    return [{"case": case.id, "level": case.level, "clauses": " ".join(case.clauses)} for case in load().cases.values()]


def _clauses() -> list[Row]:
    cited = [clause for case in load().cases.values() for clause in case.clauses]
    return [{"clause": name, "cases": cited.count(name), "text": text} for name, text in clauses().items()]


def _coverage() -> list[Row]:
    return [asdict(row) for row in coverage(load().cases.values())]


def _deviations() -> list[Row]:
    return [
        {"deviation": d.deviation, "kind": d.kind, "sentence": d.sentence, "links": " ".join(d.links)}
        for d in catalogue().values()
    ]


_WHAT: dict[str, Callable[[], list[Row]]] = {
    "impls": _impls,
    "layers": _layers,
    "situations": _situations,
    "cases": _cases,
    "clauses": _clauses,
    "coverage": _coverage,
    "deviations": _deviations,
}


@click.command("list", epilog="Example: conform list cases --json")
@click.argument("what", type=click.Choice(list(_WHAT)))
@click.option("--json", "as_json", is_flag=True, help="One JSON array on standard output.")
def list_(what: str, as_json: bool) -> None:
    """List what there is; `coverage` is the number of cases for each value of each key of a layer or situation."""
    rows = _WHAT[what]()
    if as_json:
        click.echo(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in rows[0]:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(value)) for value in row.values()))
    console().print(table)
