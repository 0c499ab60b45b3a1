"""Names the bug: which deviation, or which two, give what an implementation was seen to give."""

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Literal

import numpy as np

from harness.deviations.catalogue import catalogue, is_noisy
from harness.deviations.epsilon import measured_epsilons
from harness.deviations.evidence import Evidence
from harness.deviations.match import GUESSED, Match
from harness.deviations.predictions import drops
from harness.deviations.selection import choose, scouts
from harness.deviations.sighting import Array, Sighting
from harness.oracle.deviant import changes
from harness.report.model import Diagnosis, Measurement
from harness.spec.constants import constants
from harness.spec.deviation import Deviation, Measured

_IN_A_HURRY = 6
"""Sightings that are enough where time is short: each costs the noise of its layer."""
_KEPT = 12
"""Hypotheses that are tried on everything though they explain nothing: the closest are named."""
_PAIRS = 1500
"""Pairs that are played, of those that may explain most. Enough for any that show their stages."""
_PAIRS_OF_LARGE = 200
"""The same where a play takes as long as a hundred of a small layer."""
_MEASURED = 4
"""Hypotheses that are tried in their own noise: it takes 24 plays a case."""
_SAME = 1e-9
_EARNED = 0.9
"""What a second cause has to bring down the first one's cost to, or the stages that the first leaves out of line."""
_MOST = 0.5
"""What the closest may leave of the stages out of line."""
_CEILING = 20.0
"""The largest error, in σ or in the scatter that is foretold, that the closest may leave anywhere. Twice the limit of a
single element: beyond it the layer is not nearly what is named, and a name would send its author the wrong way."""

Repeats = Literal["same", "differ", "unknown"]
"""Whether two answers to one question are the same to the bit (clause I-8), as far as a run has seen."""


def diagnose(
    implementation: str,
    dtype: str,
    sightings: Sequence[Sighting],
    until: float | None = None,
    repeats: Repeats = "unknown",
) -> Diagnosis:
    """One cause for all that failed. `sightings` are of one implementation in one dtype, failed and passed ones.

    What chance is in is not offered where answers repeat. At the time `until`, by time.monotonic(), the diagnosis ends
    as unknown, and says that it was cut short.
    """
    chosen = choose(sightings)
    if until is not None:
        chosen = chosen[:_IN_A_HURRY]
    evidence = [Evidence(sighting) for sighting in chosen]
    [nothing] = _tried(_matches([()]), evidence, lambda match: True, None)
    first = scouts(evidence)
    affordable = evidence if _is_part(first, evidence) else first
    try:
        offered = [*_offered(chosen, repeats), *measured_epsilons(affordable, evidence, nothing)]
        ranked = _ranked(offered, first, evidence, until)
    except _OutOfTime:
        return _unknown(implementation, dtype, nothing, chosen, cut_short=True)
    return _said(implementation, dtype, ranked, nothing, chosen, repeats)


class _OutOfTime(Exception):
    """The time for a diagnosis ended."""


def _offered(chosen: Sequence[Sighting], repeats: Repeats) -> list[Deviation]:
    """The deviations that change any of the cases, and that what is known does not exclude."""
    applicable = [d for d in catalogue().values() if any(changes(s.case, d) for s in chosen)]
    return [d for d in applicable if repeats != "same" or not drops([d])]


def _ranked(
    offered: Sequence[Deviation], first: Sequence[Evidence], evidence: Sequence[Evidence], until: float | None
) -> list[Match]:
    """The hypotheses that account for most, the best first: single deviations, and pairs where no single explains.

    Each is tried on the `first` of the evidence, and then the hopeful and the closest few on all of it.
    """
    [bare] = _tried(_matches([()]), first, lambda match: True, None)
    singles, ranked = list[Match](), list[Match]()
    for of_round in _rounds(offered):
        tried = _tried(_matches((d,) for d in of_round), first, lambda match: not _refuted(match, bare), until)
        singles += tried
        ranked = sorted(ranked + _confirmed(_of_all(tried, first, evidence, until), evidence), key=_rank)
        if any(match.explains and match.came_true for match in ranked):
            return ranked
    few = first
    if _is_part(first, evidence):  # two causes are sought in all that was seen
        few = evidence
        [bare] = _tried([bare], few, lambda match: True, None)
        singles = _unrefuted(singles, bare, few, until)
        known = {_ids(match) for match in ranked}
        others = [match for match in singles if _ids(match) not in known]
        ranked = sorted(ranked + _confirmed(others, evidence), key=_rank)
    suspects = [match for match in singles if match.shows and not _refuted(match, bare)]
    likely = _matches(_pairs(suspects, bare, _left_at_most(ranked))[: _PAIRS if few is evidence else _PAIRS_OF_LARGE])
    pairs = _confirmed(_of_all(_tried(likely, few, _may_explain, until), few, evidence, until), evidence)
    if pairs and (not ranked or _earned(pairs[0], ranked[0])):
        ranked = sorted(ranked + pairs, key=_rank)
    return ranked


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
        raise _OutOfTime


def _rounds(deviations: Sequence[Deviation]) -> list[list[Deviation]]:
    """Those first whose values are foretold: the others are played several times each, and what explains in values
    leaves behind what fits in size."""
    return [[d for d in deviations if is_noisy(d) == noisy] for noisy in (False, True)]


def _of_all(
    matches: Sequence[Match], first: Sequence[Evidence], evidence: Sequence[Evidence], until: float | None
) -> list[Match]:
    """The hopeful and the closest few of those that were tried on the `first` of the evidence, tried on all of it."""
    left = [match for at, match in enumerate(matches) if at < _KEPT or _may_explain(match)]
    if not _is_part(first, evidence):
        left = _matches(match.deviations for match in left)
    return _tried(left, evidence, _may_explain, until)


def _is_part(first: Sequence[Evidence], evidence: Sequence[Evidence]) -> bool:
    """Whether the first are whole cases, and not one item of one."""
    return first[0] is evidence[0]


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

    Those that foretell the same as it does are as close, and are tried too.
    """
    ranked = sorted(matches, key=lambda match: match.cost)
    likely = [at for at, match in enumerate(ranked) if match.rms < GUESSED]
    enough = np.inf
    for at in likely[:_MEASURED]:
        guessed = ranked[at].cost
        if guessed > enough:
            break
        ranked[at] = _measured(ranked[at].deviations, evidence)
        if ranked[at].explains and enough == np.inf:
            enough = guessed + _SAME
    return sorted((match for match in ranked if not match.refuted), key=_rank)


def _measured(deviations: tuple[Deviation, ...], evidence: Sequence[Evidence]) -> Match:
    match = Match(deviations, constants())
    for piece in evidence:
        match.try_on(piece, measured=True)
    return match


def _left_at_most(singles: Sequence[Match]) -> float:
    """How many stages a pair may leave out of line, to earn its place beside the best of the singles."""
    return _EARNED * singles[0].out_of_line if singles else np.inf


def _pairs(suspects: Sequence[Match], nothing: Match, left_at_most: float) -> list[tuple[Deviation, ...]]:
    """The pairs that may explain most, the best first, without those that are sure to leave more out of line.

    A stage that one of the two changes is as that one alone has it, and a stage that neither changes is as it is
    without them; of one that both change nothing is known before they are played together.
    """
    costs, out = [match.costs for match in suspects], [match.out for match in suspects]
    far = [match.far for match in suspects]
    moves = [match.moves for match in suspects]
    bounds = []
    for one, other in combinations(range(len(suspects)), 2):
        pair = suspects[one].deviations + suspects[other].deviations
        apart = ~(moves[one] & moves[other])

        def known(of: Sequence[Array], neither: Array, one: int = one, other: int = other, at: Array = apart) -> Array:
            return np.where(moves[one], of[one], np.where(moves[other], of[other], neither))[at]

        if _clash(*pair) or known(far, nothing.far).sum() > left_at_most:
            continue
        left, cost = known(out, nothing.out).sum(), known(costs, nothing.costs).sum()
        bound = int(left), float(cost), min(suspects[one].cost, suspects[other].cost)
        bounds.append((bound, pair))
    bounds.sort(key=lambda entry: entry[0])
    return [pair for _, pair in bounds]


def _earned(pair: Match, single: Match) -> bool:
    """A second cause has to earn its place: what a first one's own scatter hides has not been seen."""
    if single.explains:
        return pair.explains and pair.cost < _EARNED * single.cost
    return pair.out_of_line <= _EARNED * single.out_of_line


def _clash(one: Deviation, other: Deviation) -> bool:
    """Two that change the same thing differently are not both so."""
    same_step = set(one.patch.steps) & set(other.patch.steps)
    same_parameter = set(one.patch.parameters) & set(other.patch.parameters)
    both_masks = one.patch.mask is not None and other.patch.mask is not None
    return bool(same_step or same_parameter) or both_masks or (_sets_epsilon(one) and _sets_epsilon(other))


def _sets_epsilon(deviation: Deviation) -> bool:
    norm = deviation.patch.layer and deviation.patch.layer.norm
    return isinstance(deviation, Measured) or bool(norm and norm.epsilon is not None)


def _unknown(
    implementation: str, dtype: str, nothing: Match, chosen: Sequence[Sighting], *, cut_short: bool = False
) -> Diagnosis:
    return Diagnosis(
        implementation=implementation,
        dtype=dtype,
        confidence="unknown",
        cut_short=cut_short,
        first_stage=_first_seen(nothing),
        cases=tuple(sighting.case.id for sighting in chosen),
    )


def _first_seen(nothing: Match) -> str | None:
    """The first stage that was seen out of line."""
    return next((fit.first_out_of_line for fit in nothing.those_with_stages_first if fit.first_out_of_line), None)


def _said(
    implementation: str,
    dtype: str,
    ranked: list[Match],
    nothing: Match,
    chosen: Sequence[Sighting],
    repeats: Repeats,
) -> Diagnosis:
    if not ranked or nothing.explains or ranked[0].out_of_line > _MOST * nothing.out_of_line:
        return _unknown(implementation, dtype, nothing, chosen)
    best, *others = ranked
    explained = best.explains and best.came_true and (repeats == "differ" or not drops(best.deviations))
    if not explained and best.rms > _CEILING:
        return _unknown(implementation, dtype, nothing, chosen)
    twins = [match for match in others if _alike(match, best)]
    runner_up = next((match for match in others if match not in twins and (match.exact or not best.exact)), None)
    return Diagnosis(
        implementation=implementation,
        dtype=dtype,
        confidence="explained" if explained else "closest",
        deviations=_ids(best),
        sentences=tuple(deviation.sentence for deviation in best.deviations),
        measured=tuple(
            Measurement(deviation=each.deviation, value=each.value, uncertainty=each.uncertainty)
            for each in best.deviations
            if isinstance(each, Measured)
        ),
        rms=best.rms,
        by_size=not best.exact,
        amplitude=best.amplitude,
        significance=best.significance,
        came_true=_came_true(best, repeats),
        twins=tuple(_ids(match) for match in twins),
        runner_up=_ids(runner_up) if runner_up else (),
        runner_up_rms=runner_up.rms if runner_up and runner_up.exact else None,
        first_stage=_first_seen(nothing),
        foretold_stage=best.first_stage,
        cases=tuple(sighting.case.id for sighting in chosen),
    )


def _came_true(best: Match, repeats: Repeats) -> tuple[str, ...]:
    differ = ("two answers to one question differ",) if repeats == "differ" and drops(best.deviations) else ()
    return (*differ, *best.predictions)


def _alike(match: Match, best: Match) -> bool:
    """Whether both explain all, and as well: one that fits in values leaves behind those that fit in size alone."""
    if not (match.explains and best.explains and len(match.deviations) == len(best.deviations)):
        return False
    return match.exact if best.exact else _EARNED * match.cost <= best.cost


def _ids(match: Match) -> tuple[str, ...]:
    return tuple(deviation.deviation for deviation in match.deviations)
