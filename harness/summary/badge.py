"""A run as a badge: how many checks conform, as an SVG image."""

from anybadge import Badge

from encoder_conformance.judge.tally import Tally
from encoder_conformance.results import Report


def badge(report: Report) -> str:
    """An SVG image. Green: all conform; blue: with declared deviations; red: some do not; grey: incomplete."""
    tally = Tally.of(record.outcome for record in report.records)
    color = "#e05d44" if tally.unexpected else "#007ec6" if tally.deviating else "#4c1"
    value = f"{tally.as_expected} of {tally.applicable}"
    if not report.complete or not tally.applicable:
        color, value = "#9f9f9f", "incomplete"
    svg: str = Badge("conform", value, default_color=color).badge_svg_text
    return svg
