"""Names what is wrong with a backward pass whose forward pass is right, layer by layer and step by step."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from encoder_conformance.diagnosis.backward.consistency import CEILING
from encoder_conformance.diagnosis.backward.hypotheses import Hypothesis, hypotheses
from encoder_conformance.diagnosis.backward.observed import Equations, ObservedGradients
from encoder_conformance.diagnosis.claims import claim
from encoder_conformance.diagnosis.in_sigma import conforms, held, rms, robust_cost
from encoder_conformance.judging.records import Claim, Confidence, Diagnosis, StageEquation
from encoder_conformance.spec.axes import P
from encoder_conformance.spec.equation import Equation

_CAUSES = 4
"""Wrong steps that are looked for, one after the other, from the end of the layer to its beginning."""
_TRIED = 4
"""Hypotheses of a step that are played in their own noise: it takes 48 plays a case."""
_CASES = 6
"""Cases of layers with the same equations that are looked at."""
_NEAR = 50.0
"""The rms error, in σ of right gradients, up to which a wrong step's own noise may be all that is left."""
_MORE_THAN_NOISE = 100.0
"""The rms, in σ, of a gradient that can be known again: that of a key's bias is 0 but for rounding."""
_SAME_EFFECT = claim("same-effect")
_WORDS = {"detach": claim("detach"), "scale_gradient": claim("scale-gradient")}


def diagnose_backward(
    implementation: str, dtype: str, seen: Sequence[ObservedGradients], not_tried: Sequence[str] = ()
) -> Diagnosis:
    """Return one diagnosis of all gradients out of line in a format: explained, if what was found accounts for all;
    closest, if all but what may be the noise of a wrong backward pass, which is a guess.

    `not_tried`: cases that failed, and that equations say nothing of; the diagnosis says so.
    """
    groups = [group for group in _by_specification(seen) if any(case.failed for case in group)]
    found = [_of_layers(group) for group in groups]
    cases = tuple(case.case.id for group in groups for case in group)
    diagnosis = partial(
        Diagnosis, implementation=implementation, dtype=dtype, of="backward", first_stage=None, cases=cases
    )
    if arranged := _rearranged([case for group in groups for case in group]):
        advice = "Look at how gradients are named and laid out where they are handed over"
        return diagnosis(confidence="seen", cause="gradients-rearranged", sentences=arranged, advice=advice)
    complete = [each for each in found if each is not None]
    known = bool(found) and len(complete) == len(found)
    equations = tuple(dict.fromkeys(each for one in complete for each in one.equations)) if known else ()
    sure: Confidence = "explained" if all(each.accounts_for_all for each in complete) else "closest"
    words = [meaning for word, meaning in _WORDS.items() if any(f"{word}(" in each.found for each in equations)]
    observed = [*words, *([_SAME_EFFECT] if equations else _out_of_line(groups))]
    if not_tried:
        cases_too = f"{', '.join(not_tried)}, which fail{'s' * (len(not_tried) == 1)} too"
        observed.append(claim("not-tried", cases=0, names=cases_too))
    return diagnosis(
        confidence=sure if known else "unknown",
        rms=max((each.rms for each in equations), default=None),
        equations=equations,
        observed=tuple(observed),
    )


def _by_specification(seen: Iterable[ObservedGradients]) -> Iterator[list[ObservedGradients]]:
    """Yield the cases of layers whose equations are the same."""
    groups: dict[tuple[str, ...], list[ObservedGradients]] = {}
    for case in seen:
        groups.setdefault(tuple(each.form for each in case.specified.values()), []).append(case)
    yield from groups.values()


def _informative(group: Sequence[ObservedGradients]) -> list[ObservedGradients]:
    """Choose failed cases first, and those of different sizes and masks; but not passed ones alone."""
    ranked = sorted(group, key=lambda case: (not case.failed, case.case.mask() is None, case.case.id))
    of_sizes = {case.case.x_shape[:2]: case for case in reversed(ranked)}
    first = sorted(of_sizes.values(), key=ranked.index)[: _CASES // 2]
    return [*first, *(case for case in ranked if case not in first)][:_CASES]


class _Found(NamedTuple):
    equations: list[StageEquation]
    accounts_for_all: bool


def _of_layers(every: Sequence[ObservedGradients]) -> _Found | None:
    """Return the wrong equations of layers that specify the same ones, found in some cases and held to all; None
    where more is left than the noise of any may come to."""
    cases = _informative(every)
    now: dict[str, Equation] = dict(cases[0].specified)
    specified_rms = max(rms(error) for case in every for error in case.errors(case.right).values())
    gradients = [case.right for case in cases]
    for _ in range(_CAUSES):
        first = _first_out_of_line(cases, gradients)
        if first is None:
            break
        best = _best(cases, now, gradients, first)
        if best is None:
            return None
        now[best.stage] = Equation(best.text)
        gradients = [case.given_by(now) for case in cases]
    errors = [case.errors(case.given_by(now), case.noise_of(now)) for case in every]
    left = max(rms(error) for each in errors for error in each.values())
    if not left <= CEILING:
        return None
    ids = tuple(case.case.id for case in every)
    equations = [
        StageEquation(
            stage=stage,
            specified=equation.form,
            found=now[stage].form,
            rms=left,
            specified_rms=specified_rms,
            cases=ids,
        )
        for stage, equation in cases[0].specified.items()
        if now[stage].form != equation.form
    ]
    return _Found(equations, all(conforms(error) for each in errors for error in each.values()))


def _first_out_of_line(cases: Sequence[ObservedGradients], found: Sequence[Mapping[str, P]]) -> str | None:
    """Return the first gradient, in the order of the backward pass, that does not conform in some case."""
    errors = [case.errors(gradients) for case, gradients in zip(cases, found, strict=True)]
    names = dict.fromkeys(name for each in errors for name in each)
    return next((name for name in names if not all(conforms(each[name]) for each in errors)), None)


def _best(
    cases: Sequence[ObservedGradients], now: Equations, gradients: Sequence[Mapping[str, P]], first: str
) -> Hypothesis | None:
    """Return the hypothesis that puts most of the backward pass in line, from its start on, and `first` at least; of
    several the one that leaves least, and of these that of the largest part of an equation."""
    ranked = sorted(
        (-reach, round(left, 1), len(each.text) - len(each.part), len(each.part), each.text, each)
        for each in hypotheses(cases, now, gradients, first)
        for reach, left in [_reach(cases, each, first)]
        if reach
    )
    for *_, each in ranked[:_TRIED]:
        if _accounts_for(cases, {**now, each.stage: Equation(each.text)}, first):
            return each
    return None


def _reach(cases: Sequence[ObservedGradients], one: Hypothesis, first: str) -> tuple[int, float]:
    """Return how many gradients come near, one after the other, 0 if `first` does not; and the mean `robust_cost`."""
    errors = [case.errors(gradients) for case, gradients in zip(cases, one.gradients, strict=True)]
    left = float(np.mean([robust_cost(error) for each in errors for error in each.values()]))
    count, names = 0, list(errors[0])
    for name in names:
        if any(rms(each[name]) > _NEAR for each in errors if name in each):
            break
        count += 1
    return (count if count > names.index(first) else 0), left


def _accounts_for(cases: Sequence[ObservedGradients], equations: Equations, first: str) -> bool:
    """Whether the gradient is in line with these, in their own noise, in every case."""
    return all(conforms(case.errors(case.given_by(equations), case.noise_of(equations))[first]) for case in cases)


def _out_of_line(groups: Sequence[Sequence[ObservedGradients]]) -> Iterator[Claim]:
    """Yield what is so of the gradients of all cases, where no equation was found."""
    every: dict[str, list[P]] = {}
    cases = [case for group in groups for case in group]
    for case in cases:
        for name, errors in case.errors(case.right).items():
            every.setdefault(name, []).append(errors)
    right = {name: left for name, errors in every.items() if (left := held(errors)) is not None}
    wrong = {name: max(map(rms, errors)) for name, errors in every.items() if name not in right}
    yield claim("gradients-out", max(wrong.values(), default=0.0), names=", ".join(wrong))
    if right:
        yield claim("gradients-right", max(right.values()), cases=len(cases), names=", ".join(right))


def _rearranged(cases: Sequence[ObservedGradients]) -> tuple[str, ...]:
    """Return a sentence for each gradient out of line, if all are right ones of another name or layout; else none."""
    wrong = dict.fromkeys(
        name for case in cases for name, errors in case.errors(case.right).items() if not conforms(errors)
    )
    found = [_arrangement(name, cases) for name in wrong]
    return tuple(each for each in found if each) if all(found) else ()


def _arrangement(name: str, cases: Sequence[ObservedGradients]) -> str | None:
    """Return under which other name, or in which other layout, the gradient was handed over; None if it was not."""
    holding = [case for case in cases if name in case.observed]
    for other in dict.fromkeys(other for case in holding for other in case.observed):
        for turned in (False, True):
            errors = [_errors_as_of(case, name, other, turned=turned) for case in holding if other != name or turned]
            known = [each for each in errors if each is not None]
            sigma = held(known) if len(known) == len(holding) else None
            if sigma is not None:
                whose = f"{'' if other == name else f' of {other}'}{', transposed' if turned else ''}"
                over = f"{sigma:.2g} σ over {len(holding)} case{'s' * (len(holding) > 1)}"
                return f"The gradient of {name} is that{whose} ({over})."
    return None


def _errors_as_of(case: ObservedGradients, name: str, other: str, *, turned: bool) -> P | None:
    """Return how far what was given for `name` is from the gradient of `other`, in σ; None where that has another
    shape, or is no more than noise."""
    if other not in case.observed:
        return None
    given, right, sigma = case.whole[name], case.right[other], case.sigma[other]
    given = given.T if turned else given
    if given.shape != case.expected[other].shape or rms(right / sigma) < _MORE_THAN_NOISE:
        return None
    return np.asarray((given.reshape(-1)[case.expected[other].positions] - right) / sigma)
