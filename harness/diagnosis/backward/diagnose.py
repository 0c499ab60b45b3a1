"""Names what is wrong with a backward pass whose forward pass is right, layer by layer and step by step."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from encoder_conformance.diagnosis.backward.arrangement import rearranged
from encoder_conformance.diagnosis.backward.hypotheses import Hypothesis, hypotheses
from encoder_conformance.diagnosis.backward.seen import Equations, GradientsSeen, in_line
from encoder_conformance.judge.observation import Array
from encoder_conformance.results import Diagnosis, StageEquation
from encoder_conformance.spec.constants import constants
from encoder_conformance.spec.equation import Equation

_CAUSES = 4
"""Wrong steps that are looked for, one after the other, from the end of the layer to its beginning."""
_TRIED = 4
"""Hypotheses of a step that are played in their own noise: it takes 48 plays a case."""
_CASES = 6
"""Cases of layers with the same equations that are looked at."""
_NEAR = 50.0
"""The rms error, in σ of right gradients, up to which a wrong step's own noise may be all that is left."""
_SAME_EFFECT = "Another place on the same way back has the same effect, where nothing branches off between the two."
_WORDS = {
    "detach": "detach(a) is a, and nothing goes back through it.",
    "scale_gradient": "scale_gradient(a, c) is a, and what goes back through it is multiplied by c.",
}


def diagnose_backward(
    implementation: str, dtype: str, seen: Sequence[GradientsSeen], not_tried: Sequence[str] = ()
) -> Diagnosis:
    """One diagnosis of all gradients out of line in a format: explained, if what was found accounts for all of them.

    `not_tried`: cases that failed, and that equations say nothing of; the diagnosis says so.
    """
    groups = [group for group in _alike(seen) if any(case.failed for case in group)]
    found = [_of_layers(group) for group in groups]
    cases = tuple(case.case.id for group in groups for case in group)
    if arranged := rearranged([case for group in groups for case in group]):
        return Diagnosis(
            implementation=implementation,
            dtype=dtype,
            confidence="seen",
            of="backward",
            sentences=arranged,
            advice="Look at how gradients are named and laid out where they are handed over",
            first_stage=None,
            cases=cases,
        )
    equations = tuple(dict.fromkeys(each for one in found if one for each in one))
    explained = bool(found) and all(found)
    equations = equations if explained else ()
    words = [sentence for word, sentence in _WORDS.items() if any(f"{word}(" in each.found for each in equations)]
    observed = [*words, *([_SAME_EFFECT] if equations else _out_of_line(groups))]
    if not_tried:
        observed.append(f"Not tried on {', '.join(not_tried)}, which fail{'s' * (len(not_tried) == 1)} too.")
    return Diagnosis(
        implementation=implementation,
        dtype=dtype,
        confidence="explained" if explained else "unknown",
        of="backward",
        rms=max((each.rms for each in equations), default=None) if explained else None,
        first_stage=None,
        cases=cases,
        equations=equations,
        observed=tuple(observed),
    )


def _alike(seen: Iterable[GradientsSeen]) -> Iterator[list[GradientsSeen]]:
    """Cases of layers whose equations are the same."""
    groups: dict[tuple[str, ...], list[GradientsSeen]] = {}
    for case in seen:
        groups.setdefault(tuple(each.form for each in case.specified.values()), []).append(case)
    yield from groups.values()


def _most_telling(group: Sequence[GradientsSeen]) -> list[GradientsSeen]:
    """Failed ones first, and those of different sizes and masks; but not passed ones alone."""
    ranked = sorted(group, key=lambda case: (not case.failed, case.case.mask() is None, case.case.id))
    of_sizes = {case.case.x_shape[:2]: case for case in reversed(ranked)}
    first = sorted(of_sizes.values(), key=ranked.index)[: _CASES // 2]
    return [*first, *(case for case in ranked if case not in first)][:_CASES]


def _of_layers(every: Sequence[GradientsSeen]) -> list[StageEquation] | None:
    """The wrong equations of layers that specify the same ones, found in some cases and held to all of them; None where
    something is left that none accounts for."""
    cases = _most_telling(every)
    now: dict[str, Equation] = dict(cases[0].specified)
    specified_rms = _rms(every, [case.right for case in every])
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
    if not all(in_line(own, constants()) for each in errors for own in each.values()):
        return None
    left = max(float(np.sqrt(np.mean(own**2))) for each in errors for own in each.values())
    ids = tuple(case.case.id for case in every)
    return [
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


def _rms(cases: Sequence[GradientsSeen], found: Sequence[Mapping[str, Array]]) -> float:
    errors = [each for case, own in zip(cases, found, strict=True) for each in case.errors(own).values()]
    return max(float(np.sqrt(np.mean(each**2))) for each in errors)


def _first_out_of_line(cases: Sequence[GradientsSeen], found: Sequence[Mapping[str, Array]]) -> str | None:
    """By name, in the order of the backward pass."""
    errors = [case.errors(own) for case, own in zip(cases, found, strict=True)]
    names = dict.fromkeys(name for each in errors for name in each)
    return next((name for name in names if not all(in_line(each[name], constants()) for each in errors)), None)


def _best(
    cases: Sequence[GradientsSeen], now: Equations, gradients: Sequence[Mapping[str, Array]], first: str
) -> Hypothesis | None:
    """The hypothesis that puts most of the backward pass in line, from its beginning on, and `first` in any case; of
    those that do as much, the one that leaves least; of those, the one of the largest part of an equation."""
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


def _reach(cases: Sequence[GradientsSeen], one: Hypothesis, first: str) -> tuple[int, float]:
    """How many gradients come near, one after the other; 0 if `first` does not. And the mean of log(1 + error²)."""
    errors = [case.errors(own) for case, own in zip(cases, one.gradients, strict=True)]
    left = float(np.mean([np.mean(np.log1p(own**2)) for each in errors for own in each.values()]))
    count, names = 0, list(errors[0])
    for name in names:
        if any(float(np.sqrt(np.mean(each[name] ** 2))) > _NEAR for each in errors if name in each):
            break
        count += 1
    return (count if count > names.index(first) else 0), left


def _accounts_for(cases: Sequence[GradientsSeen], equations: Equations, first: str) -> bool:
    """Whether the gradient is in line with these, in their own noise, in every case."""
    for case in cases:
        found, sigma = case.given_by(equations), case.noise_of(equations)
        if not in_line(case.errors(found, sigma)[first], constants()):
            return False
    return True


def _out_of_line(groups: Sequence[Sequence[GradientsSeen]]) -> Iterator[str]:
    """Sentences about the gradients of each case's layer, where no equation was found."""
    right, wrong = dict[str, None](), dict[str, None]()
    for case in (case for group in groups for case in group):
        for name, errors in case.errors(case.right).items():
            (right if in_line(errors, constants()) else wrong)[name] = None
    yield f"Gradients out of line, from the output back: {', '.join(wrong)}."
    if alone := [name for name in right if name not in wrong]:
        yield f"Right in every case: {', '.join(alone)}."
