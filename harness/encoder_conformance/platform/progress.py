"""Progress of a command, for whoever shows it."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """`begin` gets the name of a task and its number of steps, `step` the name of each step that is done."""

    begin: Callable[[str, int], None]
    step: Callable[[str], None]


def _nothing(*_: object) -> None: ...


SILENT = Progress(_nothing, _nothing)
"""Shown to nobody."""
