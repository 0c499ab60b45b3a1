"""Prints a trend: a row for each version, then since which version what is so."""

from rich.console import Console
from rich.text import Text

from encoder_conformance.platform.clean import first_names
from encoder_conformance.reports.compare.comparison import clauses_cited
from encoder_conformance.reports.compare.trend import History, Point, Trend
from encoder_conformance.reports.run.matrix import format_sigma, plain_table

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
    screen.print(last_line(trend), soft_wrap=True)


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


def last_line(trend: Trend) -> Text:
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
