"""Distances in σ: between two arrays, of one tensor, and of a hypothesis from what was observed, stage by stage."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from encoder_conformance.oracle.expected import ExpectedTensor
from encoder_conformance.spec.axes import Array, Bools, Elementwise
from encoder_conformance.spec.dtypes import Format
from encoder_conformance.spec.load import constants

UNCOMPARABLE = 1e30
"""The error, in σ, of a tensor that cannot be compared: worse than anything that can. An error of the size of its value
is 1e16 σ of float64, so that two of different sizes are told apart."""


def in_sigma(one: Elementwise, other: Elementwise, sigma: Elementwise) -> Elementwise:
    """Return (one − other) / σ; 0 where both are NaN, or infinite alike, and infinite where only one of them is."""
    finite = np.isfinite(one) & np.isfinite(other)
    same = (np.isnan(one) & np.isnan(other)) | (one == other)
    with np.errstate(all="ignore"):
        return np.where(finite, (one - other) / sigma, np.where(same, 0.0, np.inf))


def in_sigma_if_finite(one: Elementwise, other: Elementwise, sigma: Elementwise) -> Elementwise:
    """Return (one − other) / σ; 0 where neither is finite, and infinite where only one of them is."""
    finite, other_finite = np.isfinite(one), np.isfinite(other)
    with np.errstate(invalid="ignore", over="ignore"):
        found = np.where(finite & other_finite, (one - other) / sigma, 0.0)
    found[finite != other_finite] = np.inf
    return found


def rms(errors: Array) -> float:
    """Return the root mean square of all elements, in their unit; 0 of none."""
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.sqrt(np.mean(errors * errors))) if errors.size else 0.0


def conforms(errors: Array) -> bool:
    """Whether a tensor with these errors, in σ, conforms (rule J-4)."""
    return rms(errors) <= constants().rms_limit and float(np.abs(errors).max()) <= constants().max_limit


def held(errors: Iterable[Array]) -> float | None:
    """Return the largest rms of tensors with these errors, in σ; None unless there is one, and each conforms."""
    every = [each for each in errors if each.size]
    return max(map(rms, every)) if every and all(map(conforms, every)) else None


def sigma_of(tensor: ExpectedTensor, dtype: Format) -> Array:
    """Return σ of a right tensor, in its shape; NaN where it is not compared."""
    sigma = np.full(tensor.shape, np.nan)
    sigma.reshape(-1)[tensor.positions] = dtype.sigma(np.nan_to_num(tensor.condition))
    return sigma


def robust_cost(errors: Array) -> Array:
    """Return the mean of log(1 + error²) over the last axis, [..., n] → [...]: no one element decides it."""
    with np.errstate(over="ignore"):  # where σ is the least number of a format
        return np.asarray(np.mean(np.log1p(errors * errors), axis=-1))


@dataclass(frozen=True)
class StageErrors:
    """The errors of a hypothesis in one case, in σ: arrays have one entry for each stage.

    `rms` and `max` are of observed − predicted, `moved` is the rms of predicted − right, and `scatter` that of the
    predicted values among themselves, of which `least` is that of the draw that scatters least. `touched`: the
    hypothesis changes anything there. `along` and `length` are the inner products, over all stages, of
    predicted − right with observed − right and with itself. `came_true` and `refuted` are the stages of which a
    hypothesis that is predicted in size only says more, rightly or wrongly (V-4); `in_values` those of the first whose
    very values were predicted; `alike` are those after its own steps that err as it predicts, value by value, and
    `unlike` those that do not.
    """

    rms: Array
    max: Array
    moved: Array
    scatter: Array
    least: Array
    touched: Bools
    along: float
    length: float
    came_true: frozenset[str] = frozenset()
    refuted: frozenset[str] = frozenset()
    in_values: frozenset[str] = frozenset()
    alike: frozenset[str] = frozenset()
    unlike: frozenset[str] = frozenset()
