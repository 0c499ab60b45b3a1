"""Progress of a command, for whoever shows it."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """`begin` gets the name of a task and its number of steps, `step` the name of each step that is done, `say` that of
    what is done now."""

    begin: Callable[[str, int], None]
    step: Callable[[str], None]
    say: Callable[[str], None] = lambda _: None

    def whole(self, what: str, steps: int) -> "Progress":
        """Begin one task of so many steps, of which whatever begins with the result is a part."""
        self.begin(what, steps)
        return Progress(begin=lambda part, _: self.say(part), step=self.step, say=self.say)


def _nothing(*_: object) -> None: ...


SILENT = Progress(_nothing, _nothing)
"""Shown to nobody."""
