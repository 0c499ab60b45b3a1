"""What ends a command with a sentence and no traceback: bad input, and a worker that gives no answer."""

import difflib
from collections.abc import Iterable


class InputError(Exception):
    """Something the user gave (a file, a name, an option) cannot be used; the command exits with status 2.

    `what` says what is wrong, `where` the file and key or the option, `hint` the next step.
    """

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        self.what, self.where, self.hint = what, where, hint
        super().__init__("\n".join(self.lines()))

    def lines(self) -> list[str]:
        first = f"{self.where}: {self.what}" if self.where else self.what
        return [first, f"  {self.hint}"] if self.hint else [first]


class Unanswered(Exception):
    """The implementation gave no answer that could be shown: it raised, ended, or took too long."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A sentence that names what the user may have meant, or where to look when nothing is near."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if near:
        return "did you mean " + " or ".join(near) + "?"
    return "known: " + (", ".join(known[:8]) + (", …" if len(known) > 8 else "") if known else "none")
