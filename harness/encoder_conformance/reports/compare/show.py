"""Prints a comparison: what changed about each implementation, what got worse, and why."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from encoder_conformance.judging.records import Record, Report
from encoder_conformance.reports.compare.comparison import (
    AS_BEFORE,
    WORSE,
    Change,
    Changed,
    Comparison,
    changed_machine,
    changed_versions,
    clauses_of,
)
from encoder_conformance.reports.run.matrix import plain_table
from encoder_conformance.reports.run.terminal import diagnosis_text

_SHOWN = 12


def show_comparison(screen: Console, comparison: Comparison) -> None:
    """Print reservations, what differs between the machines, counts, changed versions, the checks that changed, new
    diagnoses, and the last line."""
    for name, report in (("old", comparison.old), ("new", comparison.new)):
        screen.print(f"{name}: {_run_line(report)}", style="dim", soft_wrap=True)
    for sentence in comparison.reservations:
        screen.print(sentence, style="yellow", soft_wrap=True)
    if machine := changed_machine(comparison.old, comparison.new):
        screen.print(f"machine: {', '.join(machine)}", soft_wrap=True)
    screen.print(_counts_table(comparison))
    for name, changes in changed_versions(comparison.old, comparison.new).items():
        screen.print(f"{name}: {', '.join(changes)}", soft_wrap=True)
    for change, changed in comparison.by_change.items():
        if change not in AS_BEFORE:
            _show_changed(screen, change, changed)
    for diagnosis in comparison.new_diagnoses:
        screen.print(diagnosis_text(diagnosis), style="bold", soft_wrap=True)
    screen.print(last_line(comparison), soft_wrap=True)


def _run_line(report: Report) -> str:
    return f"{report.started}, conform {report.environment.conform}, {len(report.records)} checks planned"


def _counts_table(comparison: Comparison) -> Table:
    table = plain_table()
    table.add_column("implementation", no_wrap=True)
    for change in comparison.by_change:
        table.add_column(change.value, justify="right")
    for name, count in comparison.counts.items():
        table.add_row(name, *(_number(count[change], change) for change in comparison.by_change))
    return table


def _number(count: int, change: Change) -> Text:
    style = "bold red" if change in WORSE else "green" if change is Change.NEWLY_IN else ""
    return Text(str(count or "–"), style=style if count else "dim")


def _show_changed(screen: Console, change: Change, changed: list[Changed]) -> None:
    style = "red" if change in WORSE else ""
    screen.print(f"\n{change.value} ({len(changed)}):", style=f"bold {style}".strip())
    for each in changed[:_SHOWN]:
        record = each.record
        line = f"  {record.implementation} {record.case} {record.dtype} {record.check}: {transition(each)}"
        screen.print(line, style=style or None, soft_wrap=True)
    if len(changed) > _SHOWN:
        screen.print(f"  … and {len(changed) - _SHOWN} more; --json lists all")
    if change in WORSE:
        cited = clauses_of(each.record for each in changed).most_common(_SHOWN)
        clauses = ", ".join(f"{clause} ({count})" for clause, count in cited)
        screen.print(f"  clauses, with how many of these checks cite each: {clauses or 'none'}", soft_wrap=True)


def transition(changed: Changed) -> str:
    """A check's record before and now, such as "pass (0.61 σ) → fail (238 σ): …"."""
    message = changed.new.message if changed.new else ""
    text = f"{_state(changed.old)} → {_state(changed.new)}"
    return f"{text}: {' '.join(message.split())[:200]}" if message else text


def _state(record: Record | None) -> str:
    if record is None:
        return "not planned"
    deviations = f" as {', '.join(record.deviations)}" if record.deviations else ""
    size = f" ({record.rms:.3g} σ)" if record.rms is not None else ""
    return f"{record.outcome.value}{deviations}{size}"


def last_line(comparison: Comparison) -> Text:
    """A line that says what got worse, in numbers, or that nothing did."""
    texts = {change: f"{len(checks)} {change.value}" for change, checks in comparison.by_change.items()}
    rest = ", ".join(text for change, text in texts.items() if change not in WORSE)
    if not texts:
        return Text("INCOMPLETE: neither run judged anything", style="bold red")
    if comparison.worse:
        worse = ", ".join(text for change, text in texts.items() if change in WORSE)
        return Text(f"Worse: {worse}{f'; {rest}' if rest else ''}", style="bold red")
    if comparison.reservations:
        return Text(f"Nothing of what both runs asked got worse: {rest}", style="bold yellow")
    return Text(f"Nothing got worse: {rest}", style="bold green")
