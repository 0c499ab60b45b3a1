"""Tells a step whose right result was rounded from one that computes in a narrower format.

The values of both lie on one grid and err by as much. But a right result that is rounded has one value, which can be
computed from the stage before: where the observed values are these, nothing inside the step is narrow.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.diagnosis.identify.equation_search import rounded_forms
from encoder_conformance.diagnosis.identify.identify import deviations_of, equations_of_groups, patches_of
from encoder_conformance.diagnosis.identify.roundings import of_the_result
from encoder_conformance.diagnosis.identify.samples import samples_of
from encoder_conformance.diagnosis.match import Match
from encoder_conformance.diagnosis.noisy_predictions import noisy_steps
from encoder_conformance.judging.records import StageEquation
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.stages import step_of

_rounded_results = partial(rounded_forms, forms=of_the_result)


@dataclass(frozen=True)
class RoundedStep:
    """What explains all: the deviations that are `left`, and the equations of the right results that were rounded."""

    left: tuple[Deviation, ...]
    equations: tuple[StageEquation, ...]
    rms: float


def rounded_in_its_place(best: Match, evidence: Sequence[Evidence]) -> RoundedStep | None:
    """Return what explains all in the place of `best`, with right results that were rounded for the deviations of it
    whose grid alone was seen; None where that does not."""
    by_grid = [each for each in best.deviations if not best.gives_values_of(each)]
    equations = list[StageEquation]()
    for stage in _wrong_stages(by_grid, evidence):
        of_stage = equations_of_groups(stage, stage, samples_of(stage, evidence), _rounded_results)
        if of_stage is None:
            return None
        equations += of_stage
    if not equations:
        return None
    left = tuple(each for each in best.deviations if each not in by_grid)
    match = Match.of((*left, *deviations_of(patches_of(equations))), evidence, measured=True)
    return RoundedStep(left, tuple(equations), match.rms) if match.explains else None


def _wrong_stages(deviations: Sequence[Deviation], evidence: Sequence[Evidence]) -> list[str]:
    """Return the steps at which these are predicted in size only, of those that are out of line without them."""
    fits = Match.of((), evidence).fits
    out = [step_of(name) for fit in fits for name, fine in zip(fit.stages, fit.in_line, strict=True) if not fine]
    noisy = noisy_steps(deviations)
    return [step for step in dict.fromkeys(out) if step in noisy]
