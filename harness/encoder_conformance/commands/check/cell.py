"""A check as a small table for the cell of a notebook: what its last lines say, and how each part and form came out."""

from collections.abc import Iterator
from html import escape

from encoder_conformance.commands.check.results import CheckResult
from encoder_conformance.commands.check.verdict import around, closing, of_model

_COLOURS = {0: "#1a7f37", 1: "#cf222e", 2: "#9a6700"}
"""Exit status → the colour of a verdict."""


def table_of(result: CheckResult) -> str:
    """HTML whose every text is escaped: names and messages are those of somebody's module."""
    rows = "".join(_row(*each) for each in _rows(result))
    return f'<table style="text-align: left">{rows}</table>'


def _row(label: str, text: str, status: int | None) -> str:
    style = "text-align: left" + (f"; color: {_COLOURS[status]}; font-weight: bold" if status is not None else "")
    return f'<tr><th style="text-align: left">{escape(label)}</th><td style="{style}">{escape(text)}</td></tr>'


def _rows(result: CheckResult) -> Iterator[tuple[str, str, int | None]]:
    """(Label, text, the status that it is a verdict of, if it is one)."""
    yield "module", result.target, None
    for place, part in enumerate(result.parts):
        if part.at:
            yield "part", part.at, None
        for error in part.errors:
            yield "error", error.message, None
        for line in closing(part, result.parts[:place]):
            yield line.of, line.text, line.status
        for warning in part.warnings:
            yield "warning", warning.message, None
    for refused in result.refused:
        yield "part", refused.at, None
        yield "verdict", f"It could not be judged: {refused.message}", 2
    if wrong := of_model(result):
        yield "verdict", wrong, 1
    for each in result.of_whole:
        if each.severity == "warning":
            yield "warning", each.message, None
    if left := around(result):
        yield "not asked", left, None
