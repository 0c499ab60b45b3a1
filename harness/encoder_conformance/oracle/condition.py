"""Goldens and conditions of a case: the right values, and the noise that one unit of roundoff makes there."""

from collections.abc import Container, Iterable, KeysView, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import sqrt

import numpy as np
import numpy.typing as npt

from encoder_conformance.oracle.arithmetic import Arithmetic, Rounded
from encoder_conformance.oracle.encoder import Evaluation, evaluate
from encoder_conformance.oracle.inputs import LayerInputs, given
from encoder_conformance.oracle.kinks import condition_at_kinks, kinked_rows
from encoder_conformance.spec.axes import Array, Elementwise, P
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.stages import LAST_AXIS_IS_KEYS, step_of

SAMPLE_ROUNDOFF = 2.0**-32
"""The u of the Monte-Carlo runs: far above float64's own noise, far below where noise stops being linear in u (C-2)."""

_RUNS_THROUGH_LARGEST = 16
_GRADIENT = "gradient."

MATTERS = 1.25
"""The factor by which noise may grow (C-6): `rms_limit` over a conforming implementation's largest error, 2 / 1.6."""


@dataclass(frozen=True)
class Expectation:
    """Golden and condition of every tensor of a case, keyed as goldens are: a stage's name, or "gradient.NAME".

    `kinked_rows` [n, 2] are the (item, position) pairs whose cotangent is zero (clause B-2).
    """

    golden: dict[str, Array]
    condition: dict[str, Array]
    kinked_rows: Array


def expectation(case: Case, runs: int, among: Container[str] | None = None, queries: P | None = None) -> Expectation:
    """Golden float64 (computed in long double) and condition κ, each in the tensor's own shape (C-1 to C-8).

    `among`: the keys that are wanted; None for all. `queries`: the positions whose output alone is; of others it is 0.
    κ = √(mean over runs of (disturbed − undisturbed)²) / u, smoothed along the features; larger where errors are few.
    """
    rows = kinked_rows(case)
    cotangent = case.cotangent(rows) if "gradients" in case.situation.checks else None
    inputs = replace(given(case), queries=queries)

    def evaluated(arithmetic: Arithmetic, inputs: LayerInputs) -> dict[str, Array]:
        every = _keyed(evaluate(case, arithmetic, cotangent, inputs))
        return every if among is None else {name: value for name, value in every.items() if name in among}

    def add(spread: Spread, runs: range, inputs: LayerInputs) -> None:
        for run in runs:
            disturbed = evaluated(Rounded(SAMPLE_ROUNDOFF, run), inputs)
            spread.add({name: disturbed[name] for name in spread.names})

    golden, undisturbed = (evaluated(Arithmetic(dtype), inputs) for dtype in (np.longdouble, np.float64))
    spread, few = Spread(undisturbed), min(runs, _RUNS_THROUGH_LARGEST)
    add(spread, range(few), inputs)
    of_few = spread.root_mean_squares()
    add(spread, range(few, runs), inputs)
    condition = spread.conditions()
    if cotangent is not None:
        through_largest = Spread({name: value for name, value in undisturbed.items() if name.startswith(_GRADIENT)})
        add(through_largest, range(few), replace(inputs, largest="shown"))
        others = through_largest.conditions()
        for name, other in through_largest.root_mean_squares().items():
            if matters(other, of_few[name]):
                condition[name] = np.fmax(condition[name], others[name])
    condition = condition_at_kinks(case.layer, undisturbed, condition)
    golden = {name: value.astype(np.float64) for name, value in golden.items()}
    if queries is not None:
        golden, condition = ({"output": _of_all(case, queries, each["output"])} for each in (golden, condition))
    return Expectation(golden, condition, rows)


def _of_all(case: Case, queries: P, values: Array) -> Array:
    """[B, R, D] at these positions as [B, S, D]; 0 at others."""
    whole = np.zeros(case.x_shape)
    whole[:, queries] = values
    return whole


def matters(other: Elementwise, condition: Elementwise) -> bool:
    """Whether an implementation with the noise `other` might not conform: its rms is `MATTERS` times as large (C-6)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = np.where(condition == other, 1.0, other / condition)
    return bool(np.sqrt(np.mean(quotient**2)) > MATTERS)


class Spread:
    """The displacement of each element by noise: the root of the mean square over the runs, in units of u (C-3).

    The displacement of a softmax weight of 1e-190 has a square below the smallest float64. Each row is therefore
    measured in a power of two of its own, and where the last axis counts keys each element: no other bit changes.
    """

    def __init__(self, undisturbed: Mapping[str, Array], roundoff: float = SAMPLE_ROUNDOFF) -> None:
        """`roundoff` is the size of the disturbances. Where it is that of a narrow format, noise is not proportional to
        it, and how runs differ does not tell how many errors are independent."""
        self._undisturbed, self._runs, self._roundoff = undisturbed, 0, roundoff
        self._errors: dict[str, list[Array]] = {name: [] for name in undisturbed}
        self._units = {name: _unit(name, value) for name, value in undisturbed.items()}
        self._squares = {name: np.zeros(value.shape) for name, value in undisturbed.items()}

    @property
    def names(self) -> KeysView[str]:
        return self._squares.keys()

    def add(self, disturbed: Mapping[str, Array]) -> None:
        """One run with disturbances."""
        self._runs += 1
        for name, value in disturbed.items():
            displaced = (value - self._undisturbed[name]) / self._units[name]
            self._squares[name] += (displaced / self._roundoff) ** 2
            if self._roundoff == SAMPLE_ROUNDOFF:
                self._errors[name].append(sampled(displaced) / self._roundoff)

    def add_each(self, runs: Iterable[Mapping[str, Array]]) -> None:
        for each in runs:
            self.add(each)

    def conditions(self) -> dict[str, Array]:
        """κ of every element: as `root_mean_squares`, and larger where a tensor's errors are few (C-8)."""
        return {name: self._widened(name) for name in self._squares}

    def _widened(self, name: str) -> Array:
        value = self._root_mean_square(name)
        numbers = independent_numbers(self._errors[name], sampled(value / self._units[name]))
        return np.asarray(value * widening(numbers))

    def root_mean_squares(self) -> dict[str, Array]:
        """The root mean square of every element over the runs, smoothed along the features (C-3)."""
        return {name: self._root_mean_square(name) for name in self._squares}

    def _root_mean_square(self, name: str) -> Array:
        return np.asarray(np.sqrt(_smoothed(name, self._squares[name] / self._runs)) * self._units[name])


def _unit(name: str, value: Elementwise) -> Elementwise:
    """The power of two just above each element where the last axis counts keys, and else above the largest of a row,
    whose elements are smoothed together; 1 for zero."""
    if step_of(name) not in LAST_AXIS_IS_KEYS:
        value = np.abs(value).max(-1, keepdims=True, initial=0.0)
    return np.where(value == 0, 1.0, np.ldexp(1.0, np.frexp(value)[1]))


def _keyed(evaluation: Evaluation) -> dict[str, Array]:
    return {**evaluation.stages, **{f"{_GRADIENT}{name}": value for name, value in evaluation.gradients.items()}}


def _smoothed(name: str, squares: Elementwise) -> Elementwise:
    """Mean of each element's square with its two neighbours', weights 1 2 1, along an axis of features (C-3)."""
    if step_of(name) in LAST_AXIS_IS_KEYS or squares.shape[-1] < 3:
        return squares
    padded = np.concatenate([squares[..., :1], squares, squares[..., -1:]], axis=-1)
    return np.asarray((padded[..., :-2] + 2 * padded[..., 1:-1] + padded[..., 2:]) / 4)


ENOUGH = 13
"""The root mean square of so many independent errors is above 2 σ, `rms_limit`, once in a million."""

ONCE_IN = 1e-6
_SAMPLED = 512
_GOLDEN_RATIO = 0.6180339887498949


def sampled(tensor: Elementwise) -> P:
    """At most 512 elements of a tensor of any shape, flat, spread over rows and columns: correlated errors show.

    Multiples of the golden ratio, modulo 1, times the size. A constant stride may be the length of a row, and take one
    column, whose errors do move together.
    """
    flat = tensor.reshape(-1)
    if flat.size <= _SAMPLED:
        return flat
    return flat[_sample_of(flat.size)]


@cache
def _sample_of(size: int) -> npt.NDArray[np.int64]:
    return (np.arange(_SAMPLED) * _GOLDEN_RATIO % 1 * size).astype(np.int64)


def independent_numbers(errors: Sequence[Array], condition: Array) -> float:
    """n = 2·mean(r)²/var(r), where r is the mean square error of a run in units of κ: χ²/n varies by 2/n.

    Parameters: `errors` [elements] of each run, and the `condition` [elements] measured from them, in one unit. At
    least 1, and infinity where nothing can be told: no noise, one run, or values that are not finite.
    """
    noisy = np.isfinite(condition) & (condition > 0)
    if len(errors) < 2 or not noisy.any():
        return float("inf")
    r = np.mean((np.stack(errors)[:, noisy] / condition[noisy]) ** 2, axis=1)
    variance = float(np.var(r, ddof=1))
    return max(1.0, 2 * float(np.mean(r)) ** 2 / variance) if variance > 0 else float("inf")


def widening(numbers: float) -> float:
    """The factor by which κ grows: the rms that so many errors exceed once in a million, over that of ENOUGH."""
    return 1.0 if numbers >= ENOUGH else _exceeded(numbers) / _exceeded(ENOUGH)


def _exceeded(numbers: float) -> float:
    from scipy.special import chdtri  # half of the command's start, if it were imported above

    return sqrt(float(chdtri(numbers, ONCE_IN)) / numbers)
