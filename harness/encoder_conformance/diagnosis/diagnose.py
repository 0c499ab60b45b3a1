"""Names the bug: which deviation, or which two, give what an implementation was observed to give.

The observations that say most are chosen (`selection`) and made evidence (`evidence`). Deviations of the catalogue and
measured epsilons are tried on it (`catalogue_search`, `match`). Where none explains all, the equation of each wrong
step is looked for (`identify`), with experiments where a live implementation shows its output alone (`experiments`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from encoder_conformance.diagnosis.catalogue_search import EARNED, OutOfTime, search_catalogue
from encoder_conformance.diagnosis.dependence import dependence
from encoder_conformance.diagnosis.epsilon import measured_epsilons
from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.diagnosis.experiments import Ask, identify_by_experiments
from encoder_conformance.diagnosis.identify.identify import (
    Identified,
    describe_outputs,
    deviations_of,
    identify,
    patches_of,
)
from encoder_conformance.diagnosis.less_exact import softmax_by_log_sum
from encoder_conformance.diagnosis.match import Match
from encoder_conformance.diagnosis.noisy_predictions import has_dropout
from encoder_conformance.diagnosis.selection import choose, screening
from encoder_conformance.judging.observation import Observation
from encoder_conformance.judging.records import Diagnosis, Measurement
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.deviant import changes
from encoder_conformance.spec.deviation import Deviation, Measured
from encoder_conformance.spec.stages import step_of

_IN_A_HURRY = 6
"""Observations that are enough where time is short: each costs the noise of its layer."""
_MOST = 0.5
"""The part of the stages out of line that the closest may leave so."""
_CEILING = 20.0
"""The largest error, in σ or in the predicted scatter, that the closest may leave anywhere. Twice the limit of a
single element: beyond it the layer is not nearly what is named, and a name would send its author the wrong way."""

Repeats = Literal["same", "differ", "unknown"]
"""Whether two answers to one question are the same to the bit (clause I-8), as far as a run has seen."""


@dataclass(frozen=True)
class Failing:
    """An implementation that failed in one dtype, and what is known of it beside observations.

    At the time `until`, by time.monotonic(), a diagnosis ends as unknown, and says that it was cut short. `ask` asks
    the implementation again: where no stage is shown, and what the answers of an unknown step depend on. Where answers
    repeat, dropout is not offered.
    """

    implementation: str
    dtype: str
    until: float | None = None
    repeats: Repeats = "unknown"
    ask: Ask | None = None


def diagnose(failing: Failing, observations: Sequence[Observation]) -> Diagnosis:
    """Return one cause for all that failed in one dtype; `observations` are of failed and of passed checks."""
    return diagnose_chosen(failing, choose(observations))


def diagnose_chosen(failing: Failing, chosen: Sequence[Observation], *, in_catalogue_alone: bool = False) -> Diagnosis:
    """Diagnose from the observations that `choose` has chosen. `in_catalogue_alone`: no equation is looked for."""
    until = failing.until
    if until is not None:
        chosen = chosen[:_IN_A_HURRY]
    evidence = [Evidence(observation) for observation in chosen]
    null, screened = Match.of((), evidence), screening(evidence)
    unknown = _unknown(failing, null, chosen)
    try:
        offered = [*_offered(chosen, failing.repeats), *measured_epsilons(screened.slower, evidence, null)]
        ranked = search_catalogue(offered, screened, evidence, until)
    except OutOfTime:
        return unknown.model_copy(update={"cut_short": True})
    named = _named(unknown, ranked, null, failing.repeats)
    if named.confidence == "explained":
        return named
    if match := softmax_by_log_sum(evidence):
        sentences, cause = (
            tuple(each.sentence for each in match.deviations),
            {"confidence": "explained", "rms": match.rms},
        )
        return unknown.model_copy(update=cause | {"deviations": match.ids, "sentences": sentences, "right_before": ()})
    if null.explains or in_catalogue_alone:
        return named
    unlike, comparable = incomparable(evidence), [piece for piece in evidence if piece.is_comparable]
    if not comparable:
        return named.model_copy(update={"observed": unlike})
    shows_stages = any(len(piece.stages) > 1 for piece in comparable)
    by_experiments = (
        None if shows_stages or failing.ask is None else identify_by_experiments(comparable, failing.ask, until)
    )
    identified = by_experiments or identify(comparable, Match.of((), comparable), until)
    diagnosis = _with_equations(named, identified, evidence)
    if diagnosis.confidence == "explained":
        return diagnosis
    outputs = () if shows_stages else describe_outputs(comparable)
    depends = () if failing.ask is None else dependence(comparable, failing.ask)
    return diagnosis.model_copy(update={"observed": (*unlike, *outputs, *diagnosis.observed, *depends)})


def _offered(chosen: Sequence[Observation], repeats: Repeats) -> list[Deviation]:
    """Return the deviations that change any of the cases, and that what is known does not exclude."""
    applicable = [d for d in catalogue().values() if any(changes(each.case, d) for each in chosen)]
    return [d for d in applicable if repeats != "same" or not has_dropout([d])]


def _unknown(failing: Failing, null: Match, chosen: Sequence[Observation]) -> Diagnosis:
    return Diagnosis(
        implementation=failing.implementation,
        dtype=failing.dtype,
        confidence="unknown",
        first_stage=_first_out_of_line(null),
        right_before=_right_before(null),
        cases=tuple(observation.case.id for observation in chosen),
    )


def _first_out_of_line(null: Match) -> str | None:
    return next((fit.first_out_of_line for fit in null.with_stages_first if fit.first_out_of_line), None)


def _right_before(null: Match) -> tuple[str, ...]:
    """Return the stages before the first one out of line that no case shows out of line."""
    first = _first_out_of_line(null)
    fit = next((fit for fit in null.with_stages_first if first in fit.stages), None)
    if first is None or fit is None:
        return ()
    out = {stage for each in null.fits for stage, fine in zip(each.stages, each.in_line, strict=True) if not fine}
    return tuple(stage for stage in fit.stages[: fit.stages.index(first)] if stage not in out)


def _named(unknown: Diagnosis, ranked: Sequence[Match], null: Match, repeats: Repeats) -> Diagnosis:
    """Name the best hypothesis as what explains all, or as the closest; the `unknown` diagnosis if it is neither."""
    if not ranked or null.explains or ranked[0].out_of_line > _MOST * null.out_of_line:
        return unknown
    best, *others = ranked
    explained = best.explains and best.came_true and (repeats == "differ" or not has_dropout(best.deviations))
    if not explained and best.rms > _CEILING:
        return unknown
    indistinguishable = [match for match in others if _indistinguishable(match, best)]
    rest = (match for match in others if match not in indistinguishable and (match.exact or not best.exact))
    runner_up = next(rest, None)
    return unknown.model_copy(
        update={
            "confidence": "explained" if explained else "closest",
            "deviations": best.ids,
            "sentences": tuple(deviation.sentence for deviation in best.deviations),
            "measured": tuple(
                Measurement(deviation=each.deviation, value=each.value, uncertainty=each.uncertainty)
                for each in best.deviations
                if isinstance(each, Measured)
            ),
            "rms": best.rms,
            "by_size": not best.exact,
            "amplitude": best.amplitude,
            "significance": best.significance,
            "came_true": _came_true(best, repeats),
            "indistinguishable": tuple(match.ids for match in indistinguishable),
            "runner_up": runner_up.ids if runner_up else (),
            "runner_up_rms": runner_up.rms if runner_up and runner_up.exact else None,
            "right_before": () if explained else unknown.right_before,
            "predicted_stage": best.first_stage,
        }
    )


def _came_true(best: Match, repeats: Repeats) -> tuple[str, ...]:
    differ = repeats == "differ" and has_dropout(best.deviations)
    return (*(("two answers to one question differ",) if differ else ()), *best.predictions)


def _indistinguishable(match: Match, best: Match) -> bool:
    """Whether both explain all, and as well: one that fits in values leaves behind those that fit in size alone."""
    if not (match.explains and best.explains and len(match.deviations) == len(best.deviations)):
        return False
    return match.exact if best.exact else EARNED * match.cost <= best.cost


def _with_equations(named: Diagnosis, identified: Identified, evidence: Sequence[Evidence]) -> Diagnosis:
    """Put what was identified beside the name; or in its place, as explained, if it accounts for all evidence."""
    known = named.model_copy(
        update={"equations": identified.equations, "left_open": identified.left, "observed": identified.observed}
    )
    if not identified.equations or identified.left:
        return known
    match = Match(deviations_of(patches_of(identified.equations)))
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


def _first_identified(identified: Identified, seen_first: str | None) -> str | None:
    """Return the first stage of which an equation was found, in the layer of a stack where it was seen first."""
    stage = identified.equations[0].stage
    return seen_first if identified.observed or (seen_first and step_of(seen_first) == stage) else stage


def incomparable(evidence: Sequence[Evidence]) -> tuple[str, ...]:
    """Return a sentence on the first answer of another shape or dtype, and how many cases more; () if there is none."""
    unlike = [(piece, stage) for piece in evidence for stage in piece.stages if stage in piece.observation.unlike]
    if not unlike:
        return ()
    piece, stage = unlike[0]
    count = len({each.case.id for each, _ in unlike})
    others = f" and {count - 1} more" if count > 1 else ""
    shape = piece.observation.unlike[stage]
    if shape is None:
        return (f"{stage} is not in {piece.dtype.name} in {piece.case.id}{others}.",)
    due = list(piece.observation.expected.tensors[stage].shape)
    return (f"{stage} has the shape {list(shape)}, and not {due}, in {piece.case.id}{others}.",)
