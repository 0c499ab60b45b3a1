"""Prints what changed between two runs, what got worse and why; and a trend: the version that changed what."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from encoder_conformance.judging.records import Record
from encoder_conformance.platform.clean import first_names
from encoder_conformance.reports.compare.comparison import (
    AS_BEFORE,
    WORSE,
    Change,
    Changed,
    Comparison,
    changed_machine,
    changed_versions,
    clauses_cited,
)
from encoder_conformance.reports.compare.trend import History, Point, Trend
from encoder_conformance.reports.run.matrix import format_sigma, plain_table
from encoder_conformance.reports.run.terminal import diagnosis_text

_SHOWN = 12


def show_comparison(screen: Console, comparison: Comparison) -> None:
    """Print reservations, what differs between the machines, counts, changed versions, the checks that changed, new
    diagnoses, and the last line."""
    for name, report in (("old", comparison.old), ("new", comparison.new)):
        line = f"{name}: {report.started}, conform {report.environment.conform}, {len(report.records)} checks planned"
        screen.print(line, style="dim", soft_wrap=True)
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
        cited = clauses_cited(each.record.case for each in changed).most_common(_SHOWN)
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


_CASES, _CHANGES, _CLAUSES = 4, 12, 8


def show_trend(screen: Console, trend: Trend) -> None:
    """Print the table, the changes, and the last line."""
    table = plain_table()
    table.add_column("version", no_wrap=True)
    for name in ("conforms", "deviates", "out of line", "not asked", "largest rms σ", "same bits"):
        table.add_column(name, justify="right")
    for number, point in enumerate(trend.points):
        if not point.absent:
            table.add_row(point.label, *_numbers(point, trend.same_bits(number)))
    screen.print(table)
    for point in trend.points:
        if point.absent:
            screen.print(f"{point.label}: {point.absent}", style="yellow", soft_wrap=True, markup=False)
    for change in trend.changes[:_CHANGES]:
        _show_change(screen, change)
    if len(trend.changes) > _CHANGES:
        screen.print(f"… and {len(trend.changes) - _CHANGES} more changes; --json lists all", soft_wrap=True)
    screen.print(trend_line(trend), soft_wrap=True)


def _numbers(point: Point, same: tuple[int, int] | None) -> list[str | Text]:
    tally = point.tally
    bad = Text(str(tally.unexpected or "–"), style="bold red" if tally.unexpected else "dim")
    return [
        str(tally.conforming or "–"),
        str(tally.deviating or "–"),
        bad,
        str(tally.unsupported or "–"),
        "–" if point.largest is None else format_sigma(point.largest),
        "" if same is None else f"{same[0]} of {same[1]}",
    ]


def _show_change(screen: Console, change: History) -> None:
    cases = first_names(change.cases, _CASES)
    clauses = ", ".join(name for name, _ in clauses_cited(change.cases).most_common(_CLAUSES))
    count = f"{len(change.keys)} check{'s' * (len(change.keys) != 1)}"
    screen.print(Text(f"{count}: {change.sentence}", style="red" if change.worse else "cyan"), soft_wrap=True)
    screen.print(Text(f"  in {cases}; clauses {clauses or 'unknown'}", style="dim"), soft_wrap=True)


def trend_line(trend: Trend) -> Text:
    """A line that says how much changed."""
    present = trend.present
    if len(present) < 2:
        said = f"{trend.implementation}: {len(present)} of {len(trend.points)} versions were judged; a trend needs two"
        return Text(said, style="bold yellow")
    span = f"from {present[0].label} to {present[-1].label}"
    changed = sum(len(change.keys) for change in trend.changes)
    if not changed:
        return Text(f"{trend.implementation}: nothing changed its verdict {span}", style="bold green")
    worse = sum(len(change.keys) for change in trend.changes if change.worse)
    what = "1 check changed its" if changed == 1 else f"{changed} checks changed their"
    said = f"{trend.implementation}: {what} verdict {span}"
    if worse:
        return Text(f"{said}, {worse} of them for the worse", style="bold red")
    return Text(said, style="bold cyan")
