"""Gradients that are right, and handed over under another name or in another layout."""

from collections.abc import Sequence

import numpy as np

from encoder_conformance.diagnosis.backward.seen import GradientsSeen, in_line
from encoder_conformance.spec.constants import constants

_MORE_THAN_NOISE = 100.0
"""The rms, in σ, of a gradient that can be known again: that of a key's bias is 0 but for rounding."""


def rearranged(cases: Sequence[GradientsSeen]) -> tuple[str, ...]:
    """A sentence for each gradient out of line, if each is a right one of another name or layout in every case; else
    none."""
    wrong = dict.fromkeys(
        name for case in cases for name, errors in case.errors(case.right).items() if not in_line(errors, constants())
    )
    found = [_sentence(name, cases) for name in wrong]
    return tuple(each for each in found if each) if all(found) else ()


def _sentence(name: str, cases: Sequence[GradientsSeen]) -> str | None:
    holding = [case for case in cases if name in case.observed]
    for other in dict.fromkeys(other for case in holding for other in case.observed):
        for turned in (False, True):
            if (other != name or turned) and all(_is(case, name, other, turned=turned) for case in holding):
                whose = "" if other == name else f" of {other}"
                return f"The gradient of {name} is that{whose}{', transposed' if turned else ''}."
    return None


def _is(case: GradientsSeen, name: str, other: str, *, turned: bool) -> bool:
    """Whether what was given for `name` is the gradient of `other`, which is more than noise."""
    if other not in case.observed:
        return False
    given, theirs, sigma = case.whole[name], case.right[other], case.sigma[other]
    given = given.T if turned else given
    if given.shape != case.expected[other].shape or float(np.sqrt(np.mean((theirs / sigma) ** 2))) < _MORE_THAN_NOISE:
        return False
    return in_line((given.reshape(-1)[case.expected[other].positions] - theirs) / sigma, constants())
