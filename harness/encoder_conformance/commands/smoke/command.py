"""`conform smoke`: a checklist for a new adapter, in seconds."""

import tempfile
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from encoder_conformance.commands.commands import unless_faulty
from encoder_conformance.commands.completion import layers
from encoder_conformance.commands.inspect.layer_selection import find_layer
from encoder_conformance.commands.options import interpreters_option, print_json, warn_of_left_out, worker_limits
from encoder_conformance.commands.smoke.checklist import NAMES, Checklist, SmokeStep, verdict
from encoder_conformance.judging.records import Diagnosis
from encoder_conformance.platform.paths import shown
from encoder_conformance.reports.run.terminal import console, diagnosis_text
from encoder_conformance.spec.load import Specification, load, published_layers, published_specification
from encoder_conformance.subjects.opening import open_implementation
from encoder_conformance.subjects.subject import Subject, SubjectRequest
from encoder_conformance.worker.limits import WorkerLimits

_MARK = {"ok": "✓", "failed": "✗", "not declared": "–", "not tried": "·"}
_STYLE = {"ok": "green", "failed": "bold red", "not declared": "dim", "not tried": "dim"}
_VERDICT_LINES = {
    "ok": ("Every step is right. The whole suite: conform run --impl {given}", "bold green"),
    "blank": ("A blank is left. Fill it in, and run smoke again.", "bold yellow"),
    "adapter": (
        "The adapter is broken: it does not drive the implementation, so nothing is known of that yet.",
        "bold red",
    ),
    "architecture": (
        "It refuses the layer that it was asked for: nothing is known yet of the adapter or the implementation.",
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
@interpreters_option("the implementation")
@worker_limits
@click.option("--layer", metavar="ID|YAML", shell_complete=layers, help="Use this layer, if the architecture is fixed.")
@click.option("--json", "as_json", is_flag=True, help="The steps as JSON.")
def smoke(given: str, pythons: dict[str, str], layer: str | None, as_json: bool, limits: WorkerLimits) -> int:
    """Check a new adapter on a handful of small cases: what works, what fails, and where the fault is.

    The cases use small layers that its manifest does not opt out of, or --layer.
    """
    warn_of_left_out()
    with tempfile.TemporaryDirectory(prefix="conform-") as folder:
        request = SubjectRequest(given, pythons=pythons)
        subject = open_implementation(request, Path(folder) / "worker.log", limits=limits)
        try:
            published = subject.worker.ready.implementation.is_of_published
            steps, lost = _run_steps(
                subject, *_load_layer(layer, published=published), Console(quiet=True) if as_json else console()
            )
            subject.close()
        finally:
            subject.worker.abort()
    found = verdict(steps)
    if as_json:
        facts = {"implementation": subject.name, "folder": str(subject.worker.ready.folder), "verdict": found}
        print_json({**facts, "steps": [asdict(step) for step in steps], "lost": list(map(diagnosis_text, lost))})
    else:
        text, style = _VERDICT_LINES[found]
        if found == "adapter" and any((step.name, step.state) == ("numbers", "ok") for step in steps):
            text = "The adapter does not do all that its manifest declares. The numbers that could be judged are right."
        console().print(text.format(given=given), style=style, soft_wrap=True)
        for each in lost:
            console().print(Text(diagnosis_text(each)), style="bold red", soft_wrap=True)
    for fault in (each.fault for each in lost if each.fault):
        click.echo(fault.trace, err=True)
    return unless_faulty(int(found != "ok"), lost)


def _load_layer(layer: str | None, *, published: bool) -> tuple[Specification, str | None]:
    """The specification, with the user's own layer added, and the id of the layer. `published`: no layer is asked but
    those of published encoders (rule L-8)."""
    if layer is None:
        return published_specification() if published else load(), None
    chosen = find_layer(layer)
    if published_layers().get(layer) == chosen:
        return published_specification(), layer
    own = () if chosen.layer in load().layers else (Path(layer),)
    return load(extra_layers=own), chosen.layer


def _run_steps(
    subject: Subject, specification: Specification, layer: str | None, screen: Console
) -> tuple[list[SmokeStep], list[Diagnosis]]:
    """Run every step, and show each as soon as it is done; and the diagnoses that a fault of ours lost."""
    screen.print(f"{subject.name} ({shown(subject.worker.ready.folder)})", style="bold")
    steps = list[SmokeStep]()
    with screen.status("") as status:  # the status is for terminals alone
        checklist = Checklist(subject, specification, layer, status.update)
        for step in checklist:
            steps.append(step)
            _show(screen, step)
    for name in NAMES:
        if name not in [step.name for step in steps]:
            steps.append(SmokeStep(name, "not tried", "it needs what failed above"))
            _show(screen, steps[-1])
    return steps, checklist.lost


def _show(screen: Console, step: SmokeStep) -> None:
    line = Text.assemble((f" {_MARK[step.state]} {step.name:<11} ", _STYLE[step.state]), step.said)
    screen.print(line, soft_wrap=True)
    for advice in step.do:
        screen.print(Text(f"     → {advice}"), soft_wrap=True)
