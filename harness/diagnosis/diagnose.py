"""Names the bug: which deviation, or which two, give what an implementation was seen to give."""

from collections.abc import Sequence
from typing import Literal

from encoder_conformance.deviations.catalogue import catalogue
from encoder_conformance.diagnosis.epsilon import measured_epsilons
from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.diagnosis.identify.identify import Identified, identify
from encoder_conformance.diagnosis.match import Match
from encoder_conformance.diagnosis.pairs import EARNED
from encoder_conformance.diagnosis.predictions import drops
from encoder_conformance.diagnosis.search import OutOfTime, search, untold
from encoder_conformance.diagnosis.selection import choose, scouts
from encoder_conformance.judge.observation import Observation
from encoder_conformance.oracle.deviant import changes
from encoder_conformance.results import Diagnosis, Measurement
from encoder_conformance.spec.constants import constants
from encoder_conformance.spec.deviation import Deviation, Measured

_IN_A_HURRY = 6
"""Observations that are enough where time is short: each costs the noise of its layer."""
_MOST = 0.5
"""What the closest may leave of the stages out of line."""
_CEILING = 20.0
"""The largest error, in σ or in the predicted scatter, that the closest may leave anywhere. Twice the limit of a
single element: beyond it the layer is not nearly what is named, and a name would send its author the wrong way."""

Repeats = Literal["same", "differ", "unknown"]
"""Whether two answers to one question are the same to the bit (clause I-8), as far as a run has seen."""


def diagnose(
    implementation: str,
    dtype: str,
    observations: Sequence[Observation],
    until: float | None = None,
    repeats: Repeats = "unknown",
) -> Diagnosis:
    """One cause for all that failed. `observations` are of one implementation in one dtype, failed and passed ones.

    What chance is in is not offered where answers repeat. At the time `until`, by time.monotonic(), the diagnosis ends
    as unknown, and says that it was cut short.
    """
    chosen = choose(observations)
    if until is not None:
        chosen = chosen[:_IN_A_HURRY]
    evidence = [Evidence(observation) for observation in chosen]
    nothing, sent = untold(evidence), scouts(evidence)
    try:
        offered = [*_offered(chosen, repeats), *measured_epsilons(sent.slower, evidence, nothing)]
        ranked = search(offered, sent, evidence, until)
    except OutOfTime:
        return _unknown(implementation, dtype, nothing, chosen, cut_short=True)
    named = _said(implementation, dtype, ranked, nothing, chosen, repeats)
    if named.confidence == "explained" or nothing.explains:
        return named
    return _with_equations(named, identify(evidence, nothing, until), evidence)


def _with_equations(named: Diagnosis, identified: Identified, evidence: Sequence[Evidence]) -> Diagnosis:
    """What was identified in the place of a name that explains less: explained, if it accounts for all evidence."""
    known = named.model_copy(
        update={"equations": identified.equations, "left_open": identified.left, "observed": identified.observed}
    )
    if identified.deviation is None or identified.left:
        return known
    match = Match((identified.deviation,), constants())
    for piece in evidence:
        match.try_on(piece, measured=True)
        if not match.explains:
            return known
    return Diagnosis(
        implementation=named.implementation,
        dtype=named.dtype,
        confidence="explained",
        rms=match.rms,
        first_stage=named.first_stage if identified.observed else identified.equations[0].stage,
        cases=named.cases,
        equations=identified.equations,
        observed=identified.observed,
    )


def _offered(chosen: Sequence[Observation], repeats: Repeats) -> list[Deviation]:
    """The deviations that change any of the cases, and that what is known does not exclude."""
    applicable = [d for d in catalogue().values() if any(changes(s.case, d) for s in chosen)]
    return [d for d in applicable if repeats != "same" or not drops([d])]


def _unknown(
    implementation: str, dtype: str, nothing: Match, chosen: Sequence[Observation], *, cut_short: bool = False
) -> Diagnosis:
    return Diagnosis(
        implementation=implementation,
        dtype=dtype,
        confidence="unknown",
        cut_short=cut_short,
        first_stage=_first_seen(nothing),
        cases=tuple(observation.case.id for observation in chosen),
    )


def _first_seen(nothing: Match) -> str | None:
    """The first stage that was seen out of line."""
    return next((fit.first_out_of_line for fit in nothing.those_with_stages_first if fit.first_out_of_line), None)


def _said(
    implementation: str,
    dtype: str,
    ranked: list[Match],
    nothing: Match,
    chosen: Sequence[Observation],
    repeats: Repeats,
) -> Diagnosis:
    if not ranked or nothing.explains or ranked[0].out_of_line > _MOST * nothing.out_of_line:
        return _unknown(implementation, dtype, nothing, chosen)
    best, *others = ranked
    explained = best.explains and best.came_true and (repeats == "differ" or not drops(best.deviations))
    if not explained and best.rms > _CEILING:
        return _unknown(implementation, dtype, nothing, chosen)
    indistinguishable = [match for match in others if _alike(match, best)]
    runner_up = next(
        (match for match in others if match not in indistinguishable and (match.exact or not best.exact)), None
    )
    return Diagnosis(
        implementation=implementation,
        dtype=dtype,
        confidence="explained" if explained else "closest",
        deviations=best.ids,
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
        indistinguishable=tuple(match.ids for match in indistinguishable),
        runner_up=runner_up.ids if runner_up else (),
        runner_up_rms=runner_up.rms if runner_up and runner_up.exact else None,
        first_stage=_first_seen(nothing),
        predicted_stage=best.first_stage,
        cases=tuple(observation.case.id for observation in chosen),
    )


def _came_true(best: Match, repeats: Repeats) -> tuple[str, ...]:
    differ = ("two answers to one question differ",) if repeats == "differ" and drops(best.deviations) else ()
    return (*differ, *best.predictions)


def _alike(match: Match, best: Match) -> bool:
    """Whether both explain all, and as well: one that fits in values leaves behind those that fit in size alone."""
    if not (match.explains and best.explains and len(match.deviations) == len(best.deviations)):
        return False
    return match.exact if best.exact else EARNED * match.cost <= best.cost
