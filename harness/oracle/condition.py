"""Goldens and conditions of a case: what it should give, and how much noise one unit of roundoff makes there."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic, Array, Rounded
from encoder_conformance.oracle.encoder import Evaluation, evaluate, given
from encoder_conformance.oracle.kinks import kinked_rows
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.stages import LAST_AXIS_IS_KEYS

SAMPLE_ROUNDOFF = 2.0**-32
"""The u of the Monte-Carlo runs: far above float64's own noise, far below where noise stops being linear in u (C-2)."""


@dataclass(frozen=True)
class Expectation:
    """Golden and condition of every tensor of a case, keyed as goldens are: a stage's name, or "gradient.NAME".

    `kinked_rows` [n, 2] are the (item, position) pairs whose cotangent is zero (clause B-2).
    """

    golden: dict[str, Array]
    condition: dict[str, Array]
    kinked_rows: Array


def expectation(case: Case, runs: int) -> Expectation:
    """Golden float64 (computed in long double) and condition κ, each in the tensor's own shape (C-1 to C-3).

    κ = √(mean over runs of (disturbed − undisturbed)²) / u, smoothed along the features.
    """
    rows = kinked_rows(case)
    cotangent = case.cotangent(rows) if "gradients" in case.situation.checks else None
    what = given(case)
    golden = _keyed(evaluate(case, Arithmetic(np.longdouble), cotangent, what))
    spread = Spread(_keyed(evaluate(case, Arithmetic(np.float64), cotangent, what)))
    for run in range(runs):
        spread.add(_keyed(evaluate(case, Rounded(SAMPLE_ROUNDOFF, run), cotangent, what)))
    return Expectation({name: value.astype(np.float64) for name, value in golden.items()}, spread.conditions(), rows)


class Spread:
    """How far noise displaces each element: the root of the mean square over the runs, in units of u (C-3).

    What displaces a softmax weight of 1e-190 has a square below the smallest float64. Where the last axis counts keys
    an element is therefore measured in a power of two of its own, which changes no bit of what does not underflow.
    """

    def __init__(self, undisturbed: Mapping[str, Array], roundoff: float = SAMPLE_ROUNDOFF) -> None:
        """`roundoff` is the size of the disturbances."""
        self._undisturbed, self._runs, self._roundoff = undisturbed, 0, roundoff
        self._units = {name: _unit(name, value) for name, value in undisturbed.items()}
        self._squares = {name: np.zeros(value.shape) for name, value in undisturbed.items()}

    def add(self, disturbed: Mapping[str, Array]) -> None:
        """One run with disturbances."""
        self._runs += 1
        for name, value in disturbed.items():
            displaced = (value - self._undisturbed[name]) / self._units[name]
            self._squares[name] += (displaced / self._roundoff) ** 2

    def conditions(self) -> dict[str, Array]:
        """κ of every element, smoothed along the features."""
        return {
            name: np.asarray(np.sqrt(_smoothed(name, squares / self._runs)) * self._units[name])
            for name, squares in self._squares.items()
        }


def _unit(name: str, value: Array) -> Array:
    """The power of two just above each element where the last axis counts keys, 1 for zero and everywhere else."""
    if name not in LAST_AXIS_IS_KEYS:
        return np.ones(())
    return np.where(value == 0, 1.0, np.ldexp(1.0, np.frexp(value)[1]))


def _keyed(evaluation: Evaluation) -> dict[str, Array]:
    return {**evaluation.stages, **{f"gradient.{name}": value for name, value in evaluation.gradients.items()}}


def _smoothed(name: str, squares: Array) -> Array:
    """Mean of each element's square with its two neighbours', weights 1 2 1, along an axis of features (C-3)."""
    if name in LAST_AXIS_IS_KEYS or squares.shape[-1] < 3:
        return squares
    padded = np.concatenate([squares[..., :1], squares, squares[..., -1:]], axis=-1)
    return np.asarray((padded[..., :-2] + 2 * padded[..., 1:-1] + padded[..., 2:]) / 4)
