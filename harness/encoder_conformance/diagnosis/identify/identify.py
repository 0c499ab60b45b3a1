"""Identifies the equation that each stage out of line is computed by, where no catalogue has a name for it."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from encoder_conformance.diagnosis.claims import claim
from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.diagnosis.identify.characteristics import characteristics, in_one_claim
from encoder_conformance.diagnosis.identify.equation_search import Effort, EquationCandidate, nearest_equations
from encoder_conformance.diagnosis.identify.from_output import (
    NONE,
    OutputSample,
    Patches,
    nearest_by_output,
    output_samples,
)
from encoder_conformance.diagnosis.identify.samples import Sample, samples_of
from encoder_conformance.diagnosis.match import Match
from encoder_conformance.judging.records import Claim, StageEquation
from encoder_conformance.spec.deviation import Deviation, Patch
from encoder_conformance.spec.stages import layer_of, step_of

AnySample = TypeVar("AnySample", bound=Sample)
_EVALUATIONS = 10000
"""Of equations, of all stages together: some ten seconds."""
_OUTPUT_EVALUATIONS, _OUTPUT_FIT = 28000, 8
"""The same where each is played to the output; and plays that fitting a number takes, about."""
OF_THE_OUTPUT = claim("of-the-output")
NO_OUTPUTS: Mapping[str, Sequence[OutputSample]] = {}
_TRIED = 3
"""Equations of a stage that are tried in their own noise: it takes 24 plays a case."""


@dataclass(frozen=True)
class Identified:
    """The `equations` of the stages that were identified. `left` are stages out of line of which no equation was found,
    and `observed` is what was found out about the first of these."""

    equations: tuple[StageEquation, ...] = ()
    left: tuple[str, ...] = ()
    observed: tuple[Claim, ...] = ()


def identify(evidence: Sequence[Evidence], null: Match, until: float | None) -> Identified:
    """Identify the equation of every stage that is out of line given the stages before it, in each layer of a stack
    too.

    `null` is the null hypothesis on this evidence. Cases that show an output alone, or whole layers, do not say which
    step is wrong; they are judged with what is found.
    """
    effort = Effort(_EVALUATIONS, until)
    shown = [
        (piece, fit)
        for piece, fit in zip(evidence, null.fits, strict=True)
        if len(piece.stages) > 1 and (not piece.case.layer.is_stack or any(map(layer_of, piece.stages)))
    ]
    if not shown:
        outputs = output_samples([piece for piece in evidence if piece.stages == ("output",)])
        equations = identify_by_output(outputs, until)
        return Identified(tuple(equations), observed=(OF_THE_OUTPUT,)) if equations else Identified()
    out = {stage for _, fit in shown for stage, fine in zip(fit.stages, fit.in_line, strict=True) if not fine}
    first: dict[str, str] = {}
    for stage in (name for piece, _ in shown for name in piece.stages if name in out):
        first.setdefault(step_of(stage), stage)
    found, left = list[StageEquation](), list[str]()
    for step, stage in first.items():
        find = partial(nearest_equations, step, effort=effort)
        of_step = equations_of_groups(step, step, samples_of(step, evidence), find)
        if of_step is None:
            left.append(stage)
        else:
            found += of_step
    return Identified(tuple(found), tuple(left), _observed(left, evidence))


def _observed(left: Sequence[str], evidence: Sequence[Evidence]) -> tuple[Claim, ...]:
    samples = [s for s in samples_of(step_of(left[0]), evidence) if s.within == layer_of(left[0])] if left else []
    return characteristics(step_of(left[0]), samples) if samples else ()


def describe_outputs(evidence: Sequence[Evidence]) -> tuple[Claim, ...]:
    """Return what can be said of outputs of small layers that show nothing else."""
    samples = output_samples([piece for piece in evidence if piece.stages == ("output",)]).get("output", [])
    found = in_one_claim("output", samples) if samples else None
    return () if found is None else (found,)


def identify_by_output(
    outputs: Mapping[str, Sequence[OutputSample]],
    until: float | None,
    known: Patches = NONE,
    accepts: Callable[[list[StageEquation]], bool] = bool,
    prefers: Callable[[list[StageEquation]], bool] = bool,
    beside: Mapping[str, Sequence[OutputSample]] = NO_OUTPUTS,
) -> list[StageEquation]:
    """Return the equations of one step that account for every output, first without a fitted number, then with.

    `outputs` by the stage that may be wrong; `known`: equations of other stages. [] where `accepts` takes none. Of
    several the first that it `prefers`, else the first; `beside` are outputs that may say which of them it is.
    """
    effort = Effort(_OUTPUT_EVALUATIONS, until, _OUTPUT_FIT)
    first = list[StageEquation]()
    for numbers in (False, True):
        for stage, samples in outputs.items():
            others = beside.get(stage, ())
            find = partial(nearest_by_output, stage, effort=effort, numbers=numbers, beside=others)
            equations = equations_of_groups(stage, "output", samples, find, known)
            if equations and accepts(equations):
                if prefers(equations):
                    return equations
                first = first or equations
            if effort.is_over:
                break
    return first


def equations_of_groups(
    stage: str,
    judged: str,
    samples: Sequence[AnySample],
    find: Callable[[list[AnySample]], list[EquationCandidate]],
    known: Patches = NONE,
) -> list[StageEquation] | None:
    """Return an equation for each that the layers specify, where the stage that is `judged` is out of line; None where
    one is not found. `known`: equations of other stages that were found before."""
    groups: dict[str, list[AnySample]] = {}
    for sample in samples:
        groups.setdefault(sample.specified.form, []).append(sample)
    found = []
    for specified, group in sorted(groups.items(), key=lambda group: -len(group[1])):
        right = Match.of(deviations_of(known), [sample.evidence for sample in group])
        if _in_line(right, judged):
            continue
        equation = _verified(stage, judged, group, find(group), known)
        if equation is None:
            return None
        found.append(
            StageEquation(
                stage=stage,
                specified=specified,
                found=equation[0],
                rms=equation[1],
                specified_rms=_rms(right, judged),
                cases=tuple(sample.evidence.case.id for sample in group),
            )
        )
    return found or None


def _verified(
    stage: str, judged: str, samples: Sequence[Sample], candidates: Sequence[EquationCandidate], known: Patches
) -> tuple[str, float] | None:
    """Return the first that puts what is judged in line in every case, in the noise of the wrong step itself."""
    for candidate in candidates[:_TRIED]:
        deviation = deviation_of({**known, stage: {samples[0].specified.form: candidate.text}})
        match = Match((deviation,))
        for sample in samples:
            match.try_on(sample.evidence, measured=True)
            if not _in_line(match, judged):
                break
        else:
            return candidate.text, _rms(match, judged)
    return None


def _in_line(match: Match, stage: str) -> bool:
    return all(fit.in_line[at] for fit in match.fits for at in _places(fit.stages, stage))


def _rms(match: Match, stage: str) -> float:
    return max(float(fit.rms[at]) for fit in match.fits for at in _places(fit.stages, stage))


def _places(stages: Sequence[str], stage: str) -> list[int]:
    """Return where a stage is among those of a layer, or of every layer of a stack."""
    return [at for at, name in enumerate(stages) if step_of(name) == stage]


def deviations_of(patches: Patches) -> tuple[Deviation, ...]:
    """Return the deviation with these equations; () where there is none."""
    return (deviation_of(patches),) if patches else ()


def patches_of(equations: Iterable[StageEquation]) -> dict[str, dict[str, str]]:
    """Return stage → the specified equation → the one that was found."""
    patches: dict[str, dict[str, str]] = {}
    for each in equations:
        patches.setdefault(each.stage, {})[each.specified] = each.found
    return patches


def deviation_of(patches: Patches) -> Deviation:
    """Return the deviation that computes these stages by these equations; other equations have another id."""
    stages = {stage: dict(equations) for stage, equations in patches.items()}
    digest = hashlib.sha256(repr(stages).encode()).hexdigest()[:8]
    return Deviation(
        deviation=f"identified-{digest}",
        sentence="An equation that was found.",
        kind="wiring",
        patch=Patch(stages=stages),
        unseen=None,
        links=(),
    )
