"""Judges an implementation that declares deviations: against the patched specification, in σ (rules V-5, V-6)."""

from typing import Any

import numpy as np
import numpy.typing as npt

from encoder_conformance.deviations.catalogue import is_noisy
from encoder_conformance.deviations.simulate import scatter, simulate_with_noise
from encoder_conformance.judge.answers import Answers
from encoder_conformance.judge.expected import Expected, ExpectedTensor
from encoder_conformance.judge.outcome import Outcome
from encoder_conformance.judge.verdict import Verdict, judge
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import Constants
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.dtypes import Format
from encoder_conformance.task import Task

Array = npt.NDArray[Any]


def judge_declared(
    task: Task, deviations: tuple[Deviation, ...], observed: Answers, expected: Expected, limits: Constants
) -> Verdict:
    """`deviates` where the patched specification is met and the plain one is not; `stale` where it is the plain one.

    Where the two cannot be told apart, meeting them is a plain pass.
    """
    dtype = task.format
    plain = judge(task.check, task.tensors, observed, expected, dtype, limits)
    patched = patched_expectation(task.case, deviations, expected, dtype)
    met = judge(task.check, task.tensors, observed, patched, dtype, limits)
    shown = tuple(deviation.deviation for deviation in deviations)
    ids = " and ".join(shown)
    if plain.outcome == Outcome.PASS:
        apart = _apart(patched, expected, task.tensors, dtype)
        if apart <= 2 * limits.max_limit or any(map(is_noisy, deviations)):
            return plain
        message = f"declares {ids}, which would show here by {apart:.3g} σ, and meets the specification without it"
        return plain.model_copy(update={"outcome": Outcome.STALE, "message": message})
    if met.outcome == Outcome.PASS:
        message = f"as declared: {ids}; {plain.rms or 0:.3g} σ from the specification without it"
        seen = {"deviations": shown, "distance": plain.rms}
        return met.model_copy(update={"outcome": Outcome.DEVIATES, "message": message, **seen})
    return plain.model_copy(update={"message": f"{plain.message}; and with {ids}, as declared: {met.message}"})


def patched_expectation(case: Case, deviations: tuple[Deviation, ...], expected: Expected, dtype: Format) -> Expected:
    """What the patched specification expects of the stages, at the positions that the golden keeps.

    Of a deviation whose values cannot be predicted (rounding to a narrow format) the size of its scatter is: the golden
    stays what the other deviations make of it, and σ grows to that size.
    """
    noisy = any(map(is_noisy, deviations))
    golden, condition = simulate_with_noise(case, deviations)
    predicted = tuple(deviation for deviation in deviations if not is_noisy(deviation))
    centre = simulate_with_noise(case, predicted)[0] if noisy and predicted else None
    scattered = scatter(case, deviations, predicted) if noisy else {}
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
        around = tensor.golden if centre is None else centre[name].reshape(-1)[at]
        spread = condition[name].reshape(-1)[at]
        if noisy:
            # Conditions are NaN where what they are of is: a row that one deviation fills and another leaves NaN.
            plain, own = (np.where(np.isfinite(each), each, 0.0) for each in (tensor.condition, spread))
            shared_out = _shared_out(scattered[name].reshape(-1)[at], plain) / dtype.roundoff
            spread = np.sqrt(own**2 + plain**2 + shared_out**2)
        kept[name] = ExpectedTensor(tensor.shape, at, around if noisy else moved, spread)
    return Expected(kept, expected.kinked_rows)


def _shared_out(scatter: Array, condition: Array) -> Array:
    """What a deviation that is predicted in size only scatters each value by: of all values together it is `scatter`.

    Half of it is alike for all and half in proportion to their condition, for what scatters most is what noise is
    amplified in: a weight between 0 and 1 more than one that is all but 0. What is NaN says nothing of the rest.
    """
    finite = np.isfinite(scatter)
    if not finite.any():
        return np.zeros_like(condition)
    mean_square = np.mean(scatter[finite] ** 2)
    shares = condition**2
    whole = np.mean(shares[finite])
    even = np.ones_like(shares)
    return np.asarray(np.sqrt(mean_square * (even + (shares / whole if whole else even)) / 2))


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
