"""Asks a live implementation again, with parameters that switch a part of the layer off.

Portable parameters are ours to choose. Where the output alone is shown, a layer whose attention adds nothing shows its
feed-forward network, and one whose feed-forward network adds nothing shows its attention: two causes come out one by
one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from encoder_conformance.diagnosis.claims import claim
from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.diagnosis.identify.edits import parsed
from encoder_conformance.diagnosis.identify.from_output import OutputSample, gives, output_samples
from encoder_conformance.diagnosis.identify.identify import (
    OF_THE_OUTPUT,
    Identified,
    deviations_of,
    identify_by_output,
    patches_of,
)
from encoder_conformance.diagnosis.match import Match
from encoder_conformance.judging.observation import Observation
from encoder_conformance.judging.records import Claim, StageEquation
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.case_parameters import CaseParameters
from encoder_conformance.spec.size import is_large

Ask = Callable[[Sequence[Case]], list[Observation]]
"""Cases → what the implementation gives, in their order; [] where it cannot be asked."""
_HOW = (claim("by-experiments"), OF_THE_OUTPUT)
_CASES = 4
"""Cases that each experiment is made of."""


@dataclass(frozen=True)
class Experiment:
    """Parameters to set to 0, whose names begin with one of `zero`, and what the output `shows` then."""

    name: str
    zero: tuple[str, ...]
    shows: str

    def of(self, case: Case) -> Case:
        """Return the case with these parameters 0, asked for its output alone."""
        tensors = {
            name: np.zeros_like(value) if name.startswith(self.zero) else value
            for name, value in case.parameters().items()
        }
        update = {"situation": f"{case.situation.situation}-{self.name}", "checks": ("output",), "equals": None}
        return replace(case, situation=case.situation.model_copy(update=update), held=CaseParameters.of(tensors))


EXPERIMENTS = (
    Experiment("without-attention", ("attention.output",), "the feed-forward network, norms and residuals"),
    Experiment(
        "without-scores",
        ("attention.query", "feed_forward.output"),
        "values and their sum, where all keys weigh the same and the feed-forward network adds nothing",
    ),
    Experiment("without-feed-forward", ("feed_forward.output",), "the attention, norms and residuals"),
)
"""In the order in which each shows little beyond what those before it showed."""


def experiments(evidence: Sequence[Evidence], ask: Ask) -> dict[Experiment, list[Evidence]]:
    """Return what each experiment shows; {} where nothing can be asked."""
    chosen = list(_chosen(evidence))
    asked = {experiment: [experiment.of(piece.observation.case) for piece in chosen] for experiment in EXPERIMENTS}
    answers = ask([case for cases in asked.values() for case in cases])
    pieces_of = {answer.case.id: Evidence(answer) for answer in answers}
    by_case = {name: piece for name, piece in pieces_of.items() if np.isfinite(piece.observed).any()}  # 0 / 0 of zeros
    found = {each: [by_case[case.id] for case in cases if case.id in by_case] for each, cases in asked.items()}
    return {experiment: pieces for experiment, pieces in found.items() if pieces}


def identify_by_experiments(
    evidence: Sequence[Evidence], asked: Mapping[Experiment, Sequence[Evidence]], until: float | None
) -> Identified | None:
    """Identify the equations of wrong steps, one an experiment, and one more that the cases themselves show; None where
    nothing was `asked`."""
    if not asked:
        return None
    found, claims, every = list[StageEquation](), list[Claim](), list[Evidence]()
    chosen = list(_chosen(evidence))
    for experiment, pieces in asked.items():
        every += pieces
        seen = _seen(found, pieces)
        said = partial(claim, cases=len(pieces), shows=experiment.shows, experiment=experiment.name)
        if seen.explains:
            claims.append(said("in-line-alone", seen.rms))
            continue
        more = _one_more(pieces, found, until, [*every, *chosen])
        claims.append(said("out-of-line-alone", seen.rms))
        if not more:
            return Identified(left=("output",) if found else (), observed=tuple(claims))
        found += more
    if not _explains(found, chosen):
        found += _one_more(chosen, found, until)
    if not found or not _explains(found, [*every, *chosen]):
        return Identified(observed=tuple(claims))
    return Identified(tuple(found), observed=_HOW)


def _chosen(evidence: Sequence[Evidence]) -> Iterator[Evidence]:
    """Yield small cases that show their output alone, free of padding: of each layer and size one with a mask, one
    without."""
    seen = set[tuple[str, bool, tuple[int, ...]]]()
    for piece in evidence:
        case = piece.case
        kind = case.layer.layer, case.mask() is not None, case.x_shape[:2]
        plain = piece.stages == ("output",) and not is_large(case.layer) and not case.layer.is_stack
        if plain and case.layer.embedding is None and case.valid().all() and kind not in seen and len(seen) < _CASES:
            seen.add(kind)
            yield piece


def _explains(found: Sequence[StageEquation], pieces: Sequence[Evidence]) -> bool:
    return _seen(found, pieces).explains


def _seen(found: Sequence[StageEquation], pieces: Sequence[Evidence]) -> Match:
    return Match.of(deviations_of(patches_of(found)), pieces, measured=bool(found))


def _reaches_the_output(sample: OutputSample) -> bool:
    """Whether the output is another where the stage is: not where what follows it is switched off."""
    text = sample.specified.text
    right, other = (sample.computed(parsed(each)) for each in (text, f"({text}) + cos(index({text}, -1))"))
    return right is None or other is None or not np.array_equal(right, other, equal_nan=True)


def _one_more(
    pieces: Sequence[Evidence], found: Sequence[StageEquation], until: float | None, whole: Sequence[Evidence] = ()
) -> list[StageEquation]:
    """Identify one wrong step more, beside those that were found, with which all of these outputs are in line.

    A part of the layer may not say which of several it is. Then it is the one with which the `whole` is in line, if
    nothing else is wrong.
    """
    known = patches_of(found)
    by_stage = {
        stage: samples
        for stage, samples in output_samples(pieces, known).items()
        if stage not in known and any(map(_reaches_the_output, samples))
    }
    beside = output_samples(whole, known)

    def accepts(equations: Sequence[StageEquation]) -> bool:
        return _explains([*found, *equations], pieces)

    def prefers(equations: Sequence[StageEquation]) -> bool:
        near = all(gives(parsed(each.found), each.specified, beside.get(each.stage, ())) for each in equations)
        return near and _explains([*found, *equations], whole)

    return identify_by_output(by_stage, until, known, accepts, prefers, beside)
