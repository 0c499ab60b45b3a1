"""Fits the number in an equation to the data, by least squares, and writes it as someone would have written it."""

import ast
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from encoder_conformance.diagnosis.identify.edits import CONSTANT, parsed
from encoder_conformance.diagnosis.identify.samples import StepSample, cost
from encoder_conformance.oracle.equation import parts_of
from encoder_conformance.spec.axes import Array

_GRID = tuple(sign * 10.0**exponent for exponent in np.arange(-12.0, 7.0, 1.0) for sign in (1.0, -1.0))
"""Where a number that the data are not linear in is looked for first."""
_NEAR = tuple(sign * at for at in np.arange(0.0, 10.25, 0.25) for sign in (1.0, -1.0))
STARTS = (*_GRID, *_NEAR)
_STEPS = 12
_STALLED = 2
"""Steps that leave more than half of the square error, far from the noise, after which no more are taken."""
_FAR = 100.0
"""The rms error, in σ, above which an equation is not the right one, whatever its number."""
_FURTHER = 4.0
"""Cost by which a start may leave more than the specified equation does: where that is a curve near to the right one,
as one activation is to another, the right one with another number is further away."""
_SMALL = 1e-6
"""The relative step that a derivative is taken over."""
SURE = 6.0
"""Uncertainties within which a fitted number is the one that someone wrote."""
_MEASURABLE = 0.1
"""The relative uncertainty up to which there is a number to tell."""


@dataclass(frozen=True)
class Number:
    """A fitted number, and its standard uncertainty."""

    value: float
    uncertainty: float


@dataclass(frozen=True)
class Limits:
    """Where a number is looked for that the data are not linear in: from the one of the `starts` that leaves least of
    the first case, if that is not far more than `before`; and the best one may leave `enough`. Both are costs."""

    starts: Sequence[float] = STARTS
    before: float = np.inf
    enough: float = np.inf


def fitted(samples: Sequence[StepSample], tree: ast.expr, limits: Limits) -> Number | None:
    """Return the value of `c` that leaves the least square error; None if there is none, or the data say nothing of it,
    or it is not within the limits."""
    return fitted_and_first(samples, tree, limits)[0]


def fitted_and_first(samples: Sequence[StepSample], tree: ast.expr, limits: Limits) -> tuple[Number | None, bool]:
    """Return the same, and whether the first case by itself may have one."""
    first = samples[:1]
    start, moves = _linear(first, tree)
    if start is None and moves:
        begin = _best_start(first, tree, limits)
        alone = None if begin is None else _refined(first, tree, begin)
        if alone is None or len(samples) == 1:
            return alone, alone is not None
        start = alone.value
    if start is not None and limits.enough < np.inf and cost(first, tree, start) > limits.enough:
        return None, False
    linear, _ = _linear(samples, tree)
    start = start if linear is None else linear
    return (None if start is None else _refined(samples, tree, start)), True


def _best_start(first: Sequence[StepSample], tree: ast.expr, limits: Limits) -> float | None:
    """Return the start that leaves least of the first case; None where even that is more than the limits allow."""
    tried = [*zip(first[0].costs(tree, limits.starts), limits.starts, strict=True)]
    least = min(tried)[0]
    if not np.isfinite(least) or least > limits.before + _FURTHER:
        return None
    return next(value for left, value in tried if left <= least * (1 + 1e-6) + 1e-12)  # of two signs the plus


def _refined(samples: Sequence[StepSample], tree: ast.expr, value: float) -> Number | None:
    """Return the value of `c` with the least square error that Gauss and Newton's steps come to from this one."""
    least, stalled, uncertainty = np.inf, 0, np.inf
    for _ in range(_STEPS):
        solved = _step(samples, tree, value)
        if solved is None:
            return None
        step, uncertainty, left = solved
        stalled += left > max(least / 2, _FAR**2)
        least = min(least, left)
        if stalled > _STALLED:
            break
        limit = abs(value) if value else 1.0
        value += float(np.clip(step, -limit, limit))
        if abs(step) <= 0.01 * uncertainty:
            break
    if uncertainty >= _MEASURABLE * max(abs(value), 1e-3):
        return None
    return Number(value, uncertainty * math.sqrt(max(left, 1.0)))  # what else is wrong makes it less sure


def _linear(samples: Sequence[StepSample], tree: ast.expr) -> tuple[float | None, bool]:
    """Return the solution where values are linear in `c`, as three of its values show, else None; and whether they
    move with `c` at all."""
    along, length = 0.0, 0.0
    for sample in samples:
        at = sample.computed_of([(tree, value) for value in (0.0, 1.0, 3.0)])
        if any(each is None or not np.isfinite(each).all() for each in at):
            return None, True
        zero, one, three = (np.asarray(each) for each in at)
        slope = one - zero
        if np.abs(three - zero - 3.0 * slope).max(initial=0.0) > 1e-9 * np.abs(slope).max(initial=0.0):
            return None, True
        weight = 1.0 / sample.sigma**2
        finite = np.isfinite(sample.observed)
        along += float(np.sum((weight * slope * (sample.observed - zero))[finite]))
        length += float(np.sum((weight * slope * slope)[finite]))
    return (along / length, True) if length else (None, False)


def _step(samples: Sequence[StepSample], tree: ast.expr, value: float) -> tuple[float, float, float] | None:
    """Return Gauss and Newton's step from a value, the uncertainty there, and the mean square error."""
    along, length, square, count = 0.0, 0.0, 0.0, 0
    width = _SMALL * (abs(value) or 1.0)
    for sample in samples:
        error, above, below = sample.errors_of([(tree, at) for at in (value, value + width, value - width)])
        if error is None or above is None or below is None:
            return None
        slope = (above - below) / (2 * width)
        along, length = along - float(slope @ error), length + float(slope @ slope)
        square, count = square + float(error @ error), count + error.size
    return (along / length, 1.0 / math.sqrt(length), square / count) if length and np.isfinite(along) else None


def summed(samples: Sequence[StepSample], terms: Sequence[ast.expr]) -> list[Number] | None:
    """Return the coefficients of a sum that leave the least square error; None where they are not unique."""
    columns, observed = list[Array](), list[Array]()
    for sample in samples:
        values = [sample.computed(term) for term in terms]
        if any(value is None or not np.isfinite(value).all() for value in values):
            return None
        finite = np.isfinite(sample.observed)
        columns.append(np.stack([np.asarray(value) / sample.sigma for value in values], axis=1)[finite])
        observed.append((sample.observed / sample.sigma)[finite])
    design = np.concatenate(columns)
    scale = np.sqrt((design * design).sum(axis=0))
    if not np.all(scale) or len(design) <= len(terms):
        return None
    gram = (design / scale).T @ (design / scale)
    if not np.isfinite(gram).all() or np.linalg.cond(gram) > 1e10:
        return None
    inverse = np.linalg.inv(gram)
    solved = inverse @ ((design / scale).T @ np.concatenate(observed)) / scale
    unsure = np.sqrt(np.diag(inverse)) / scale
    return [Number(float(value), float(one)) for value, one in zip(solved, unsure, strict=True)]


def written(number: Number) -> Iterator[str]:
    """Yield how someone may have written it: the plainest first, and as it was measured last."""
    for text, value in _PLAIN.items():
        if abs(value - number.value) <= max(SURE * number.uncertainty, 1e-12 * abs(number.value)):
            yield text
    for digits in range(1, 5):
        text = f"{number.value:.{digits - 1}e}"
        if abs(float(text) - number.value) <= SURE * number.uncertainty:
            yield f"{float(text):g}"
            break
    yield f"{number.value:.9g}"


_PLAIN = {
    "0": 0.0,
    **{str(sign * number): float(sign * number) for number in (1, 2, 3, 4, 5, 6, 8, 10, 16, 100) for sign in (1, -1)},
    **{"0.5": 0.5, "-0.5": -0.5, "0.25": 0.25, "1 / 3": 1 / 3, "2 / 3": 2 / 3, "1 / 6": 1 / 6, "pi": math.pi},
    **{"sqrt(2)": math.sqrt(2), "1 / sqrt(2)": math.sqrt(0.5), "sqrt(2 / pi)": math.sqrt(2 / math.pi)},
    **{"log(2)": math.log(2), "1 / log(2)": 1 / math.log(2)},
}
"""Numbers that people write otherwise than as a short decimal, and whole ones."""


def with_constant(tree: ast.expr, text: str) -> ast.expr:
    """Return the tree with this in the place of `c`."""
    return parsed(re.sub(rf"\b{CONSTANT}\b", f"({text})", ast.unparse(tree)))


@lru_cache(maxsize=8192)
def has_constant(tree: ast.expr) -> bool:
    return (isinstance(tree, ast.Name) and tree.id == CONSTANT) or any(map(has_constant, parts_of(tree)))
