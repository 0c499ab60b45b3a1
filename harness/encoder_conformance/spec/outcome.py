"""The outcomes of a check, from best to worst: a row each, of which all that shows them is made."""

from enum import StrEnum
from typing import Literal, Self

StateKind = Literal["conforms", "deviates", "stale", "out of line", "no answer", "not asked"]
"""The kind of an outcome's state in a trend: runs whose states are equal agree on a check."""
Category = Literal["good", "declared", "bad", "unasked"]
"""The colour of an outcome wherever it is shown. The site's rules have it as a class."""


class Outcome(StrEnum):
    """The ten outcomes. An opt-out (`unsupported`) never counts as a pass. A run succeeds if all are `EXPECTED`."""

    sign: str
    """No two are the same, so that an outcome can be read without its colour. A letter where it is written out too."""
    meaning: str
    state: StateKind

    def __new__(cls, value: str, sign: str, meaning: str, state: StateKind) -> Self:
        outcome = str.__new__(cls, value)
        outcome._value_, outcome.sign, outcome.meaning, outcome.state = value, sign, meaning, state
        return outcome

    PASS = "pass", "✓", "conforms", "conforms"
    DEVIATES = "deviates", "≈", "deviates as declared, verified", "deviates"  # against the patched specification
    UNSUPPORTED = "unsupported", "–", "not asked, with a reason", "not asked"  # the manifest excludes it; not run
    STALE = "stale", "S", "a declared deviation is not seen", "stale"
    INCONCLUSIVE = "inconclusive", "?", "holds for any input", "out of line"  # the output does not depend on the input
    FAIL = "fail", "✗", "does not conform", "out of line"
    ERROR = "error", "E", "the adapter raised an exception", "no answer"  # or broke the protocol
    CRASH = "crash", "C", "the worker's process ended", "no answer"
    TIMEOUT = "timeout", "T", "no answer in time", "no answer"
    NOT_RUN = "not-run", "·", "the run ended before", "not asked"

    @property
    def category(self) -> Category:
        """Good and declared are in line; bad is out of line, or no answer."""
        match self.state:
            case "conforms":
                return "good"
            case "deviates":
                return "declared"
            case "not asked":
                return "unasked"
            case _:
                return "bad"

    @property
    def is_in_line(self) -> bool:
        """Whether the answer meets the specification, or what is declared of it."""
        return self.category in ("good", "declared")


EXPECTED = frozenset({Outcome.PASS, Outcome.DEVIATES, Outcome.UNSUPPORTED})
SEVERITY = {outcome: -1 if outcome is Outcome.UNSUPPORTED else rank for rank, outcome in enumerate(Outcome)}
"""The larger, the worse. An opt-out is below every verdict: it says nothing beside one."""
