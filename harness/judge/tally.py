"""How an implementation's checks came out: they conform, conform with declared deviations, or do not conform."""

from collections.abc import Iterable
from dataclasses import dataclass

from encoder_conformance.judge.outcome import Outcome


@dataclass(frozen=True)
class Tally:
    """`applicable` checks, of which `conforming` conform and `deviating` deviate as declared. Unsupported ones are in
    none of these; those that were not run are applicable."""

    conforming: int
    deviating: int
    applicable: int

    @classmethod
    def of(cls, outcomes: Iterable[Outcome]) -> "Tally":
        found = [outcome for outcome in outcomes if outcome is not Outcome.UNSUPPORTED]
        return cls(found.count(Outcome.PASS), found.count(Outcome.DEVIATES), len(found))

    @property
    def as_expected(self) -> int:
        return self.conforming + self.deviating

    @property
    def unexpected(self) -> int:
        return self.applicable - self.as_expected

    @property
    def style(self) -> str:
        """The colour of its line on a terminal."""
        return "red" if self.unexpected else "cyan" if self.deviating else "green"

    def __str__(self) -> str:
        declared = f", {self.deviating} of them with declared deviations" if self.deviating else ""
        return f"{self.as_expected} of {self.applicable} checks conform{declared}"
