"""Searches the catalogue: single deviations on some of the evidence, the hopeful on all of it, and then pairs."""

import time
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from encoder_conformance.deviations.catalogue import is_noisy
from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.diagnosis.match import GUESSED, Match
from encoder_conformance.diagnosis.pairs import earned, most_left, pairs
from encoder_conformance.diagnosis.selection import Scouts
from encoder_conformance.spec.constants import constants
from encoder_conformance.spec.deviation import Deviation

_KEPT = 12
"""Hypotheses that are tried on everything though they explain nothing: the closest are named."""
_MEASURED = 4
"""Hypotheses that are tried in their own noise: it takes 24 plays a case."""
_SAME = 1e-9


class OutOfTime(Exception):
    """The time for a diagnosis ended."""


def search(
    offered: Sequence[Deviation], scouts: Scouts, evidence: Sequence[Evidence], until: float | None
) -> list[Match]:
    """The hypotheses that account for most, the best first: single deviations, and pairs where no single explains.

    Each is tried on the scouts, and then the hopeful and the closest few on all of the evidence.
    """
    bare = untold(scouts.first)
    singles, ranked = list[Match](), list[Match]()
    for of_round in _rounds(offered):
        tried = _tried(_matches((d,) for d in of_round), scouts.first, lambda match: not _refuted(match, bare), until)
        singles += tried
        ranked = sorted(ranked + _confirmed(_of_all(tried, evidence, until), evidence), key=_rank)
        if any(match.explains and match.came_true for match in ranked):
            return ranked
    bare = untold(scouts.slower)
    singles = _unrefuted(singles, bare, scouts.slower, until)
    if scouts.slower is evidence:  # then more of them were tried on all
        known = {match.ids for match in ranked}
        others = [match for match in singles if match.ids not in known]
        ranked = sorted(ranked + _confirmed(others, evidence), key=_rank)
    suspects = [match for match in singles if match.shows]
    likely = pairs(suspects, bare, most_left(ranked))[: scouts.pairs]
    tried = _tried(_matches(likely), scouts.slower, _may_explain, until)
    both = _confirmed(_of_all(tried, evidence, until), evidence)
    if both and (not ranked or earned(both[0], ranked[0])):
        ranked = sorted(ranked + both, key=_rank)
    return ranked


def untold(evidence: Sequence[Evidence]) -> Match:
    """How far what was seen is from what is right: no deviation, tried on all."""
    return _of((), evidence)


def _of(deviations: tuple[Deviation, ...], evidence: Sequence[Evidence], *, measured: bool = False) -> Match:
    match = Match(deviations, constants())
    for piece in evidence:
        match.try_on(piece, measured=measured)
    return match


def _matches(hypotheses: Iterable[tuple[Deviation, ...]]) -> list[Match]:
    return [Match(deviations, constants()) for deviations in hypotheses]


def _tried(
    matches: list[Match], evidence: Sequence[Evidence], hopeful: Callable[[Match], bool], until: float | None
) -> list[Match]:
    """Try all, case after case, and go on with those that are hopeful, and the closest few. The best first."""
    for piece in evidence:
        for match in matches:
            _in_time(until)
            match.try_on(piece)
        matches = sorted(matches, key=_rank)
        matches = [match for at, match in enumerate(matches) if at < _KEPT or hopeful(match)]
    return matches


def _unrefuted(
    matches: Sequence[Match], nothing: Match, evidence: Sequence[Evidence], until: float | None
) -> list[Match]:
    """Those that put nothing out of line in any of the evidence."""
    left = list(matches)
    for piece in evidence:
        for match in left:
            _in_time(until)
            match.try_on(piece)
        left = [match for match in left if not _refuted(match, nothing)]
    return left


def _in_time(until: float | None) -> None:
    if until is not None and time.monotonic() > until:
        raise OutOfTime


def _rounds(deviations: Sequence[Deviation]) -> list[list[Deviation]]:
    """Those first whose values are predicted: the others are played several times each, and what explains in values
    leaves behind what fits in size."""
    return [[d for d in deviations if is_noisy(d) == noisy] for noisy in (False, True)]


def _of_all(matches: Sequence[Match], evidence: Sequence[Evidence], until: float | None) -> list[Match]:
    """The hopeful and the closest few, tried on all of the evidence, and on nothing else."""
    left = [match for at, match in enumerate(matches) if at < _KEPT or _may_explain(match)]
    return _tried([match.within(evidence) for match in left], evidence, _may_explain, until)


def _refuted(match: Match, nothing: Match) -> bool:
    """Whether it puts out of line what is in line without it: then it is not there, alone or beside another."""
    return any(
        bool(np.any(right.in_line & ~wrong.in_line)) for right, wrong in zip(nothing.fits, match.fits, strict=False)
    )


def _may_explain(match: Match) -> bool:
    """Whether it explains all, but for a noise that may have been guessed too small."""
    return match.explains or (match.exact and match.rms < GUESSED)


def _rank(match: Match) -> tuple[int, float, int]:
    return match.out_of_line, match.cost, len(match.deviations)


def _confirmed(matches: Sequence[Match], evidence: Sequence[Evidence]) -> list[Match]:
    """The best first. The closest are tried again in the wrong layer's own noise, until one explains all.

    Those that predict the same as it does are as close, and are tried too.
    """
    ranked = sorted(matches, key=lambda match: match.cost)
    likely = [at for at, match in enumerate(ranked) if match.rms < GUESSED]
    enough = np.inf
    for at in likely[:_MEASURED]:
        guessed = ranked[at].cost
        if guessed > enough:
            break
        ranked[at] = _of(ranked[at].deviations, evidence, measured=True)
        if ranked[at].explains and enough == np.inf:
            enough = guessed + _SAME
    return sorted((match for match in ranked if not match.refuted), key=_rank)
