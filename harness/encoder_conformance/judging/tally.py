"""Counts an implementation's checks: conforming, deviating as declared, or not conforming."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from encoder_conformance.spec.outcome import Outcome


@dataclass(frozen=True)
class Tally:
    """Numbers of checks: `conforming` and `deviating` (as declared) are parts of `applicable`.

    Unsupported checks count nowhere else. Checks that were not run are applicable.
    """

    conforming: int
    deviating: int
    applicable: int
    unsupported: int

    @classmethod
    def of(cls, outcomes: Iterable[Outcome]) -> "Tally":
        """Count these outcomes. A counter of them is taken as it is."""
        counts = Counter(outcomes)
        unsupported = counts[Outcome.UNSUPPORTED]
        return cls(counts[Outcome.PASS], counts[Outcome.DEVIATES], counts.total() - unsupported, unsupported)

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
