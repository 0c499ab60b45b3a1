"""`conform list`: the implementations, layers, situations, cases, clauses, deviations and coverage."""

from collections.abc import Callable
from dataclasses import asdict

import click
from rich.text import Text

from encoder_conformance.commands.inspect.looking import table
from encoder_conformance.commands.options import print_json, warn_of_left_out
from encoder_conformance.implementation.interpreter import Ready, resolve
from encoder_conformance.implementation.manifest import known_folders, read_implementation_manifest
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.reports.run.terminal import console
from encoder_conformance.spec.coverage import coverage
from encoder_conformance.spec.load import clauses, load

Row = dict[str, str | int]


def _impls() -> list[Row]:
    warn_of_left_out()
    rows: list[Row] = []
    for folder in known_folders().values():
        manifest = read_implementation_manifest(folder)
        interpreter = resolve(manifest, folder, {})
        status = "ready" if isinstance(interpreter, Ready) else f"{interpreter.reason}: {interpreter.hint}"
        choices = "; ".join(
            f"{choice.name}: {'…' if choice.values == 'any' else ', '.join(choice.values)}"
            for choice in manifest.choices
        )
        rows.append({"name": manifest.name, "title": manifest.title, "choices": choices, "here": status})
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


_LISTS: dict[str, Callable[[], list[Row]]] = {
    "impls": _impls,
    "layers": _layers,
    "situations": _situations,
    "cases": _cases,
    "clauses": _clauses,
    "coverage": _coverage,
    "deviations": _deviations,
}


@click.command("list", epilog="Example: conform list cases --json")
@click.argument("kind", type=click.Choice(list(_LISTS)))
@click.option("--json", "as_json", is_flag=True, help="One JSON array on standard output.")
def list_(kind: str, as_json: bool) -> None:
    """List items of one kind; `coverage` is the number of cases for each value of each key of a layer or situation."""
    rows = _LISTS[kind]()
    if as_json:
        print_json(rows)
        return
    shown = table((), (), rows[0])
    for row in rows:
        shown.add_row(*(Text(str(value)) for value in row.values()))
    console().print(shown)
