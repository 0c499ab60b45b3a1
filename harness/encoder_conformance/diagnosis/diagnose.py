"""Names the bug: which deviation, or which two, give what an implementation was observed to give.

The observations that say most are chosen (`selection`) and made evidence (`evidence`). Deviations of the catalogue and
measured epsilons are tried on it (`catalogue_search`, `match`). Where none explains all, the equation of each wrong
step is looked for (`identify`), with experiments where a live implementation shows its output alone (`experiments`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from encoder_conformance.diagnosis.casts import RoundedStep, rounded_in_its_place
from encoder_conformance.diagnosis.catalogue_search import EARNED, OutOfTime, search_catalogue
from encoder_conformance.diagnosis.claims import claim
from encoder_conformance.diagnosis.closest import standing
from encoder_conformance.diagnosis.dependence import Repeats, dependence, repeats_again
from encoder_conformance.diagnosis.epsilon import measured_epsilons
from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.diagnosis.experiments import Ask, experiments, identify_by_experiments
from encoder_conformance.diagnosis.identify.identify import (
    Identified,
    describe_outputs,
    deviations_of,
    identify,
    patches_of,
)
from encoder_conformance.diagnosis.less_exact import softmax_by_log_sum
from encoder_conformance.diagnosis.match import Match
from encoder_conformance.diagnosis.noisy_predictions import has_dropout, noisy_steps
from encoder_conformance.diagnosis.selection import choose, free_of_padding_first, screening
from encoder_conformance.judging.observation import Observation
from encoder_conformance.judging.records import Claim, Diagnosis, Measurement
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.deviant import changes
from encoder_conformance.spec.deviation import Deviation, Measured
from encoder_conformance.spec.stages import step_of

_IN_A_HURRY = 6
"""Observations that are enough where time is short: each costs the noise of its layer."""


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
    if failing.until is not None:
        chosen = chosen[:_IN_A_HURRY]
    if failing.repeats == "unknown" and failing.ask is not None:
        failing = replace(failing, repeats=repeats_again(chosen, failing.ask))
    evidence = free_of_padding_first([Evidence(observation) for observation in chosen])
    null, screened = Match.of((), evidence), screening(evidence)
    unknown = _unknown(failing, null, chosen)
    try:
        offered = [*_offered(chosen, failing.repeats), *measured_epsilons(screened.slower, evidence, null)]
        ranked = search_catalogue(offered, screened, evidence, failing.until)
    except OutOfTime:
        return unknown.model_copy(update={"cut_short": True})
    if null.explains:
        return unknown
    if ranked and _is_explained(ranked[0], failing.repeats):
        named = _named(unknown, ranked, failing.repeats)
        return named if (step := rounded_in_its_place(ranked[0], evidence)) is None else _with_rounded(unknown, step)
    if match := softmax_by_log_sum(evidence):
        sentences = tuple(each.sentence for each in match.deviations)
        cause = {"confidence": "explained", "rms": match.rms, "deviations": match.ids}
        return unknown.model_copy(update=cause | {"sentences": sentences, "right_before": ()})
    if in_catalogue_alone:
        return _closest(unknown, ranked, null, evidence, failing.repeats)
    unlike, comparable = incomparable(evidence), [piece for piece in evidence if piece.is_comparable]
    if not comparable:
        closest = _closest(unknown, ranked, null, evidence, failing.repeats)
        return closest.model_copy(update={"observed": unlike})
    shows_stages = any(len(piece.stages) > 1 for piece in comparable)
    asked = {} if shows_stages or failing.ask is None else experiments(comparable, failing.ask)
    by_experiments = identify_by_experiments(comparable, asked, failing.until)
    identified = by_experiments or identify(comparable, Match.of((), comparable), failing.until)
    every = [*evidence, *(piece for pieces in asked.values() for piece in pieces)]
    diagnosis = _with_equations(_closest(unknown, ranked, null, every, failing.repeats), identified, evidence)
    if diagnosis.confidence == "explained":
        return diagnosis
    more = () if shows_stages else describe_outputs(comparable)
    depends = () if failing.ask is None else dependence(comparable, failing.ask)
    return diagnosis.model_copy(update={"observed": (*unlike, *more, *diagnosis.observed, *depends)})


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
    """Return the stages before the first one out of line, of a case that shows it so, that none shows out of line."""
    first = _first_out_of_line(null)
    fit = next((fit for fit in null.with_stages_first if fit.first_out_of_line == first), None)
    if first is None or fit is None:
        return ()
    out = {stage for each in null.fits for stage, fine in zip(each.stages, each.in_line, strict=True) if not fine}
    return tuple(stage for stage in fit.stages[: fit.stages.index(first)] if stage not in out)


def _is_explained(best: Match, repeats: Repeats) -> bool:
    return best.explains and best.came_true and (repeats == "differ" or not has_dropout(best.deviations))


def _closest(
    unknown: Diagnosis, ranked: Sequence[Match], null: Match, evidence: Sequence[Evidence], repeats: Repeats
) -> Diagnosis:
    """Name the best hypothesis that nothing in the evidence refutes; the `unknown` diagnosis if there is none."""
    left = list(standing(ranked, null, evidence))
    return _named(unknown, left, repeats) if left else unknown


def _named(unknown: Diagnosis, ranked: Sequence[Match], repeats: Repeats) -> Diagnosis:
    """Name the best hypothesis as what explains all, or as the closest."""
    best, *others = ranked
    explained = _is_explained(best, repeats)
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


def _with_rounded(unknown: Diagnosis, rounded: RoundedStep) -> Diagnosis:
    """State the equations of right results that were rounded, and name the deviations beside them."""
    left = Match(rounded.left)
    named = _named(unknown, [left], "unknown") if rounded.left else unknown
    return named.model_copy(
        update={
            "confidence": "explained",
            "equations": rounded.equations,
            "rms": rounded.rms,
            "right_before": (),
        }
    )


def without_name(closest: Diagnosis) -> Diagnosis:
    """Return what is left of a diagnosis whose name something refutes: what was found out beside it."""
    kept = ("implementation", "dtype", "first_stage", "right_before", "cases", "equations", "left_open", "observed")
    return Diagnosis(confidence="unknown", **{name: getattr(closest, name) for name in kept})


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
    if _say_more(identified, named):
        named = without_name(named)
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


def _say_more(identified: Identified, named: Diagnosis) -> bool:
    """Whether an equation gives the values of a step of which the closest name predicts a size alone."""
    if not named.by_size:
        return False
    known = catalogue()
    steps = noisy_steps([known[name] for name in named.deviations if name in known])
    return any(each.stage in steps for each in identified.equations)


def _first_identified(identified: Identified, seen_first: str | None) -> str | None:
    """Return the first stage of which an equation was found, in the layer of a stack where it was seen first."""
    stage = identified.equations[0].stage
    return seen_first if identified.observed or (seen_first and step_of(seen_first) == stage) else stage


def incomparable(evidence: Sequence[Evidence]) -> tuple[Claim, ...]:
    """Return what is so of the first answer of another shape or dtype, and how many cases more; () if there is none."""
    unlike = [(piece, stage) for piece in evidence for stage in piece.stages if stage in piece.observation.unlike]
    if not unlike:
        return ()
    piece, stage = unlike[0]
    count = len({each.case.id for each, _ in unlike})
    where = piece.case.id + (f" and {count - 1} more" if count > 1 else "")
    shape = piece.observation.unlike[stage]
    if shape is None:
        return (claim("dtype", stage=stage, dtype=piece.dtype.name, where=where),)
    due = list(piece.observation.expected.tensors[stage].shape)
    return (claim("shape", stage=stage, shape=str(list(shape)), due=str(due), where=where),)
