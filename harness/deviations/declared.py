"""Judges an implementation that declares deviations: against the patched specification, in σ (rules V-5, V-6)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.deviations.catalogue import catalogue, is_noisy
from harness.deviations.play import played_with_noise
from harness.errors import InputError, nearest
from harness.golden.expected import Expected, ExpectedTensor
from harness.judge.outcome import Outcome
from harness.judge.verdict import Verdict, judge
from harness.oracle.deviant import changes
from harness.plan import Task
from harness.spec.case import Case
from harness.spec.constants import Constants
from harness.spec.deviation import Deviation
from harness.spec.dtypes import Format

Array = npt.NDArray[Any]


def declared(task: Task) -> tuple[Deviation, ...]:
    """The deviations that the task's implementation declares and that change its case."""
    ids = [entry.deviation for entry in task.implementation.deviations]
    return tuple(catalogue()[name] for name in ids if changes(task.case, catalogue()[name]))


def check_declared(ids: Sequence[str], where: str) -> None:
    for name in ids:
        if name not in catalogue():
            raise InputError(
                f"declares the deviation {name!r}, which specs/deviations/ does not have",
                where=f"{where}: key deviations",
                hint=f"{nearest(name, catalogue())} (conform list deviations)",
            )


def judge_declared(
    task: Task, deviations: tuple[Deviation, ...], observed: Mapping[str, Array], expected: Expected, limits: Constants
) -> Verdict:
    """`deviates` where the patched specification is met and the plain one is not; `stale` where it is the plain one.

    Where the two cannot be told apart, meeting them is a plain pass.
    """
    dtype = task.format
    plain = judge(task.check, task.tensors, observed, expected, dtype, limits)
    patched = patched_expectation(task.case, deviations, expected, dtype)
    met = judge(task.check, task.tensors, observed, patched, dtype, limits)
    ids = " and ".join(deviation.deviation for deviation in deviations)
    if plain.outcome == Outcome.PASS:
        apart = _apart(patched, expected, task.tensors, dtype)
        if apart <= 2 * limits.max_limit or any(map(is_noisy, deviations)):
            return plain
        message = f"declares {ids}, which would show here by {apart:.3g} σ, and meets the specification without it"
        return plain.model_copy(update={"outcome": Outcome.STALE, "message": message})
    if met.outcome == Outcome.PASS:
        message = f"as declared: {ids}; {plain.rms or 0:.3g} σ from the specification without it"
        return met.model_copy(update={"outcome": Outcome.DEVIATES, "message": message})
    return plain.model_copy(update={"message": f"{plain.message}; and with {ids}, as declared: {met.message}"})


def patched_expectation(case: Case, deviations: tuple[Deviation, ...], expected: Expected, dtype: Format) -> Expected:
    """What the patched specification expects of the stages, at the positions that the golden keeps.

    Of a deviation whose values cannot be foretold (rounding to a narrow format) the size of its scatter is: the golden
    stays, and σ grows to that size.
    """
    noisy = any(map(is_noisy, deviations))
    golden, condition = played_with_noise(case, deviations)
    kept = {}
    for name, tensor in expected.tensors.items():
        if name not in golden:  # a gradient
            continue
        value = golden[name]
        if value.shape != tensor.shape:
            kept[name] = ExpectedTensor(
                value.shape, np.arange(value.size), value.reshape(-1), condition[name].reshape(-1)
            )
            continue
        at = tensor.positions
        moved = value.reshape(-1)[at]
        scatter = float(np.sqrt(np.mean((moved - tensor.golden) ** 2))) / dtype.roundoff if noisy else 0.0
        own = tensor.condition if noisy else 0.0  # that of NaN is NaN, and says nothing of a number in its place
        spread = np.sqrt(condition[name].reshape(-1)[at] ** 2 + own**2 + scatter**2)
        kept[name] = ExpectedTensor(tensor.shape, at, tensor.golden if noisy else moved, spread)
    return Expected(kept, expected.kinked_rows)


def _apart(patched: Expected, expected: Expected, names: tuple[str, ...], dtype: Format) -> float:
    """The largest distance of the two expectations, in σ of the plain one."""
    largest = 0.0
    for name in names:
        one, other = patched.tensors[name], expected.tensors[name]
        if one.shape != other.shape:
            return np.inf
        sigma = np.maximum(dtype.roundoff * other.condition, dtype.smallest_normal)
        error = np.abs(one.golden - other.golden) / sigma
        largest = max(largest, float(np.nan_to_num(error, nan=np.inf).max(initial=0.0)))
    return largest
