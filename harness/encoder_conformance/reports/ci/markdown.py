"""A run to look at in CI: as Markdown for a step summary or a comment, with the verdict, what fails and why first, then
the counts; and as a badge."""

from anybadge import Badge
from jinja2 import Environment, PackageLoader, StrictUndefined

from encoder_conformance.judging.records import Report
from encoder_conformance.judging.tally import Tally
from encoder_conformance.reports.run.terminal import diagnosis_text

_MOST_ROWS, _MOST_DIAGNOSES, _LONGEST = 30, 20, 600
"""So that all of it fits the 65,536 characters of a comment."""
_SPECIAL = str.maketrans(
    {character: f"\\{character}" for character in "\\`*_[]|~"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
)


def markdown(report: Report) -> str:
    """The report in Markdown as GitHub and GitLab read it."""
    templates = Environment(
        loader=PackageLoader("encoder_conformance.reports.ci"),
        autoescape=False,  # Markdown, not HTML
        finalize=_escaped,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return templates.get_template("markdown.txt").render(
        report=report,
        verdict=verdict(report),
        diagnoses=list(map(diagnosis_text, report.diagnoses)),
        failed=[record for record in report.records if record.outcome.category == "bad"],
        tally=lambda name: Tally.of(record.outcome for record in report.records if record.implementation == name),
        most_rows=_MOST_ROWS,
        most_diagnoses=_MOST_DIAGNOSES,
    )


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


def _escaped(value: object) -> str:
    """A value that Markdown shows as it is: no markup, no mention, no HTML."""
    text = str(value)
    return (text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …").translate(_SPECIAL)
