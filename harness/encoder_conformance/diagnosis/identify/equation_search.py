"""Finds the equation of a stage: the nearest to the specified one that gives what was observed."""

import ast
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from encoder_conformance.diagnosis.identify.edits import activations, edits, normalisations, parsed, positional_scores
from encoder_conformance.diagnosis.identify.fitted_numbers import (
    STARTS,
    fitted,
    has_constant,
    summed,
    with_constant,
    written,
)
from encoder_conformance.diagnosis.identify.samples import Sample, cost, largest_rms
from encoder_conformance.diagnosis.identify.suggested import (
    equation_in_slices,
    is_linear,
    linear_maps,
    rearrangements,
    restricted_to,
    wrong_slices,
)
from encoder_conformance.spec.plan import MAKING, form_of

_FIT = 6
"""Evaluations that fitting a number takes the time of, about."""
_SCREENING = 2
"""Cases that every equation is tried on; those that are near are tried on all."""
_BEAM = 8
"""Equations with one edit that a second one is tried on: those that leave least."""
_ENOUGH = 8
"""Numbers, and not NaN, that have to bear an equation out."""
_OF_SLICES = 4
"""Equations with which wrong slices alone are tried: those that leave least there."""
_NEAR = 50.0
"""The rms error, in σ of the specified step, up to which a wrong step's own noise may be all that is left."""
_EDITS = 2
"""Places in which an equation may differ from the specified one."""
_ALIKE = 0.1
"""Differences of the cost within which the plainer of two equations is meant."""


@dataclass
class Effort:
    """The limits of a search: `left` evaluations of an equation, on any machine, and no further than the time `until`,
    by time.monotonic(), if the user set one."""

    left: int
    until: float | None = None

    def spend(self, evaluations: int) -> bool:
        """Whether there was that much left; if not, the search ends with what it has."""
        self.left -= evaluations
        return self.left >= 0 and (self.until is None or time.monotonic() < self.until)

    @property
    def is_over(self) -> bool:
        return not self.spend(0)


@dataclass(frozen=True)
class EquationCandidate:
    """An equation, and what it leaves of what was observed: its `cost`, mean log(1 + error²) in σ."""

    tree: ast.expr
    cost: float

    @property
    def text(self) -> str:
        return ast.unparse(self.tree)

    @property
    def length(self) -> int:
        return sum(1 for _ in ast.walk(self.tree))


def nearest_equations(stage: str, samples: Sequence[Sample], effort: Effort) -> list[EquationCandidate]:
    """Return the equations, nearest first, with which every case is in line but for the noise of the wrong step itself.

    `samples` specify the same equation. Where the effort is spent the search ends with what it has.
    """
    specified = samples[0].specified.tree
    if not has_numbers(samples):
        return []
    screened = _informative(samples)
    tried = {ast.unparse(specified)}
    beam = [EquationCandidate(specified, cost(screened, specified))]
    for _ in range(_EDITS):
        found: list[EquationCandidate] = []
        for start in beam:
            others = list(neighbours(stage, start.tree, samples[0]))
            others += _of_a_sum(start, samples[0], screened)
            others += rearrangements(start.tree, screened[0])
            found += _scored(others, screened, tried, effort)
            if effort.is_over:
                break
        if start.tree is specified:
            of_data = [
                *(linear_maps(samples) if is_linear(specified) else ()),
                *_slice_equations(stage, samples, effort),
            ]
            found += _scored(of_data, screened, tried, effort)
        found.sort(key=lambda one: (one.cost, one.length))
        if right := _near_enough(found, samples):
            return right
        beam = [one for one in found if one.cost < beam[0].cost][:_BEAM]
    return []


def has_numbers(samples: Sequence[Sample]) -> bool:
    """Whether there are numbers to hold an equation to: any that gives NaN everywhere accounts for NaN everywhere."""
    return sum(int(np.isfinite(sample.observed).sum()) for sample in samples) >= _ENOUGH


def _slice_equations(stage: str, samples: Sequence[Sample], effort: Effort) -> Iterator[ast.expr]:
    """Yield equations that differ from the specified one in some slices of an axis alone."""
    specified = samples[0].specified.tree
    for slices in wrong_slices(specified, samples):
        there = [part for sample in samples if (part := restricted_to(slices, sample)) is not None]
        screened = _informative(there)
        found = _scored(neighbours(stage, specified, samples[0]), screened, {ast.unparse(specified)}, effort)
        for one in sorted(found, key=lambda one: (one.cost, one.length))[:_OF_SLICES]:
            yield equation_in_slices(slices, one.tree, specified, samples)


def _informative(samples: Sequence[Sample]) -> list[Sample]:
    """Choose cases of different masks, those that are furthest out of line first."""
    out = sorted(samples, key=lambda sample: -cost([sample], sample.specified.tree))
    with_mask = [sample for sample in out if sample.evidence.case.mask() is not None]
    first = with_mask[:1] + [sample for sample in out if sample not in with_mask[:1]]
    return first[:_SCREENING]


def neighbours(stage: str, tree: ast.expr, sample: Sample) -> Iterator[ast.expr]:
    """Yield equations one edit away, and the activations or norms that may stand in the place of the whole."""
    shapes = {name: value.shape for name, value in sample.operands.values.items()}
    yield from edits(tree, shapes, sample.stage_shape)
    if form_of(stage) == "activation":
        yield from activations(*MAKING[stage].reads)
    if form_of(stage) == "scores":
        yield from positional_scores(tree)
    if form_of(stage) == "norm":
        named = sorted(name for name in sample.specified.names if "." not in name)
        for source in (name for name in named if shapes.get(name) == sample.stage_shape):
            yield from normalisations(source, f"{stage}.gain", f"{stage}.shift")


def with_number(
    tree: ast.expr, samples: Sequence[Sample], starts: Sequence[float] = STARTS, enough: float = np.inf
) -> EquationCandidate | None:
    """Put the number that leaves least in the place of `c`, written as plainly as that allows. It may be None where
    that leaves a cost of `enough`."""
    number = fitted(samples, tree, starts, enough)
    if number is None:
        return None
    forms = [with_constant(tree, form) for form in written(number)]
    costs = [cost(samples, form) for form in forms]
    plainest = next(at for at, each in enumerate(costs) if each <= min(costs) + _ALIKE)
    return EquationCandidate(forms[plainest], costs[plainest])


def _scored(
    trees: Iterable[ast.expr], screened: Sequence[Sample], tried: set[str], effort: Effort
) -> list[EquationCandidate]:
    found = []
    for tree in trees:
        text = ast.unparse(tree)
        if text in tried:
            continue
        tried.add(text)
        if not effort.spend(_FIT if has_constant(tree) else 1):
            break
        found.append(
            with_number(tree, screened) if has_constant(tree) else EquationCandidate(tree, cost(screened, tree))
        )
    return [one for one in found if one is not None and np.isfinite(one.cost)]


def _of_a_sum(start: EquationCandidate, sample: Sample, screened: Sequence[Sample]) -> Iterator[ast.expr]:
    """Yield the terms of a sum with other coefficients, all at once; and with one more term of the same shape."""
    terms = list(_terms(start.tree))
    others = [parsed(name) for name, value in sample.operands.values.items() if value.shape == sample.shape]
    for more in ([], *([other] for other in others if ast.unparse(other) not in map(ast.unparse, terms))):
        numbers = summed(screened, [*terms, *more])
        if numbers and len(terms) + len(more) > 1:
            factors = [next(written(number)) for number in numbers]
            named = zip(factors, [*terms, *more], strict=True)
            kept = [_times(factor, ast.unparse(term)) for factor, term in named if factor != "0"]
            if kept:
                yield parsed(" + ".join(kept))


def _times(factor: str, term: str) -> str:
    return term if factor == "1" else f"{factor} * ({term})" if "+" in term else f"{factor} * {term}"


def _terms(tree: ast.expr) -> Iterator[ast.expr]:
    match tree:
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            yield from _terms(left)
            yield from _terms(right)
        case _:
            yield tree


def _near_enough(found: Sequence[EquationCandidate], samples: Sequence[Sample]) -> list[EquationCandidate]:
    """Return those near enough to be tried in their own noise, the plainest first of those that leave the same."""
    near = [one for one in found[: 4 * _BEAM] if largest_rms(samples, one.tree) < _NEAR]
    if not near:
        return []
    least = min(one.cost for one in near)
    return sorted(near, key=lambda one: (one.cost > least + _ALIKE, one.length, one.cost))[:_BEAM]
