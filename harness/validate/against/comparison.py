"""Compares the answers of two to the same questions, tensor by tensor, in √2 σ, the noise of a difference.

Neither is taken to be right. Which of the two is off, the oracle's verdict on each tells.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from encoder_conformance.asking import Asked
from encoder_conformance.golden.narrow import in_format
from encoder_conformance.judge.expected import Expected, ExpectedTensor, key
from encoder_conformance.judge.outcome import EXPECTED
from encoder_conformance.judge.verdict import TensorVerdict, judge_tensor
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import constants
from encoder_conformance.spec.dtypes import Format
from encoder_conformance.spec.situation import Check

Array = npt.NDArray[Any]
Answered = Mapping[tuple[str, str], Asked]
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
    cases: Iterable[Case], expected: Mapping[str, Expected], first: Answered, second: Answered, format: Format
) -> list[Compared]:
    """What both answered, of the checks `output` and `stages`. `format` is that whose roundoff the wider of the two
    noises has; the tensors may be of any floating-point dtype."""
    found = []
    for case in cases:
        for check in case.situation.checks:
            if check not in ("output", "stages"):
                continue
            one, two = first.get((case.id, check)), second.get((case.id, check))
            if one is None or two is None or one.answers is None or two.answers is None:
                continue
            goldens = in_format(case, expected[case.id], format).tensors
            verdicts = tuple(
                _difference(name, one.answers[name], two.answers[name], goldens[key(check, name)], format)
                for name in case.expected_shapes(check)
                if name in one.answers and name in two.answers and key(check, name) in goldens
            )
            if verdicts:
                found.append(Compared(case, check, verdicts, _off(one, two)))
    return found


def _difference(name: str, one: Array, two: Array, expected: ExpectedTensor, format: Format) -> TensorVerdict:
    """The verdict on the first, as if the second were the golden with the noise of both."""
    dtype = format.numpy
    if two.shape != expected.shape:
        return judge_tensor(name, two.astype(dtype), expected, format, constants())
    golden = two.reshape(-1)[expected.positions].astype(np.float64)
    between = replace(expected, golden=golden, condition=expected.condition * np.sqrt(2.0))
    return judge_tensor(name, one.astype(dtype), between, format, constants())


def _off(first: Asked, second: Asked) -> Off:
    wrong = [asked.record.outcome not in EXPECTED for asked in (first, second)]
    return {(True, True): "both", (True, False): "first", (False, True): "second", (False, False): "neither"}[
        wrong[0], wrong[1]
    ]  # type: ignore[return-value]
