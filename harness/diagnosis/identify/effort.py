"""How far a search goes: so many evaluations, on any machine, and no further than the time that a user gave."""

import time
from dataclasses import dataclass

FIT = 6
"""Evaluations that fitting a number takes the time of, about."""


@dataclass
class Effort:
    """`left` evaluations of an equation; `until`, by time.monotonic(), if the user set a time."""

    left: int
    until: float | None = None

    def spend(self, evaluations: int) -> bool:
        """Whether there was that much left; if not, the search ends with what it has."""
        self.left -= evaluations
        return self.left >= 0 and (self.until is None or time.monotonic() < self.until)

    @property
    def is_over(self) -> bool:
        return not self.spend(0)
