"""`conform list`: the implementations, layers, situations, cases, clauses, deviations and coverage."""

import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click
import yaml
from rich.text import Text

from encoder_conformance.commands.inspect.looking import table
from encoder_conformance.commands.options import print_json, warn_of_left_out
from encoder_conformance.implementation.interpreter import Ready, resolve
from encoder_conformance.implementation.manifest import known_folders, read_implementation_manifest
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.platform.errors import InputError
from encoder_conformance.reports.run.terminal import console
from encoder_conformance.spec.coverage import coverage
from encoder_conformance.spec.load import clauses, load, published_layers
from encoder_conformance.spec.plain import whole

Row = dict[str, str | int]
_AS_YAML: dict[str, Any] = {"sort_keys": False, "default_flow_style": None, "allow_unicode": True, "width": 50}
"""How layers are written: a line ends after the first key beyond `width`, so that all fit in 80 columns."""


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
        for layer in (*load().layers.values(), *published_layers().values())
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


def _whole_layers() -> list[dict[str, Any]]:
    """Every layer with all of its keys, those of its base too, its epsilon as the decimal that a file has (L-2)."""
    every = (*load().layers.values(), *published_layers().values())
    return [whole(layer.with_decimal_epsilon) for layer in every]


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
@click.option("--full", is_flag=True, help="Of layers: every key of each, those of its base too, as YAML.")
@click.option("--json", "as_json", is_flag=True, help="One JSON array on standard output.")
def list_(kind: str, full: bool, as_json: bool) -> None:
    """List items of one kind; `coverage` is the number of cases for each value of each key of a layer or situation.

    On a terminal a table; in a pipe a line for each item, its columns apart by tabs.
    """
    if full and kind != "layers":
        raise InputError("is for layers alone", where="--full", hint="conform list layers --full")
    rows = _whole_layers() if full else _LISTS[kind]()
    if as_json:
        print_json(rows)
        return
    if full:
        click.echo(yaml.safe_dump_all(rows, **_AS_YAML), nl=False)
        return
    if not sys.stdout.isatty():
        for row in rows:
            click.echo("\t".join(" ".join(str(value).split()) for value in row.values()))
        return
    shown = table((), (), rows[0])
    for row in rows:
        shown.add_row(*(Text(str(value)) for value in row.values()))
    console().print(shown)
