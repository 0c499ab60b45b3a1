"""Searches the catalogue: single deviations on some evidence, those that may explain on all of it, and then pairs."""

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.diagnosis.match import GUESSED, Match
from encoder_conformance.diagnosis.selection import Screening
from encoder_conformance.oracle.catalogue import is_noisy
from encoder_conformance.spec.axes import Array, Bools
from encoder_conformance.spec.deviation import Deviation, Measured

EARNED = 0.9
"""What a second cause has to bring down the first one's cost to, or the stages that the first leaves out of line."""
_KEPT = 12
"""Hypotheses that are tried on everything though they explain nothing: the closest are named."""
_MEASURED = 4
"""Hypotheses that are tried in their own noise: it takes 24 plays a case."""
_FEW = 0.25
"""The share of stages out of line up to which the closest is tried in its own noise, however far off the guess is."""
_SAME = 1e-9


class OutOfTime(Exception):
    """The time for a diagnosis ended."""


def search_catalogue(
    offered: Sequence[Deviation], screening: Screening, evidence: Sequence[Evidence], until: float | None
) -> list[Match]:
    """Return the hypotheses that account for most, best first: single deviations, and pairs where no single explains.

    Each is tried on the `screening`; those that may explain, and the closest few, on all of the evidence. Raises
    OutOfTime at `until`, by time.monotonic().
    """
    null = Match.of((), screening.first)
    singles, ranked = list[Match](), list[Match]()
    # First those whose values are predicted: noisy ones are played several times each, and what explains in values
    # leaves behind what fits in size.
    for noisy in (False, True):
        matches = [Match((deviation,)) for deviation in offered if is_noisy(deviation) == noisy]
        tried = _tried(matches, screening.first, lambda match: not _refuted(match, null), until)
        singles += tried
        ranked = sorted(ranked + _confirmed(_on_all(tried, evidence, until), evidence), key=_rank)
        if any(match.explains and match.came_true for match in ranked):
            return ranked
    null = Match.of((), screening.slower)
    singles = _unrefuted(singles, null, screening.slower, until)
    if screening.slower is evidence:  # then more of them were tried on all
        known = {match.ids for match in ranked}
        others = [match for match in singles if match.ids not in known]
        ranked = sorted(ranked + _confirmed(others, evidence), key=_rank)
        measured = {match.ids: match for match in ranked}  # some of them in their own noise, which tells more of a pair
        singles = [measured.get(match.ids, match) for match in singles]
    most_left = EARNED * ranked[0].out_of_line if ranked else np.inf
    likely = _likely_pairs([match for match in singles if match.shows], null, most_left)[: screening.pairs]
    tried = _tried(map(Match, likely), screening.slower, _may_explain, until)
    pairs = _confirmed(_on_all(tried, evidence, until), evidence)
    if pairs and (not ranked or _earned(pairs[0], ranked[0])):
        ranked = sorted(ranked + pairs, key=_rank)
    return ranked


def _tried(
    matches: Iterable[Match], evidence: Sequence[Evidence], hopeful: Callable[[Match], bool], until: float | None
) -> list[Match]:
    """Try all, case after case, and go on with those that are hopeful, and the closest few. The best come first."""
    left = list(matches)
    for piece in evidence:
        _try_on(piece, left, until)
        left = [match for at, match in enumerate(sorted(left, key=_rank)) if at < _KEPT or hopeful(match)]
    return left


def _unrefuted(matches: Sequence[Match], null: Match, evidence: Sequence[Evidence], until: float | None) -> list[Match]:
    """Return those that put nothing out of line in any of the evidence."""
    left = list(matches)
    for piece in evidence:
        _try_on(piece, left, until)
        left = [match for match in left if not _refuted(match, null)]
    return left


def _try_on(piece: Evidence, matches: Iterable[Match], until: float | None) -> None:
    for match in matches:
        if until is not None and time.monotonic() > until:
            raise OutOfTime
        match.try_on(piece)


def _on_all(matches: Sequence[Match], evidence: Sequence[Evidence], until: float | None) -> list[Match]:
    """Try those that may explain, and the closest few, on all of the evidence, and on nothing else."""
    left = [match for at, match in enumerate(matches) if at < _KEPT or _may_explain(match)]
    return _tried([match.within(evidence) for match in left], evidence, _may_explain, until)


def _refuted(match: Match, null: Match) -> bool:
    """Whether it puts out of line what is in line without it: then it is not there, alone or beside another."""
    return any(
        bool(np.any(right.in_line & ~wrong.in_line)) for right, wrong in zip(null.fits, match.fits, strict=False)
    )


def _may_explain(match: Match) -> bool:
    """Whether it explains all, but for a noise that may have been guessed too small."""
    return match.explains or (match.exact and match.rms < GUESSED)


def _rank(match: Match) -> tuple[int, float, int]:
    return match.out_of_line, match.cost, len(match.deviations)


def _confirmed(matches: Sequence[Match], evidence: Sequence[Evidence]) -> list[Match]:
    """Return the best first, the closest tried again in the wrong layer's own noise, until one explains all.

    Those that predict the same as it does are as close, and are tried too. Where the right layer gives 0, and the wrong
    one the difference of numbers of hundreds, as GELU far below 0 in the place of ReLU, no noise of the right layer
    says anything of the wrong one's.
    """
    ranked = sorted(matches, key=lambda match: match.cost)
    likely = [at for at, match in enumerate(ranked) if match.rms < GUESSED][:_MEASURED]
    best = min(range(len(ranked)), key=lambda at: _rank(ranked[at]), default=None)
    if best is not None and best not in likely and ranked[best].exact and ranked[best].out.mean() <= _FEW:
        likely.append(best)
    enough = np.inf
    for at in likely:
        guessed = ranked[at].cost
        if guessed > enough:
            break
        ranked[at] = Match.of(ranked[at].deviations, evidence, measured=True)
        if ranked[at].explains and enough == np.inf:
            enough = guessed + _SAME
    return sorted((match for match in ranked if not match.refuted), key=_rank)


def _likely_pairs(suspects: Sequence[Match], null: Match, most: float) -> list[tuple[Deviation, ...]]:
    """Return the pairs that may explain most, best first, without those sure to leave more than `most` out of line.

    A stage that one of the two changes is as that one alone has it, and a stage that neither changes is as it is
    without them; of one that both change nothing is known before they are played together.
    """
    if len(suspects) < 2:
        return []
    moves, far, out, costs = (
        np.stack(each)
        for each in zip(*((match.moves, match.far, match.out, match.costs) for match in suspects), strict=True)
    )
    alone, bounds = [match.cost for match in suspects], list[tuple[tuple[int, float, float], tuple[Deviation, ...]]]()
    for one, match in enumerate(suspects[:-1]):
        rest = slice(one + 1, None)
        bound = partial(_bound, moves[one], moves[rest])
        least_far, left = bound(far[one], far[rest], null.far), bound(out[one], out[rest], null.out)
        cost = bound(costs[one], costs[rest], null.costs)
        for at in np.flatnonzero(least_far <= most):
            other = one + 1 + int(at)
            pair = match.deviations + suspects[other].deviations
            if not _clash(*pair):
                bounds.append(((int(left[at]), float(cost[at]), min(alone[one], alone[other])), pair))
    bounds.sort(key=lambda entry: entry[0])
    return [pair for _, pair in bounds]


def _bound(moved: Bools, by_others: Bools, of_one: Array, of_others: Array, neither: Array) -> Array:
    """Return the sum, over the stages of which it is known, of what a match has beside each of some others, [others].

    `moved` and `by_others` are the stages that they change, [stages] and [others, stages]; `neither` is of the null.
    """
    known = np.where(moved, of_one, np.where(by_others, of_others, neither))
    return np.asarray(np.where(moved & by_others, 0, known).sum(axis=1))


def _earned(pair: Match, single: Match) -> bool:
    """Whether a second cause earns its place: what a first one's own scatter hides has not been seen."""
    if single.explains:
        return pair.explains and pair.cost < EARNED * single.cost
    return pair.out_of_line <= EARNED * single.out_of_line


def _clash(one: Deviation, other: Deviation) -> bool:
    """Whether both change the same thing."""
    same_step = set(one.patch.steps) & set(other.patch.steps)
    same_parameter = set(one.patch.parameters) & set(other.patch.parameters)
    both_masks = one.patch.mask is not None and other.patch.mask is not None
    return bool(same_step or same_parameter) or both_masks or (_sets_epsilon(one) and _sets_epsilon(other))


def _sets_epsilon(deviation: Deviation) -> bool:
    norm = deviation.patch.layer and deviation.patch.layer.norm
    return isinstance(deviation, Measured) or bool(norm and norm.epsilon is not None)
