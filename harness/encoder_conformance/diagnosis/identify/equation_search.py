"""Finds the equation of a stage: the nearest to the specified one that gives what was observed."""

import ast
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from encoder_conformance.diagnosis.identify.edits import (
    CONSTANT,
    edits,
    in_forms,
    is_held_by,
    normalisations,
    parsed,
)
from encoder_conformance.diagnosis.identify.fitted_numbers import (
    Limits,
    fitted_and_first,
    has_constant,
    summed,
    with_constant,
    written,
)
from encoder_conformance.diagnosis.identify.forms import OF_SCORES
from encoder_conformance.diagnosis.identify.quantities import IN_LINE, sized
from encoder_conformance.diagnosis.identify.roundings import roundings
from encoder_conformance.diagnosis.identify.samples import StepSample, cost, largest_rms
from encoder_conformance.diagnosis.identify.suggested import (
    equation_in_slices,
    is_linear,
    linear_maps,
    rearrangements,
    restricted_to,
    terms_before,
    wrong_slices,
)
from encoder_conformance.oracle.equation import structure
from encoder_conformance.oracle.functions_of_one import FUNCTIONS_OF_ONE
from encoder_conformance.spec.equation import dotted
from encoder_conformance.spec.load import constants
from encoder_conformance.spec.stages import reads_of
from encoder_conformance.spec.steps import form_of

_TOGETHER = 32
"""Equations that are computed together."""
_SCREENING = 2
"""Cases that every equation is tried on; those that are near are tried on all."""
_BEAM = 8
"""Equations with one edit that a second one is tried on: those that leave least."""
_ENOUGH = 8
"""Numbers, and not NaN, that have to bear an equation out."""
_ROUNDED = 1.0
"""The cost that a step's own noise leaves where it rounds: that of one σ, and of some values that are rounded to the
other side."""
_OF_SLICES = 4
"""Equations with which wrong slices alone are tried: those that leave least there."""
_MOST_OF_SLICES = 0.5
"""The part of the slices meant that has to show it."""
_NEAR = 50.0
"""The rms error, in σ of the specified step, up to which a wrong step's own noise may be all that is left."""
_EDITS = 2
"""Places in which an equation may differ from the specified one."""
_FARTHER = 2 * math.log(30)
"""The cost that a number may begin with beside that of the equation so far: thirty times its rms. Of two numbers that a
grid has, the right one may lie in the middle, and what it takes the place of be nearer than either."""
_NO_LIMITS = Limits()
_ALIKE = 0.1
"""Differences of the cost within which the plainer of two equations is meant."""


@dataclass
class Effort:
    """The limits of a search: `left` evaluations of an equation, on any machine, and no further than the time `until`,
    by time.monotonic(), if the user set one. `of_a_fit`: evaluations that fitting a number takes the time of, about."""

    left: int
    until: float | None = None
    of_a_fit: int = 6

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


def nearest_equations(stage: str, samples: Sequence[StepSample], effort: Effort) -> list[EquationCandidate]:
    """Return the equations, nearest first, with which every case is in line but for the noise of the wrong step itself.

    `samples` specify the same equation. Where the effort is spent the search ends with what it has.
    """
    specified, fullest = samples[0].specified.tree, _fullest(samples)
    if not has_numbers(samples):
        return []
    if rounded := rounded_forms(samples):
        return rounded
    screened = _informative(samples)
    tried = {structure(specified)}
    beam = [EquationCandidate(specified, cost(screened, specified))]
    for _ in range(_EDITS):
        found: list[EquationCandidate] = []
        for start in beam:
            others = list(neighbours(stage, start.tree, fullest))
            others += _of_a_sum(start, fullest, screened)
            others += _of_one_term(start.tree, fullest) if start.tree is specified else ()
            others += rearrangements(start.tree, screened[0])
            left = cost(screened[:1], start.tree)
            found += scored(others, screened, tried, effort, Limits(before=left + _FARTHER, enough=left))
            if effort.is_over:
                break
        if start.tree is specified:
            of_data = [
                *((*linear_maps(samples), *terms_before(samples)) if is_linear(specified) else ()),
                *_slice_equations(stage, samples, effort),
            ]
            found += scored(of_data, screened, tried, effort)
        found.sort(key=lambda one: (one.cost, one.length))
        if right := _near_enough(found, samples):
            return right
        beam = [*{round(one.cost, 6): one for one in reversed(found) if one.cost < beam[0].cost}.values()][::-1][:_BEAM]
    return []


def rounded_forms(
    samples: Sequence[StepSample], forms: Callable[[ast.expr], Iterable[ast.expr]] = roundings
) -> list[EquationCandidate]:
    """Return those `forms` of the specified equation in a narrower format that give the observed values, and not
    their size alone: the plainest first of those that leave the same; [] where it gives them as it is."""
    specified = samples[0].specified.tree
    if all(cost([sample], specified) < IN_LINE for sample in samples):
        return []
    given = (tree for tree in forms(specified) if all(cost([sample], tree) < _ROUNDED for sample in samples))
    found = [EquationCandidate(tree, cost(samples, tree)) for tree in given]
    return sorted(found, key=lambda one: (round(one.cost, 1), one.length))


def _fullest(samples: Sequence[StepSample]) -> StepSample:
    """Return a case that has most operands: a bias of the scores is given in some of them alone."""
    return max(samples, key=lambda sample: len(sample.operands.values))


def has_numbers(samples: Sequence[StepSample]) -> bool:
    """Whether there are numbers to hold an equation to: any that gives NaN everywhere accounts for NaN everywhere."""
    return sum(int(np.isfinite(sample.observed).sum()) for sample in samples) >= _ENOUGH


def _slice_equations(stage: str, samples: Sequence[StepSample], effort: Effort) -> Iterator[ast.expr]:
    """Yield equations that differ from the specified one in some slices of an axis alone."""
    specified = samples[0].specified.tree
    for slices in wrong_slices(specified, samples, _MOST_OF_SLICES):
        there = [part for sample in samples if (part := restricted_to(slices, sample)) is not None]
        screened = _informative(there)
        found = scored(neighbours(stage, specified, _fullest(samples)), screened, {structure(specified)}, effort)
        for one in sorted(found, key=lambda one: (one.cost, one.length))[:_OF_SLICES]:
            yield equation_in_slices(slices, one.tree, specified, samples)


def _informative(samples: Sequence[StepSample]) -> list[StepSample]:
    """Choose one case with a mask and one of other sizes, of those that are out of line where there are, and those that
    are furthest first: what is wrong behind the last whole block is right in a length of whole blocks."""
    costs = [cost([sample], sample.specified.tree) for sample in samples]
    out = [sample for _, sample in sorted(zip(costs, samples, strict=True), key=lambda one: -one[0])]
    wrong = [sample for sample in out if largest_rms([sample], sample.specified.tree) > constants().rms_limit] or out
    first = next((sample for sample in wrong if sample.has_mask), wrong[0])
    left = [each for each in wrong if each is not first] or [each for each in out if each is not first]
    others = sorted(left, key=lambda each: sizes_shared(each, first))
    chosen = [first, *others[: _SCREENING - 1]]
    return [each for each in out if any(each is one for one in chosen)]


def sizes_shared(one: StepSample, other: StepSample) -> int:
    """Return how many of their sizes two cases have in common: of items and of positions."""
    sizes = zip(one.sizes, other.sizes, strict=True)
    return sum(mine == others for mine, others in sizes)


def neighbours(
    stage: str, tree: ast.expr, sample: StepSample, factors: Sequence[str] = (CONSTANT,)
) -> Iterator[ast.expr]:
    """Yield equations one edit away, and the activations or norms that may stand in the place of the whole. `factors`
    are those of `edits`."""
    shapes = {name: value.shape for name, value in sample.operands.values.items()}
    yield from edits(tree, sample.operands, sample.stage_shape, factors)
    if form_of(stage) == "activation":
        yield from in_forms(FUNCTIONS_OF_ONE, *reads_of(stage, sample.operands.layer))
    if form_of(stage) == "scores":
        yield from in_forms(OF_SCORES, f"({ast.unparse(tree)})")
    if form_of(stage) == "norm":
        named = sorted(name for name in sample.specified.names if "." not in name)
        for source in (name for name in named if shapes.get(name) == sample.stage_shape):
            yield from normalisations(source, f"{stage}.gain", f"{stage}.shift")


def with_number(tree: ast.expr, samples: Sequence[StepSample], limits: Limits) -> Iterator[EquationCandidate]:
    """Yield the equation with the number that leaves least in the place of `c`, written as plainly as that allows; and
    with a size, where each case has a number of its own. Nothing that is not within the limits."""
    (number, of_first), left = fitted_and_first(samples, tree, limits), np.inf
    if number is not None:
        forms = [with_constant(tree, form) for form in written(number)]
        costs = _costs(samples, forms)
        plainest = next(at for at, each in enumerate(costs) if each <= min(costs) + _ALIKE)
        left = costs[plainest]
        yield EquationCandidate(forms[plainest], left)
    if of_first and left > IN_LINE and len(samples) > 1:
        forms = [with_constant(tree, text) for text in sized(samples, tree, limits)]
        yield from map(EquationCandidate, forms, _costs(samples, forms))


def _costs(samples: Sequence[StepSample], trees: Sequence[ast.expr]) -> list[float]:
    """Return `cost` of each tree, all computed together."""
    every = [sample.costs_of([(tree, None) for tree in trees]) for sample in samples]
    return [sum(costs) / len(samples) for costs in zip(*every, strict=True)]


def scored(
    trees: Iterable[ast.expr],
    samples: Sequence[StepSample],
    tried: set[int],
    effort: Effort,
    limits: Limits = _NO_LIMITS,
) -> list[EquationCandidate]:
    """Return the equations that were not `tried` and can be computed, until the effort is spent, but for those that
    leave more than enough of the first case."""
    found, left = list[EquationCandidate](), _untried(trees, tried, effort)
    while some := [*islice(left, _TOGETHER)]:
        first = iter(samples[0].costs_of([(tree, None) for tree in some if not has_constant(tree)]))
        for tree in some:
            if has_constant(tree):
                found += with_number(tree, samples, limits)
            elif (of_first := next(first)) <= limits.enough:
                others = cost(samples[1:], tree) * (len(samples) - 1) if len(samples) > 1 else 0.0
                found.append(EquationCandidate(tree, (of_first + others) / len(samples)))
    return [one for one in found if np.isfinite(one.cost)]


def _untried(trees: Iterable[ast.expr], tried: set[int], effort: Effort) -> Iterator[ast.expr]:
    """Yield the trees that were not `tried`, until the effort is spent."""
    for tree in trees:
        if structure(tree) in tried:
            continue
        tried.add(structure(tree))
        if not effort.spend(effort.of_a_fit if has_constant(tree) else 1):
            return
        yield tree


def _of_a_sum(start: EquationCandidate, sample: StepSample, screened: Sequence[StepSample]) -> Iterator[ast.expr]:
    """Yield the terms of a sum with other coefficients, all at once; and with one more term of the same shape."""
    terms = list(_terms(start.tree))
    others = [name for name in sample.operands_of_its_shape if name not in map(ast.unparse, terms)]
    for more in ([], *([parsed(other)] for other in others)):
        numbers = summed(screened, [*terms, *more])
        if numbers and len(terms) + len(more) > 1:
            factors = [next(written(number)) for number in numbers]
            named = zip(factors, [*terms, *more], strict=True)
            kept = [_times(factor, ast.unparse(term)) for factor, term in named if factor != "0"]
            if kept:
                yield parsed(" + ".join(kept))


def _of_one_term(tree: ast.expr, sample: StepSample) -> Iterator[ast.expr]:
    """Yield what one operand of a sum alone may be mistaken for, where the others are left out."""
    terms = [term for term in _terms(tree) if dotted(term) in sample.operands_of_its_shape]
    for term in terms if len(terms) > 1 else ():
        yield from edits(term, sample.operands, sample.stage_shape)


def _times(factor: str, term: str) -> str:
    return term if factor == "1" else f"{factor} * ({term})" if "+" in term else f"{factor} * {term}"


def _terms(tree: ast.expr) -> Iterator[ast.expr]:
    match tree:
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            yield from _terms(left)
            yield from _terms(right)
        case _:
            yield tree


def _near_enough(found: Sequence[EquationCandidate], samples: Sequence[StepSample]) -> list[EquationCandidate]:
    """Return those near enough to be tried in their own noise, the plainest first of those that leave the same."""
    near = [one for one in found[: 4 * _BEAM] if is_near(one.tree, samples, _NEAR)]
    if not near:
        return []
    least = min(one.cost for one in near)
    return sorted(near, key=lambda one: (one.cost > least + _ALIKE, one.length, one.cost))[:_BEAM]


def is_near(tree: ast.expr, samples: Sequence[StepSample], near: float) -> bool:
    """Whether an equation leaves no more than `near`, rms in σ, of any case, and rests on no operand that none has.

    What rounds in steps may leave a whole step here and there: not its rms is asked, but its cost.
    """
    if not is_held_by(tree, {name for sample in samples for name in sample.operands.values}):
        return False
    if {"round", "cast"} & {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}:
        return all(cost([sample], tree) < IN_LINE for sample in samples)
    return largest_rms(samples, tree) < near
