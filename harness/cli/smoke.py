"""`conform smoke`: a checklist for a new adapter, in seconds."""

import json
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from encoder_conformance.cli.options import interpreters, say_what_is_left_out
from encoder_conformance.deviations.catalogue import check_declared
from encoder_conformance.errors import InputError
from encoder_conformance.impl.interpreter import Missing, Ready, resolve
from encoder_conformance.impl.manifest import find_implementation
from encoder_conformance.inspect.layer_selection import find_layer
from encoder_conformance.inspect.session import asking
from encoder_conformance.paths import shown
from encoder_conformance.report.terminal import console
from encoder_conformance.smoke.checklist import Checklist
from encoder_conformance.smoke.step import NAMES, Step, verdict
from encoder_conformance.spec.load import Specification, load

_MARK = {"ok": "✓", "failed": "✗", "not declared": "–", "not tried": "·"}
_STYLE = {"ok": "green", "failed": "bold red", "not declared": "dim", "not tried": "dim"}
_LAST = {
    "ok": ("All that was tried is right. The whole suite: conform run --impl {given}", "bold green"),
    "blank": ("A blank is left. Fill it in, and smoke again.", "bold yellow"),
    "adapter": (
        "The adapter is broken: it does not drive the implementation, which nothing is known of yet.",
        "bold red",
    ),
    "architecture": (
        "It refuses the layer that it was asked for: nothing is known yet, of the adapter or of what it drives.",
        "bold yellow",
    ),
    "implementation": ("The adapter works; the implementation, or the map of its parameters, is wrong.", "bold red"),
}


_EXAMPLES = """
\b
Examples:
  conform smoke ./my_backend --python my_backend=/opt/mine/bin/python
  conform smoke ./my_bert --layer my-bert.yaml
"""


@click.command(epilog=_EXAMPLES)
@click.argument("given", metavar="NAME|FOLDER[:KEY=VALUE,…]")
@click.option("--python", "pythons", multiple=True, metavar="NAME=PATH", help="Interpreter for the implementation.")
@click.option("--layer", metavar="ID|YAML", help="Try this layer, where the architecture is fixed.")
@click.option("--json", "as_json", is_flag=True, help="The steps as JSON.")
def smoke(given: str, pythons: tuple[str, ...], layer: str | None, as_json: bool) -> int:
    """Try a new adapter on a handful of small cases: what works, what does not, and whose fault it is.

    They are of small layers that its manifest does not opt out of, or of --layer.

    Exit status: 0 all that was tried is right; 1 something is not; 2 no manifest, or nothing to start it with.
    """
    say_what_is_left_out()
    folder, implementation = find_implementation(given)
    check_declared([entry.deviation for entry in implementation.deviations], str(folder / "impl.yaml"))
    ready = resolve(implementation, folder, interpreters(pythons))
    if isinstance(ready, Missing):
        raise InputError(f"{implementation.name}: {ready.reason}", where=given, hint=ready.hint)
    specification, asked = _asked(layer)
    steps = _tried(ready, specification, asked, Console(quiet=True) if as_json else console())
    if as_json:
        about = {"implementation": implementation.name, "folder": str(folder), "verdict": verdict(steps)}
        click.echo(json.dumps({**about, "steps": [asdict(step) for step in steps]}, indent=1, ensure_ascii=False))
    else:
        text, style = _LAST[verdict(steps)]
        if verdict(steps) == "adapter" and any((step.name, step.state) == ("numbers", "ok") for step in steps):
            text = "The adapter does not do all that its manifest declares. The numbers that could be asked are right."
        console().print(text.format(given=given), style=style, soft_wrap=True, highlight=False, markup=False)
    return int(verdict(steps) != "ok")


def _asked(layer: str | None) -> tuple[Specification, str | None]:
    """The layer that is asked for, and the specification, with it where it is the user's own."""
    if layer is None:
        return load(), None
    found = find_layer(layer)
    own = () if found.layer in load().layers else (Path(layer),)
    return load(extra_layers=own), found.layer


def _tried(ready: Ready, specification: Specification, layer: str | None, screen: Console) -> list[Step]:
    """Every step, each shown as soon as it is done."""
    screen.print(f"{ready.implementation.name} ({shown(ready.folder)})", style="bold", highlight=False, markup=False)
    steps = []
    with asking(ready, 1) as (session, _):
        for step in Checklist(session, ready, specification, layer):
            steps.append(step)
            _show(screen, step)
    for name in NAMES:
        if name not in [step.name for step in steps]:
            steps.append(Step(name, "not tried", "it needs what failed above"))
            _show(screen, steps[-1])
    return steps


def _show(screen: Console, step: Step) -> None:
    line = Text.assemble((f" {_MARK[step.state]} {step.name:<11} ", _STYLE[step.state]), step.said)
    screen.print(line, soft_wrap=True, highlight=False)
    for advice in step.do:
        screen.print(Text(f"     → {advice}"), soft_wrap=True, highlight=False)
