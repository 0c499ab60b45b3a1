"""Names the bug: which deviation, or which two, give what an implementation was seen to give."""

from collections.abc import Iterable, Sequence
from itertools import zip_longest

from harness.deviations.catalogue import catalogue, is_noisy
from harness.deviations.match import Match
from harness.deviations.sighting import Sighting
from harness.oracle.deviant import changes
from harness.report.model import Diagnosis
from harness.spec.constants import constants
from harness.spec.deviation import Deviation

_CASES = 10
"""Sightings that a hypothesis is tried on."""
_SMALL = 64
_FIRST = 2
_KEPT = 12
_SEEDS = 16
_MEASURED = 4
_EARNED = 0.9


def diagnose(implementation: str, dtype: str, sightings: Sequence[Sighting]) -> Diagnosis:
    """One cause for all that failed. `sightings` are of one implementation in one dtype, failed and passed ones."""
    chosen = _choose(sightings)
    applicable = [d for d in catalogue().values() if any(changes(s.case, d) for s in chosen)]
    nothing = _tried((), chosen)
    singles = _narrowed([(d,) for d in applicable], chosen)
    ranked = _confirmed(singles, chosen)
    if not any(match.explains for match in ranked):
        pairs = _confirmed(_narrowed(_pairs(singles), chosen, first=1), chosen)
        if not ranked or any(_earned(pair, ranked[0]) for pair in pairs[:1]):
            ranked = sorted(ranked + pairs, key=_rank)
    return _said(implementation, dtype, ranked, nothing, chosen)


def _choose(sightings: Sequence[Sighting]) -> list[Sighting]:
    """Each layer in turn; of a layer the failing cases first, and of those the ones with a mask and many positions.

    Large layers say nothing that small ones do not, and take a hundred times as long. An item that is all padding has
    unspecified rows, which a deviation that mixes items carries into others: what it gives there cannot be foretold.
    """
    foretold = [sighting for sighting in sightings if sighting.case.valid().any(axis=1).all()] or list(sightings)
    small = [sighting for sighting in foretold if sighting.case.layer.d_model <= _SMALL] or foretold
    by_layer: dict[str, list[Sighting]] = {}
    for sighting in sorted(small, key=_telling):
        by_layer.setdefault(sighting.case.layer.layer, []).append(sighting)
    rounds = zip_longest(*sorted(by_layer.values(), key=lambda queue: _telling(queue[0])))
    return [sighting for turn in rounds for sighting in turn if sighting][:_CASES]


def _telling(sighting: Sighting) -> tuple[bool, bool, int, str]:
    situation = sighting.case.situation
    return not sighting.failed, sighting.case.mask() is None, -situation.batch * situation.sequence, sighting.case.id


def _tried(deviations: tuple[Deviation, ...], sightings: Iterable[Sighting], *, measured: bool = False) -> Match:
    match = Match(deviations, constants(), measured)
    for sighting in sightings:
        match.try_on(sighting)
    return match


def _narrowed(hypotheses: list[tuple[Deviation, ...]], chosen: list[Sighting], first: int = _FIRST) -> list[Match]:
    """Try all on the first cases, and only those that do well there on the rest. All come back, the best first."""
    matches = [_tried(deviations, chosen[:first]) for deviations in hypotheses]
    matches.sort(key=_rank)
    for match in [m for m in matches if m.explains][: 3 * _KEPT] + [m for m in matches if not m.explains][:_KEPT]:
        for sighting in chosen[first:]:
            match.try_on(sighting)
    return matches


def _rank(match: Match) -> tuple[bool, float, int]:
    return not match.explains, match.cost, len(match.deviations)


def _confirmed(matches: list[Match], chosen: list[Sighting]) -> list[Match]:
    """Those that were tried on everything, the best first; the best few again in the wrong layer's own σ."""
    ranked = sorted((match for match in matches if len(match.cases) == len(chosen)), key=_rank)
    best = ranked[:_MEASURED]
    again = [_tried(match.deviations, chosen, measured=True) for match in best]
    return sorted(again + ranked[_MEASURED:], key=_rank)


def _pairs(singles: list[Match]) -> list[tuple[Deviation, ...]]:
    """Those that bring most stages into line, and those that explain most, each with every other that shows."""
    by_prefix = sorted(singles, key=lambda match: (-match.prefix, match.cost))[:_SEEDS]
    by_cost = sorted(singles, key=lambda match: match.cost)[: _SEEDS // 2]
    seeds = {match.deviations[0].deviation: match.deviations[0] for match in by_prefix + by_cost if match.shows}
    others = [match.deviations[0] for match in singles if match.shows]
    pairs: dict[frozenset[str], tuple[Deviation, ...]] = {}
    for seed in seeds.values():
        for other in others:
            if other is not seed and not _clash(seed, other):
                pairs.setdefault(frozenset((seed.deviation, other.deviation)), (seed, other))
    return list(pairs.values())


def _earned(pair: Match, single: Match) -> bool:
    """A second cause has to earn its place: what a first one's own scatter hides has not been seen."""
    hidden = any(is_noisy(deviation) for deviation in single.deviations)
    return pair.cost < _EARNED * single.cost or (pair.explains and not hidden)


def _clash(one: Deviation, other: Deviation) -> bool:
    """Two that change the same thing differently are not both so."""
    same_step = set(one.patch.steps) & set(other.patch.steps)
    same_parameter = set(one.patch.parameters) & set(other.patch.parameters)
    return bool(same_step or same_parameter) or (one.patch.mask is not None and other.patch.mask is not None)


def _said(implementation: str, dtype: str, ranked: list[Match], nothing: Match, chosen: list[Sighting]) -> Diagnosis:
    seen = next((t.stage for tensors in nothing.cases for t in tensors if not t.in_line(constants())), None)
    cases = tuple(sighting.case.id for sighting in chosen)
    if not ranked or (not ranked[0].explains and ranked[0].cost > 0.9 * nothing.cost):
        return Diagnosis(
            implementation=implementation, dtype=dtype, confidence="unknown", first_stage=seen, cases=cases
        )
    best, *others = ranked
    twins = [m for m in others if m.explains and best.explains and len(m.deviations) == len(best.deviations)]
    runner_up = next((match for match in others if match not in twins), None)
    return Diagnosis(
        implementation=implementation,
        dtype=dtype,
        confidence="explained" if best.explains else "closest",
        deviations=_ids(best),
        sentences=tuple(deviation.sentence for deviation in best.deviations),
        rms=best.rms,
        amplitude=best.amplitude,
        significance=best.significance,
        twins=tuple(_ids(match) for match in twins),
        runner_up=_ids(runner_up) if runner_up else (),
        runner_up_rms=runner_up.rms if runner_up else None,
        first_stage=seen,
        foretold_stage=best.first_stage,
        cases=cases,
    )


def _ids(match: Match) -> tuple[str, ...]:
    return tuple(deviation.deviation for deviation in match.deviations)
