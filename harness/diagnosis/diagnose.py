"""Names the bug: which deviation, or which two, give what an implementation was seen to give."""

import time
from collections.abc import Sequence
from typing import Literal

from encoder_conformance.deviations.catalogue import catalogue
from encoder_conformance.diagnosis.dependence import dependence
from encoder_conformance.diagnosis.epsilon import compared, measured_epsilons
from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.diagnosis.experiments import Ask, identify_by_experiments
from encoder_conformance.diagnosis.identify.identify import Identified, identify, of_output
from encoder_conformance.diagnosis.incomparable import incomparable
from encoder_conformance.diagnosis.match import Match
from encoder_conformance.diagnosis.named import named_deviations
from encoder_conformance.diagnosis.pairs import EARNED
from encoder_conformance.diagnosis.predictions import drops
from encoder_conformance.diagnosis.search import OutOfTime, search, untold
from encoder_conformance.diagnosis.selection import choose, scouts
from encoder_conformance.judge.observation import Observation
from encoder_conformance.oracle.deviant import changes
from encoder_conformance.results import Diagnosis, Measurement
from encoder_conformance.spec.constants import constants
from encoder_conformance.spec.deviation import Deviation, Measured
from encoder_conformance.spec.stages import step_of

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
    ask: Ask | None = None,
) -> Diagnosis:
    """One cause for all that failed. `observations` are of one implementation in one dtype, failed and passed ones.

    What chance is in is not offered where answers repeat. `ask` asks the implementation again: where no
    stage is shown, and what the answers of an unknown step depend on.
    At the time `until`, by time.monotonic(), the diagnosis ends as unknown, and says that it was cut short.
    """
    return diagnose_chosen(implementation, dtype, choose(observations), until, repeats, ask)


def diagnose_chosen(
    implementation: str,
    dtype: str,
    chosen: Sequence[Observation],
    until: float | None,
    repeats: Repeats,
    ask: Ask | None = None,
    *,
    in_catalogue_alone: bool = False,
) -> Diagnosis:
    """`diagnose` with the observations that `choose` has chosen. `in_catalogue_alone`: nothing else is identified."""
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
    if named.confidence == "explained" or nothing.explains or in_catalogue_alone:
        return named
    unlike, comparable = incomparable(evidence), [piece for piece in evidence if piece.is_comparable]
    if not comparable:
        return named.model_copy(update={"observed": unlike})
    shows_stages = any(len(piece.stages) > 1 for piece in comparable)
    found = None if shows_stages or ask is None else identify_by_experiments(comparable, ask, until)
    said = _with_equations(named, found or identify(comparable, untold(comparable), until), evidence)
    if said.confidence == "explained":
        return said
    more = () if shows_stages else of_output(comparable)
    asked = () if ask is None else dependence(comparable, ask)
    return said.model_copy(update={"observed": (*unlike, *more, *said.observed, *asked)})


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
        first_stage=_first_identified(identified, named.first_stage),
        cases=named.cases,
        equations=identified.equations,
        observed=identified.observed,
    )


def unaccounted(explained: Diagnosis, others: Sequence[Observation], until: float | None) -> list[Observation]:
    """Of cases that a diagnosis was not shown, those that its explanation does not give."""
    deviations, left = tuple(named_deviations(explained)), list[Observation]()
    for observation in others:
        if until is not None and time.monotonic() > until:
            break
        piece = Evidence(observation)
        for measured in (False, True):  # its own noise is slow, and matters to few
            match = Match(deviations, constants())
            match.try_on(piece, measured=measured)
            if match.explains:
                break
        else:
            left.append(observation)
    return left


def on_large_layers(
    explained: Diagnosis, shown: Sequence[Observation], large: Sequence[Observation], until: float | None
) -> Diagnosis:
    """An explanation, tried on large layers that it was not `shown`. Closest, if it does not give what was seen there.

    A measured epsilon is then compared with what these layers say, too.
    """
    deviations, given, left = tuple(named_deviations(explained)), list[Observation](), list[Observation]()
    rms = explained.rms or 0.0
    for observation in large:
        if until is not None and time.monotonic() > until:
            break
        match = Match(deviations, constants())
        match.try_on(Evidence(observation))
        if match.explains:
            given.append(observation)
            rms = max(rms, match.rms)
        else:
            left.append(observation)
    known = [observation for observation in shown if observation.case.id in explained.cases]
    cases = [observation.case for observation in (*known, *given)]
    sentences = dict(zip(explained.deviations, explained.sentences, strict=True))
    for each in explained.measured:
        if said := compared(each.deviation.removesuffix("-epsilon"), each.value, each.uncertainty, cases):
            sentences[each.deviation] = said.sentence
    ids = (*explained.cases, *(observation.case.id for observation in given))
    told = explained.model_copy(update={"sentences": tuple(sentences.values()), "rms": rms, "cases": ids})
    return not_by_all(told, left) if left else told


def not_by_all(explained: Diagnosis, left: Sequence[Observation]) -> Diagnosis:
    """The same, as no more than the closest: these cases it does not give."""
    cases = ", ".join(observation.case.id for observation in left)
    observed = (*explained.observed, f"Not accounted for: {cases}.")
    return explained.model_copy(update={"confidence": "closest", "observed": observed})


def _first_identified(identified: Identified, seen_first: str | None) -> str | None:
    """The first stage of which an equation was found, in the layer of a stack where it was seen first."""
    stage = identified.equations[0].stage
    return seen_first if identified.observed or (seen_first and step_of(seen_first) == stage) else stage


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
        right_before=_right_before(nothing),
        cases=tuple(observation.case.id for observation in chosen),
    )


def _first_seen(nothing: Match) -> str | None:
    """The first stage that was seen out of line."""
    return next((fit.first_out_of_line for fit in nothing.those_with_stages_first if fit.first_out_of_line), None)


def _right_before(nothing: Match) -> tuple[str, ...]:
    """The stages before the first one out of line that no case shows out of line."""
    first = _first_seen(nothing)
    fit = next((fit for fit in nothing.those_with_stages_first if first in fit.stages), None)
    if first is None or fit is None:
        return ()
    out = {stage for each in nothing.fits for stage, fine in zip(each.stages, each.in_line, strict=True) if not fine}
    return tuple(stage for stage in fit.stages[: fit.stages.index(first)] if stage not in out)


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
        right_before=() if explained else _right_before(nothing),
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
