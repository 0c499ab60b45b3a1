"""The findings of a reader and of the harness: one problem or fact each, in text that is safe to print."""

from collections.abc import Collection
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator

from encoder_conformance.platform.errors import InputError
from encoder_conformance.spec.strict import Frozen

Phase = Literal[
    "file", "checker", "operators", "interface", "dimensions", "loads", "layer", "shapes", "masks", "numbers", "whole",
    "source", "levels", "properties", "history", "reduction", "cost",
]  # fmt: skip
PHASES: tuple[Phase, ...] = get_args(Phase)
"""The phases of a validation, in the order in which a file goes through them."""

Severity = Literal["error", "warning", "note"]
"""An error: the subject is wrong. A warning: somebody will stumble, or it is unusual. A note: a fact."""


def plain(text: str) -> str:
    """The text on one line, each character that is not printable as its escape: `\\n`, `\\x1b`, `\\u202e`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


Plain = Annotated[str, AfterValidator(plain)]
"""Text that a file or a worker chose, made safe to print: a terminal obeys control characters and newlines."""


class Finding(Frozen):
    """One problem or fact: what and where it is, and what to do about it."""

    severity: Severity
    message: Plain
    hint: Plain = ""


class PhaseFinding(Finding):
    """A finding of one phase of a validation. `runtimes`: the runs that alone show it, or a runtime; `out_of_line`:
    their numbers are. `deviation`: the one of the catalogue that it is."""

    phase: Phase
    runtimes: tuple[str, ...] = ()
    out_of_line: bool = False
    deviation: str | None = None

    def is_of(self, runtimes: Collection[str]) -> bool:
        """Whether it is of these runs alone, and says nothing of the file."""
        known = {*runtimes, *(name.partition(" ")[0] for name in runtimes)}
        return bool(self.runtimes) and known.issuperset(self.runtimes)


class Problem(Frozen):
    """Why nothing could be examined, and what to do."""

    message: str
    hint: str

    def error(self, where: str) -> InputError:
        return InputError(self.message, where=where, hint=self.hint)
