"""The generated tables of docs/deviations.md."""

from collections.abc import Sequence

from encoder_conformance.deviations.catalogue import catalogue
from encoder_conformance.deviations.kill import UNCOMPARABLE, Best, Kill

Rows = Sequence[tuple[str, ...]]


def markdown(headings: tuple[str, ...], rows: Rows) -> str:
    lines = [headings, tuple("---" for _ in headings), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)


def sigma(value: float) -> str:
    """Two digits are enough to see a factor of two, and few enough to be the same on any machine."""
    return "∞" if value >= UNCOMPARABLE else f"{value:.1e}" if value >= 1e4 else f"{value:.2g}"


def kill_table(found: dict[str, Best]) -> str:
    """Deviation, the best required case at the output and at any stage, and how many cases see it; weakest first."""
    rows = [
        (
            f"`{name}`",
            _where(kill.output),
            _where(kill.stages) + (f", `{kill.stages.stage}`" if kill.stages and kill.stages.stage else ""),
            f"{kill.caught_by} of {kill.applicable}",
            "not at the output" if catalogue()[name].unseen else "",
        )
        for name, kill in sorted(found.items(), key=lambda item: item[1].output.sigma if item[1].output else 0.0)
    ]
    return markdown(("deviation", "output, σ", "any stage, σ, and the first out of line", "seen by", "unseen"), rows)


def _where(kill: Kill | None) -> str:
    return f"{sigma(kill.sigma)} {kill.case}" if kill else "–"
