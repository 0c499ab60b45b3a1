"""Shows a validation on the terminal: a line for each phase with its findings, a result for each runtime and level."""

from itertools import groupby

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from encoder_conformance.commands.validate.results import CONCLUSIONS, Validation
from encoder_conformance.commands.validate.rounding.results import far, shown
from encoder_conformance.protocol.arguments import Layout
from encoder_conformance.protocol.findings import PHASES, Phase, PhaseFinding
from encoder_conformance.reports.run.terminal import SEVERITIES, SIGMA, diagnosis_text, show_finding, show_line
from encoder_conformance.spec.words import choices

_AXES: dict[Layout, str] = {
    "BSD": "[batch, sequence, features]",
    "SBD": "[sequence, batch, features]",
    "SD": "[sequence, features]",
}


def show_validation(screen: Console, validation: Validation) -> None:
    file = validation.description.file
    producer = f"  by {file.producer}" if file and file.producer else ""
    screen.print(Text.assemble((validation.model, "bold"), producer), soft_wrap=True)
    if validation.layer is not None:
        show_line(screen, _layer(validation))
    screen.print()
    for (why, _), phases in groupby(PHASES, key=lambda phase: _apart(validation, phase)):
        _show_phases(screen, validation, why, list(phases))
    if validation.runtimes:
        screen.print()
        screen.print(_runtimes(validation))
    for diagnosis in validation.diagnoses:
        show_line(screen, diagnosis_text(diagnosis), "bold")
    if validation.judged:
        _show_covered(screen, validation)
    screen.print(_last_line(validation), soft_wrap=True)
    if validation.judged:
        screen.print(f"{SIGMA}.", style="dim")


def _apart(validation: Validation, phase: Phase) -> tuple[str | None, Phase | None]:
    """Equal for phases that have one line: neighbours without a finding in which nothing was asked for one reason."""
    why = validation.not_asked.get(phase)
    return why, phase if why is None or validation.of_phase(phase) else None


def _show_phases(screen: Console, validation: Validation, why: str | None, phases: list[Phase]) -> None:
    """A phase and its findings; or all in which nothing was asked, and why."""
    name = f"{phases[0]:<11}" if len(phases) == 1 else f"{', '.join(phases)}: "
    found = validation.of_phase(phases[0])
    mark, style = _mark(phases[0], found, asked=why is None)
    show_line(screen, f"{mark} {name}{why or validation.summaries.get(phases[0], '')}".rstrip(), style)
    for finding in found:
        show_finding(screen, finding, "    ")


def _mark(phase: Phase, found: list[PhaseFinding], *, asked: bool) -> tuple[str, str]:
    severities = {finding.severity for finding in found}
    if "error" in severities:
        return SEVERITIES["error"]
    if "warning" in severities:
        return SEVERITIES["warning"]
    if not asked:
        return "–", "dim"
    return SEVERITIES["note"] if phase == "cost" else ("✓", "green")  # of costs nothing is judged


_ANSWERS = {"yes": "green", "no": "red", "not asked": "yellow"}


def _show_covered(screen: Console, validation: Validation) -> None:
    """A line for each question, whether the file holds there, and what was asked."""
    for each in validation.covered:
        question = f"{each.question.capitalize()}?"
        show_line(screen, f"{question:<20}{each.answer}: {each.said}", _ANSWERS[each.answer])


def _layer(validation: Validation) -> str:
    layer, how = validation.layer, validation.layer_from
    assert layer is not None
    source = "as it was told" if how == "told" else "inferred from the graph"
    if validation.against is not None and "layer" in validation.compared_with:
        source = f"as {validation.against} is"
    opening = f"Judged as {layer.layer} ({source})" if validation.judged else "Seems to be"
    return f"{opening}: {_choices(validation)}"


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
        passed = f"{result.passed} / {result.applicable}"
        table.add_row(result.runtime, result.level, passed, *sigma, taken, style=style)
    return table


def _choices(validation: Validation) -> str:
    """`post-norm layer_norm ε 1e-05, relu, scores over √head_dim, all biases, D = 512, H = 8, F = 2048, N = 6`."""
    layer, roles = validation.layer, validation.description.roles
    assert layer is not None
    attention = layer.attention
    parts = [
        *choices(layer),
        "projections shared by heads" if attention.projections == "shared_by_heads" else "",
        f"D = {layer.d_model}, H = {attention.num_heads}, F = {layer.feed_forward.d_ff}",
        f"N = {layer.stack.layers}" if layer.stack.layers > 1 else "",
        "final norm" if layer.stack.final_norm else "",
        f"x {_AXES[roles.layout]}" if roles and roles.layout else "",
        *(f"mask {mask.meaning}" for mask in (roles.masks if roles else ()) if mask.meaning),
    ]
    shown = ", ".join(filter(None, parts))
    return f"{shown}, with {' and '.join(validation.deviations)}" if validation.deviations else shown


def _last_line(validation: Validation) -> Text:
    kind = validation.conclusion
    count = f"{_count(len(validation.errors), 'error')}, {_count(len(validation.warnings), 'warning')}"
    if validation.strict and validation.warnings:
        count += " (--strict: a warning fails)"
    status, opening = CONCLUSIONS[kind]
    whose = f" ({', '.join(validation.wrong_runtimes)})" if kind == "runtime_wrong" else ""
    compared = f"{_comparison(validation)}{_beside_nothing(validation)}{_before(validation)}{_without_mask(validation)}"
    return Text(f"{opening}{whose}{compared}: {count}", style="bold red" if status else "bold green")


def _comparison(validation: Validation) -> str:
    """As what it was judged and against what, between the last line's opening and its counts; "" if it is wrong."""
    kind, layer, compared_with = validation.conclusion, validation.layer, validation.compared_with
    if kind in ("wrong", "not_judged"):
        return ""
    if not validation.runtimes or layer is None:
        return f"{_end_to_end(validation)}; no layer was judged in it"
    choices, against = _choices(validation), validation.against
    if against is None and validation.whole is not None:
        return f": {choices}{_end_to_end(validation)}; no stage of it was compared with {validation.whole.source}"
    if against is not None:
        if "layer" not in compared_with:
            return f", with the parameters of {against}: {choices}; only the values of parameters were compared"
        compared = "parameters, stages and outputs were compared"
        if not validation.answers_compared:
            compared = "parameters were compared, and no stage of it"
        return f", as {against}: {choices}; {compared}{_end_to_end(validation)}"
    if kind == "consistent" or (kind == "runtime_wrong" and "layer" not in compared_with):
        return f"; not compared with the original: pass --against. It is {choices}"
    values = "compared" if "parameters" in compared_with else "not compared with the original (--parameters, --against)"
    return f", as {layer.layer}: {choices}; the values of its parameters were {values}"


def _end_to_end(validation: Validation) -> str:
    """What was compared from the first input to the last output, or that it was not."""
    whole, rounding = validation.whole, validation.rounding
    if rounding is not None and rounding.made_from:
        worst = far(error for error, _ in rounding.errors().values())
        count = f"{len(rounding.judged)} case{'s' * (len(rounding.judged) != 1)}"
        return f"; end to end in {count} as {rounding.reference}, within a relative error of {shown(worst)}"
    if whole is None:
        return ""
    if not whole.cases:
        return f"; not compared end to end: {'; '.join(whole.not_compared)}"
    names = ", ".join(whole.outputs)
    count = f"{len(whole.cases)} case{'s' * (len(whole.cases) != 1)}"
    return f"; end to end {names} in {count} as {whole.source} (largest difference {whole.rms:.3g} σ)"


def _beside_nothing(validation: Validation) -> str:
    """The outputs of the file that its source has none for: what is in them is anybody's guess."""
    lone = [each.about["output"] for each in validation.warnings if each.kind == "output-unpaired"]
    return f"; {', '.join(map(repr, lone))} was compared with nothing" if lone else ""


def _before(validation: Validation) -> str:
    """What stands before the encoder and was not judged; "" where nothing does."""
    description, rounding = validation.description, validation.rounding
    is_compared = validation.whole is not None and bool(validation.whole.cases)
    is_compared = is_compared or (rounding is not None and rounding.made_from)
    if not description.unjudged or not validation.judged or is_compared:
        return ""
    return f"; what stands before {description.cut!r}, {description.unjudged}, was not judged"


def _without_mask(validation: Validation) -> str:
    """That what was compared is not padded, where its source can be."""
    of_source = [each for each in validation.warnings if each.kind == "mask-missing"]
    return f"; it cannot be padded, as {validation.whole.source} can" if of_source and validation.whole else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
