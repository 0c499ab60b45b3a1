"""A run to look at in CI: as Markdown for a step summary or a comment, with the verdict, what fails and why first, then
the counts; and as a badge."""

from collections.abc import Iterable
from itertools import islice

from anybadge import Badge

from encoder_conformance.judging.records import Record, Report
from encoder_conformance.judging.tally import Tally
from encoder_conformance.reports.run.terminal import diagnosis_text

_SHOWN_FAILURES, _SHOWN_DIAGNOSES, _LONGEST = 30, 20, 600
"""So that all of it fits the 65,536 characters of a comment."""
_SPECIAL = str.maketrans(
    {character: f"\\{character}" for character in "\\`*_[]|~"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
)


def markdown(report: Report) -> str:
    """The report in Markdown as GitHub and GitLab read it."""
    lines = [f"## {verdict(report)}", ""]
    failed = [record for record in report.records if record.outcome.category == "bad"]
    for diagnosis in report.diagnoses[:_SHOWN_DIAGNOSES]:
        lines += [f"- **{_escaped(diagnosis_text(diagnosis))}**"]
    lines += _more(len(report.diagnoses) - _SHOWN_DIAGNOSES, "diagnoses")
    lines += [""] * bool(report.diagnoses)
    if failed:
        lines += _table(("implementation", "case", "dtype", "check", "outcome", "rms σ", "message"), map(_row, failed))
        lines += [*_more(len(failed) - _SHOWN_FAILURES, "checks that do not conform"), ""]
    lines += _table(
        ("implementation", "conforms", "deviates as declared", "does not conform", "versions"), _rows(report)
    )
    for absent in report.absent:
        lines += ["", f"Not judged: {_escaped(absent.name)} ({_escaped(absent.reason)})."]
    return "\n".join(lines) + "\n"


def badge(report: Report) -> str:
    """An SVG image. Green: all conform; blue: with declared deviations; red: some do not; grey: incomplete."""
    tally = Tally.of(record.outcome for record in report.records)
    color = "#e05d44" if tally.unexpected else "#007ec6" if tally.deviating else "#4c1"
    value = f"{tally.as_expected} of {tally.applicable}"
    if not report.complete or not tally.applicable:
        color, value = "#9f9f9f", "incomplete"
    svg: str = Badge("conform", value, default_color=color).badge_svg_text
    return svg


def verdict(report: Report) -> str:
    """The run in one sentence."""
    tally = Tally.of(record.outcome for record in report.records)
    if not tally.applicable:
        return "Incomplete: nothing was judged"
    if report.complete:
        return f"{'✓' if not tally.unexpected else '✗'} {tally}"
    ended = f", ended by the {report.ended_by}" if report.ended_by else ""
    return f"✗ Incomplete{ended}: {tally}"


def _row(record: Record) -> tuple[str, ...]:
    size = "" if record.rms is None else f"{record.rms:.3g}"
    message = " ".join(record.message.split())
    return record.implementation, record.case, record.dtype, record.check, record.outcome.value, size, message


def _rows(report: Report) -> Iterable[tuple[str, ...]]:
    for implementation in report.implementations:
        tally = Tally.of(record.outcome for record in report.records if record.implementation == implementation.name)
        counts = (str(tally.conforming), str(tally.deviating), str(tally.unexpected))
        versions = ", ".join(f"{name} {version}" for name, version in implementation.versions.items())
        yield implementation.name, *counts, versions or "never started"


def _table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    shown = (map(_escaped, row) for row in islice(rows, _SHOWN_FAILURES))
    return [f"| {' | '.join(cells)} |" for cells in (headings, ["---"] * len(headings), *shown)]


def _more(count: int, what: str) -> list[str]:
    return [f"… and {count} more {what}; report.json has all."] if count > 0 else []


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is: no markup, no mention, no HTML."""
    return (text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …").translate(_SPECIAL)
