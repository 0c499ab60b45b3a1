"""Compares the answers of two to the same questions, tensor by tensor, in √2 σ, the noise of a difference.

Neither is taken to be right. Which of the two is off, the oracle's verdict on each tells.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from encoder_conformance.judging.asking import JudgedAnswer
from encoder_conformance.judging.difference import differences
from encoder_conformance.judging.verdict import TensorVerdict
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.outcome import EXPECTED
from encoder_conformance.spec.situation import Check

AnswersByCheck = Mapping[tuple[str, str], JudgedAnswer]
"""Case and check → the judged answer."""
Off = Literal["first", "second", "both", "neither"]
"""Which of the two is out of line with the oracle."""


@dataclass(frozen=True)
class Compared:
    """One check of one case that both answered. `verdicts` are on the difference, in √2 σ, in the order of stages."""

    case: Case
    check: Check
    verdicts: tuple[TensorVerdict, ...]
    off: Off

    @property
    def agrees(self) -> bool:
        return all(verdict.conforms for verdict in self.verdicts)

    @property
    def first_apart(self) -> TensorVerdict | None:
        """The first tensor in which they differ."""
        return next((verdict for verdict in self.verdicts if not verdict.conforms), None)


def compare_answers(cases: Iterable[Case], first: AnswersByCheck, second: AnswersByCheck) -> Iterator[Compared]:
    """Compare all that both answered to these cases. The format of the first has the wider noise."""
    for case in cases:
        for check in case.situation.checks:
            one, two = first.get((case.id, check)), second.get((case.id, check))
            if one and two and (verdicts := tuple(differences(one, two))):
                yield Compared(case, check, verdicts, _off(one, two))


def _off(first: JudgedAnswer, second: JudgedAnswer) -> Off:
    one, two = (answer.record.outcome not in EXPECTED for answer in (first, second))
    if one:
        return "both" if two else "first"
    return "second" if two else "neither"
