"""Counts an implementation's checks: conforming, deviating as declared, or not conforming."""

from collections.abc import Iterable
from dataclasses import dataclass

from encoder_conformance.judge.outcome import Outcome


@dataclass(frozen=True)
class Tally:
    """Numbers of checks: `conforming` and `deviating` (as declared) are parts of `applicable`.

    Unsupported checks count nowhere. Checks that were not run are applicable.
    """

    conforming: int
    deviating: int
    applicable: int

    @classmethod
    def of(cls, outcomes: Iterable[Outcome]) -> "Tally":
        """Count these outcomes."""
        applicable = [outcome for outcome in outcomes if outcome is not Outcome.UNSUPPORTED]
        return cls(applicable.count(Outcome.PASS), applicable.count(Outcome.DEVIATES), len(applicable))

    @property
    def as_expected(self) -> int:
        """The number of checks that conform, or deviate as declared."""
        return self.conforming + self.deviating

    @property
    def unexpected(self) -> int:
        """The number of checks that do not conform, or have no answer."""
        return self.applicable - self.as_expected

    @property
    def style(self) -> str:
        """The colour of the tally on a terminal."""
        return "red" if self.unexpected else "cyan" if self.deviating else "green"

    def __str__(self) -> str:
        declared = f", {self.deviating} of them with declared deviations" if self.deviating else ""
        return f"{self.as_expected} of {self.applicable} checks conform{declared}"
