"""Markdown tables, and the detection matrix of docs/deviations.md."""

from collections.abc import Sequence

from encoder_conformance.oracle.catalogue import catalogue
from tools.kill import UNCOMPARABLE, Best, Kill

Rows = Sequence[tuple[str, ...]]


def markdown(headings: tuple[str, ...], rows: Rows) -> str:
    """A Markdown table."""
    lines = [headings, tuple("---" for _ in headings), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)


def sigma(value: float) -> str:
    """σ with two digits: enough to see a factor of two, and few enough to be the same on any machine."""
    return "∞" if value >= UNCOMPARABLE else f"{value:.1e}" if value >= 1e4 else f"{value:.2g}"


def kill_table(by_deviation: dict[str, Best]) -> str:
    """A row per deviation, weakest first: the best required case at the output and at any stage, and the detections."""
    rows = [
        (
            f"`{name}`",
            _case_text(kill.output),
            _case_text(kill.stages) + (f", `{kill.stages.stage}`" if kill.stages and kill.stages.stage else ""),
            f"{kill.caught_by} of {kill.applicable}",
            "not at the output" if catalogue()[name].unseen else "",
        )
        for name, kill in sorted(by_deviation.items(), key=lambda item: item[1].output.sigma if item[1].output else 0.0)
    ]
    return markdown(("deviation", "output, σ", "any stage, σ, and the first out of line", "seen by", "unseen"), rows)


def _case_text(kill: Kill | None) -> str:
    return f"{sigma(kill.sigma)} {kill.case}" if kill else "–"
