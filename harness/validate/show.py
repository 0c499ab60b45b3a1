"""Shows a validation on the terminal: a line for each phase with its findings, a result for each runtime and level."""

from rich import box
from rich.console import Console
from rich.table import Table

from encoder_conformance.report.terminal import diagnosis_text
from encoder_conformance.spec.layer import Layer
from encoder_conformance.validate.findings import PHASES, Description, Finding, Phase
from encoder_conformance.validate.results import Validation

_MARKS = {"error": ("✗", "red"), "warning": ("!", "yellow"), "note": ("·", "dim")}


def show_validation(screen: Console, validation: Validation) -> None:
    description = validation.description
    screen.print(f"[bold]{validation.model}[/]{_file(description)}", highlight=False, soft_wrap=True)
    if validation.layer is not None:
        screen.print(_layer(validation), highlight=False, soft_wrap=True, markup=False)
    screen.print()
    reached = _reached(validation)
    for phase in PHASES:
        found = validation.of_phase(phase)
        if phase not in reached and not found:
            continue
        mark, style = _worst(found)
        summary = validation.summaries.get(phase, "")
        screen.print(
            f"{mark} {phase:<11}{summary}".rstrip(), style=style, highlight=False, soft_wrap=True, markup=False
        )
        for finding in found:
            _show(screen, finding)
    if validation.runtimes:
        screen.print()
        screen.print(_runtimes(validation))
    for diagnosis in validation.diagnoses:
        screen.print(diagnosis_text(diagnosis), style="bold", highlight=False, soft_wrap=True, markup=False)
    screen.print(_last_line(validation), highlight=False, soft_wrap=True)


def _show(screen: Console, finding: Finding) -> None:
    mark, style = _MARKS[finding.severity]
    screen.print(f"    {mark} {finding.message}", style=style, highlight=False, soft_wrap=True, markup=False)
    if finding.hint:
        screen.print(f"      {finding.hint}", style="dim", highlight=False, soft_wrap=True, markup=False)


def _worst(found: list[Finding]) -> tuple[str, str]:
    severities = {finding.severity for finding in found}
    if "error" in severities:
        return _MARKS["error"]
    return _MARKS["warning"] if "warning" in severities else ("✓", "green")


def _reached(validation: Validation) -> set[Phase]:
    """The phases that the file went through: all, or those up to the last with a finding."""
    if validation.judged:
        return {phase for phase in PHASES if phase not in ("reduction", "levels") or phase in validation.summaries}
    last = max((PHASES.index(finding.phase) for finding in validation.findings), default=0)
    return {*PHASES[: last + 1]}


def _file(description: Description) -> str:
    if description.file is None:
        return ""
    return f"  by {description.file.producer}" if description.file.producer else ""


def _layer(validation: Validation) -> str:
    layer, how = validation.layer, validation.layer_from
    assert layer is not None
    source = "as it was told" if how == "told" else "inferred from the graph"
    return (
        f"Judged as {layer.layer} ({source}): {choices(layer)}"
        if validation.judged
        else f"Seems to be: {choices(layer)}"
    )


def choices(layer: Layer) -> str:
    """`post-norm layer_norm ε 1e-05, relu, D = 512, H = 8, F = 2048, N = 6`."""
    heads, d_ff, norm = layer.attention.num_heads, layer.feed_forward.d_ff, layer.norm
    sizes = f"D = {layer.d_model}, H = {heads}, F = {d_ff}"
    stack = f", N = {layer.stack.layers}" if layer.stack.layers > 1 else ""
    more = stack + (", final norm" if layer.stack.final_norm else "")
    return f"{norm.placement}-norm {norm.kind} ε {norm.epsilon:.6g}, {layer.feed_forward.activation}, {sizes}{more}"


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
        style = "" if result.passed == result.applicable else "red"
        table.add_row(
            result.runtime, result.level, f"{result.passed} / {result.applicable}", *sigma, taken, style=style
        )
    return table


def _last_line(validation: Validation) -> str:
    errors = len(validation.errors)
    warnings = sum(1 for finding in validation.findings if finding.severity == "warning")
    count = f"{errors} error{'s' * (errors != 1)}, {warnings} warning{'s' * (warnings != 1)}"
    if not validation.judged:
        return f"[bold red]It could not be judged: {count}[/]"
    if errors:
        return f"[bold red]It does not do what it should: {count}[/]"
    return f"[bold green]It does what it should: {count}[/]"
