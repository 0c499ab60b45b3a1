"""Decides what may be called the closest: a part of what is wrong, which nothing that was observed refutes.

A name that sends its author the wrong way costs more than none. So a closest hypothesis has put in line whatever it
would itself be seen in; what is left out of line is another cause's. One that is known in size only has to be seen in
values (V-4).
"""

from collections.abc import Iterator, Sequence

import numpy as np

from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.diagnosis.match import GUESSED, SCATTERED, Fit, Match
from encoder_conformance.spec.axes import Bools
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.load import constants

_MOST = 0.5
"""The part of the stages out of line that the closest may leave so."""
_CEILING = 20.0
"""The largest error, in σ or in the predicted scatter, that the closest may leave anywhere. Twice the limit of a
single element: beyond it the layer is not nearly what is named, and a name would send its author the wrong way."""
_TRIED = 2
"""Hypotheses that may be tried in their own noise: it takes 24 plays a case."""


def standing(ranked: Sequence[Match], null: Match, evidence: Sequence[Evidence]) -> Iterator[Match]:
    """Yield the hypotheses that nothing refutes, best first. `null` is the null hypothesis.

    They are held to all of the `evidence`, which may be more than they were ranked by.
    """
    for match in _near(ranked, null):
        for piece in evidence:
            null.try_on(piece)
            match.try_on(piece)
        own = match if _stands(match, null) else Match.of(match.deviations, evidence, measured=True)
        if _stands(own, null) and own.rms <= _CEILING and _each_is_seen(own, evidence):
            yield own


def is_refuted(deviations: tuple[Deviation, ...], evidence: Sequence[Evidence]) -> bool:
    """Whether what they predict of this evidence, of another format say, is not there."""
    null, match = Match.of((), evidence), Match.of(deviations, evidence)
    return any(map(_misses, null.fits, match.fits)) or match.refuted


def _near(ranked: Sequence[Match], null: Match) -> list[Match]:
    """Return those that leave little enough, but for a noise that may have been guessed too small, and are seen in
    values where they are known in size only."""
    near = [each for each in ranked if each.out_of_line <= _MOST * null.out_of_line and each.rms < GUESSED]
    return [each for each in near if each.seen_in_values][:_TRIED]


def _stands(match: Match, null: Match) -> bool:
    """Whether it puts in line all that it would be seen in, and some of that is out of line without it."""
    right = dict(zip(null.tried_on, null.fits, strict=True))
    pairs = [(right[piece], found) for piece, found in zip(match.tried_on, match.fits, strict=True)]
    refuted = any(_misses(without, found) for without, found in pairs)
    accounts = any(bool(np.any(_shows(found) & found.in_line & ~without.in_line)) for without, found in pairs)
    return accounts and not refuted


def _each_is_seen(match: Match, evidence: Sequence[Evidence]) -> bool:
    """Whether each of several deviations puts something in line that the others do not."""
    rest = [tuple(each for each in match.deviations if each is not one) for one in match.deviations]
    return all(Match.of(others, evidence).out_of_line > match.out_of_line for others in rest if others)


def _misses(without: Fit, found: Fit) -> bool:
    """Whether a stage is out of line in which it would be seen, or that is in line without it."""
    return bool(np.any((_shows(found) | without.in_line) & ~found.in_line))


def _shows(fit: Fit) -> Bools:
    """Return the stages in which the hypothesis itself would be seen."""
    return np.asarray((fit.errors.moved > constants().rms_limit) | (fit.spread > SCATTERED))
