"""Compares the answers of two to the same questions, tensor by tensor, in √2 σ, the noise of a difference.

Neither is taken to be right. Which of the two is off, the oracle's verdict on each tells.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from encoder_conformance.asking import JudgedAnswer
from encoder_conformance.golden.narrow import in_format
from encoder_conformance.judge.difference import difference
from encoder_conformance.judge.expected import Expected, key
from encoder_conformance.judge.outcome import EXPECTED
from encoder_conformance.judge.verdict import TensorVerdict
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import Format
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


def compare_answers(
    cases: Iterable[Case],
    expected: Mapping[str, Expected],
    first: AnswersByCheck,
    second: AnswersByCheck,
    format: Format,
) -> list[Compared]:
    """What both answered, of the checks `output` and `stages`. `format` is that whose roundoff the wider of the two
    noises has; the tensors may be of any floating-point dtype."""
    found = []
    for case in cases:
        goldens = in_format(case, expected[case.id], format)
        for check in case.situation.checks:
            one, two = first.get((case.id, check)), second.get((case.id, check))
            if one is None or two is None or check not in ("output", "stages"):
                continue
            if verdicts := tuple(_differences(one, two, goldens, format)):
                found.append(Compared(case, check, verdicts, _off(one, two)))
    return found


def _differences(one: JudgedAnswer, two: JudgedAnswer, goldens: Expected, format: Format) -> Iterator[TensorVerdict]:
    """One for each tensor that both gave, in the order of stages."""
    mine, theirs = one.tensors or {}, two.tensors or {}
    for name in one.task.case.expected_shapes(one.task.check):
        golden = goldens.tensors.get(key(one.task.check, name))
        if name in mine and name in theirs and golden is not None:
            yield difference(name, mine[name].astype(format.numpy), theirs[name], golden, format)


def _off(first: JudgedAnswer, second: JudgedAnswer) -> Off:
    one, two = (answer.record.outcome not in EXPECTED for answer in (first, second))
    if one:
        return "both" if two else "first"
    return "second" if two else "neither"
