"""Shows a validation on the terminal: a line for each phase with its findings, a result for each runtime and level."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from encoder_conformance.commands.validate.conclusion import OPENINGS, choices_text, comparison
from encoder_conformance.commands.validate.results import Validation
from encoder_conformance.protocol.description import FileDescription
from encoder_conformance.protocol.findings import PHASES, Phase, PhaseFinding
from encoder_conformance.reports.run.terminal import SEVERITIES, diagnosis_text, show_finding, show_line


def show_validation(screen: Console, validation: Validation) -> None:
    description = validation.description
    screen.print(Text.assemble((validation.model, "bold"), _file(description)), soft_wrap=True)
    if validation.layer is not None:
        show_line(screen, _layer(validation))
    screen.print()
    reached = _reached(validation)
    for phase in PHASES:
        found = validation.of_phase(phase)
        if phase not in reached and not found:
            continue
        mark, style = _worst(found)
        summary = validation.summaries.get(phase, "")
        show_line(screen, f"{mark} {phase:<11}{summary}".rstrip(), style)
        for finding in found:
            show_finding(screen, finding, "    ")
    if validation.runtimes:
        screen.print()
        screen.print(_runtimes(validation))
    for diagnosis in validation.diagnoses:
        show_line(screen, diagnosis_text(diagnosis), "bold")
    screen.print(_last_line(validation), soft_wrap=True)


def _worst(found: list[PhaseFinding]) -> tuple[str, str]:
    severities = {finding.severity for finding in found}
    if "error" in severities:
        return SEVERITIES["error"]
    return SEVERITIES["warning"] if "warning" in severities else ("✓", "green")


def _reached(validation: Validation) -> set[Phase]:
    """The phases that the file went through: all, or those up to the last with a finding."""
    if validation.judged:
        not_always = ("source", "history", "reduction", "levels")
        return {phase for phase in PHASES if phase not in not_always or phase in validation.summaries}
    last = max((PHASES.index(finding.phase) for finding in validation.findings), default=0)
    return {*PHASES[: last + 1]}


def _file(description: FileDescription) -> str:
    if description.file is None:
        return ""
    return f"  by {description.file.producer}" if description.file.producer else ""


def _layer(validation: Validation) -> str:
    layer, how = validation.layer, validation.layer_from
    assert layer is not None
    source = "as it was told" if how == "told" else "inferred from the graph"
    if validation.against is not None and "layer" in validation.compared_with:
        source = f"as {validation.against} is"
    return (
        f"Judged as {layer.layer} ({source}): {_choices(validation)}"
        if validation.judged
        else f"Seems to be: {_choices(validation)}"
    )


def _runtimes(validation: Validation) -> Table:
    table = Table(box=box.HORIZONTALS, border_style="dim", header_style="bold", show_edge=False)
    for title in ("runtime", "level", "conform / applicable", "largest rms σ", "max σ", "ms an answer"):
        table.add_column(title)
    for result in validation.runtimes:
        if result.absent:
            table.add_row(result.runtime, result.level, "not here", "", "", "", style="dim")
            continue
        sigma = ("", "") if result.rms is None else (f"{result.rms:.3g}", f"{result.max or 0:.3g}")
        taken = "" if result.seconds is None else f"{result.seconds * 1e3:.1f}"
        if result.relative_error is not None:
            table.add_row(result.runtime, result.level, f"relative error {result.relative_error:.2g}", "", "", taken)
            continue
        if result.rms is None and not result.passed:
            table.add_row(result.runtime, result.level, "does not run it", "", "", "", style="dim")
            continue
        style = "" if result.passed == result.applicable else "red"
        table.add_row(
            result.runtime, result.level, f"{result.passed} / {result.applicable}", *sigma, taken, style=style
        )
    return table


def _choices(validation: Validation) -> str:
    roles = validation.description.roles
    assert validation.layer is not None
    shown = choices_text(validation.layer, roles.layout if roles else None, roles.masks if roles else ())
    return f"{shown}, with {' and '.join(validation.deviations)}" if validation.deviations else shown


def _last_line(validation: Validation) -> Text:
    kind, layer = validation.conclusion, validation.layer
    count = f"{_count(len(validation.errors), 'error')}, {_count(len(validation.warnings), 'warning')}"
    if validation.strict and validation.warnings:
        count += " (--strict: a warning fails)"
    shown = comparison(kind, layer, validation.compared_with, _choices(validation) if layer else "", validation.against)
    style = "bold green" if kind in ("as_stated", "as_source", "consistent") else "bold red"
    whose = f" ({', '.join(validation.wrong_runtimes)})" if kind == "runtime_wrong" else ""
    return Text(f"{OPENINGS[kind]}{whose}{shown}: {count}", style=style)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
