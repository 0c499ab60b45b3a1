"""Which equation each stage out of line is computed by: the sentence of a diagnosis where no catalogue has a name."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.diagnosis.identify.characteristics import characteristics, in_one_sentence
from encoder_conformance.diagnosis.identify.effort import Effort
from encoder_conformance.diagnosis.identify.from_output import NONE, Patches, nearest_by_output, output_samples
from encoder_conformance.diagnosis.identify.samples import Sample, samples_of
from encoder_conformance.diagnosis.identify.search import Candidate, nearest_equations
from encoder_conformance.diagnosis.match import Match
from encoder_conformance.results import StageEquation
from encoder_conformance.spec.constants import constants
from encoder_conformance.spec.deviation import Deviation, Patch
from encoder_conformance.spec.stages import layer_of, step_of

AnySample = TypeVar("AnySample", bound=Sample)
EVALUATIONS = 10000
"""Of equations, of all stages together: some ten seconds."""
OF_OUTPUTS = 20000
"""The same where each is played to the output."""
_OF_THE_OUTPUT = "Another stage may be the one that is wrong, if it has the same effect: the output alone cannot tell."
_TRIED = 3
"""Equations of a stage that are tried in their own noise: it takes 24 plays a case."""


@dataclass(frozen=True)
class Identified:
    """`equations` of the stages that were identified, and the deviation that has them; `left` are stages out of line
    of which no equation was found, and `observed` are sentences about the first of these."""

    equations: tuple[StageEquation, ...]
    deviation: Deviation | None
    left: tuple[str, ...]
    observed: tuple[str, ...]


def identify(evidence: Sequence[Evidence], nothing: Match, until: float | None) -> Identified:
    """The equation of every stage that is out of line given the stages before it, in each layer of a stack too. Cases
    that show an output alone, or whole layers, do not say which step is wrong; they are judged with what is found."""
    effort = Effort(EVALUATIONS, until)
    shown = [
        (piece, fit)
        for piece, fit in zip(evidence, nothing.fits, strict=True)
        if len(piece.stages) > 1 and (not piece.case.layer.is_stack or any(map(layer_of, piece.stages)))
    ]
    if not shown:
        return _by_output([piece for piece in evidence if piece.stages == ("output",)], Effort(OF_OUTPUTS, until))
    out = {stage for _, fit in shown for stage, fine in zip(fit.stages, fit.in_line, strict=True) if not fine}
    first: dict[str, str] = {}
    for stage in (name for piece, _ in shown for name in piece.stages if name in out):
        first.setdefault(step_of(stage), stage)
    found, left = list[StageEquation](), list[str]()
    for step, stage in first.items():
        equations = _of_stage(step, evidence, effort)
        if equations is None:
            left.append(stage)
        else:
            found += equations
    deviation = deviation_of(patches_of(found)) if found else None
    return Identified(tuple(found), deviation, tuple(left), _observed(left, evidence))


def _observed(left: Sequence[str], evidence: Sequence[Evidence]) -> tuple[str, ...]:
    samples = [s for s in samples_of(step_of(left[0]), evidence) if s.within == layer_of(left[0])] if left else []
    return characteristics(step_of(left[0]), samples) if samples else ()


def of_output(evidence: Sequence[Evidence]) -> tuple[str, ...]:
    """What can be said of outputs of small layers that show nothing else."""
    samples = output_samples([piece for piece in evidence if piece.stages == ("output",)]).get("output", [])
    return tuple(filter(None, [in_one_sentence("output", samples)])) if samples else ()


def _by_output(evidence: Sequence[Evidence], effort: Effort) -> Identified:
    """One step that accounts for every output, where no stage is shown: first without a fitted number, then with."""
    by_stage = output_samples(evidence)
    for numbers in (False, True):
        for stage, samples in by_stage.items():
            find = partial(nearest_by_output, stage, effort=effort, numbers=numbers)
            if equations := of_groups(stage, "output", samples, find):
                return Identified(tuple(equations), deviation_of(patches_of(equations)), (), (_OF_THE_OUTPUT,))
            if effort.is_over:
                break
    return Identified((), None, (), ())


def _of_stage(stage: str, evidence: Sequence[Evidence], effort: Effort) -> list[StageEquation] | None:
    return of_groups(stage, stage, samples_of(stage, evidence), partial(nearest_equations, stage, effort=effort))


def of_groups(
    stage: str,
    judged: str,
    samples: Sequence[AnySample],
    find: Callable[[list[AnySample]], list[Candidate]],
    known: Patches = NONE,
) -> list[StageEquation] | None:
    """One for each equation that the layers specify, where the stage that is `judged` is out of line; None where one of
    them is not found. `known`: equations of other stages that were found before."""
    groups: dict[str, list[AnySample]] = {}
    for sample in samples:
        groups.setdefault(sample.specified.form, []).append(sample)
    found = []
    for specified, group in sorted(groups.items(), key=lambda group: -len(group[1])):
        right = Match((deviation_of(known),) if known else (), constants())
        for sample in group:
            right.try_on(sample.evidence)
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
    stage: str, judged: str, samples: Sequence[Sample], candidates: Sequence[Candidate], known: Patches
) -> tuple[str, float] | None:
    """The first that puts what is judged in line in every case, in the noise of the wrong step itself."""
    for candidate in candidates[:_TRIED]:
        deviation = deviation_of({**known, stage: {samples[0].specified.form: candidate.text}})
        match = Match((deviation,), constants())
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
    """Where a stage is among those of a layer, or of every layer of a stack."""
    return [at for at, name in enumerate(stages) if step_of(name) == stage]


def patches_of(equations: Iterable[StageEquation]) -> dict[str, dict[str, str]]:
    """Stage → the specified equation → the one that was found."""
    patches: dict[str, dict[str, str]] = {}
    for each in equations:
        patches.setdefault(each.stage, {})[each.specified] = each.found
    return patches


def deviation_of(patches: Patches) -> Deviation:
    """The deviation that computes these stages by these equations; another id for other equations."""
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
