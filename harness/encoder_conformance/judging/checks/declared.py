"""Judges an implementation that declares deviations against the patched specification, in σ (rules V-5, V-6)."""

import numpy as np

from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.simulate import scatter, simulate_with_noise
from encoder_conformance.judging.verdict import Verdict, judge
from encoder_conformance.oracle.catalogue import is_noisy
from encoder_conformance.oracle.expected import Expected, ExpectedTensor
from encoder_conformance.protocol.answers import Answers
from encoder_conformance.spec.axes import P
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.dtypes import Format
from encoder_conformance.spec.load import constants
from encoder_conformance.spec.outcome import Outcome


def judge_declared(task: Task, observed: Answers, expected: Expected) -> Verdict:
    """Outcome `deviates` if the answers meet the patched specification only, `stale` if they meet the plain one.

    Where the two specifications are indistinguishable, meeting them is a plain pass.
    """
    deviations, dtype = task.deviations, task.format
    by_specification = judge(task.check, task.tensors, observed, expected, dtype)
    patched = patched_expectation(task.case, deviations, expected, dtype)
    by_patched = judge(task.check, task.tensors, observed, patched, dtype)
    names = tuple(deviation.deviation for deviation in deviations)
    ids = " and ".join(names)
    if by_specification.outcome == Outcome.PASS:
        distance = _largest_distance(patched, expected, task.tensors, dtype)
        if distance <= 2 * constants().max_limit or any(map(is_noisy, deviations)):
            return by_specification
        message = f"declares {ids}, which would show here by {distance:.3g} σ, and meets the specification without it"
        return by_specification.model_copy(update={"outcome": Outcome.STALE, "message": message})
    if by_patched.outcome == Outcome.PASS:
        message = f"as declared: {ids}; {by_specification.rms or 0:.3g} σ from the specification without it"
        fields = {"deviations": names, "distance": by_specification.rms}
        return by_patched.model_copy(update={"outcome": Outcome.DEVIATES, "message": message, **fields})
    return by_specification.model_copy(
        update={"message": f"{by_specification.message}; and with {ids}, as declared: {by_patched.message}"}
    )


def patched_expectation(case: Case, deviations: tuple[Deviation, ...], expected: Expected, dtype: Format) -> Expected:
    """The stages that the patched specification expects, at the positions that the golden keeps.

    The values of some deviations cannot be predicted (rounding to a narrow format), but the size of their scatter can.
    For these the golden is the one that the other deviations predict, and σ grows by the scatter.
    """
    noisy = any(map(is_noisy, deviations))
    golden, condition = simulate_with_noise(case, deviations)
    predicted = tuple(deviation for deviation in deviations if not is_noisy(deviation))
    centre = simulate_with_noise(case, predicted)[0] if noisy and predicted else None
    scattered = scatter(case, deviations, predicted) if noisy else {}
    tensors = {}
    for name, tensor in expected.tensors.items():
        if name not in golden:  # a gradient
            continue
        shape, same_shape = golden[name].shape, golden[name].shape == tensor.shape
        positions = tensor.positions if same_shape else np.arange(golden[name].size)
        values, spread = (each[name].reshape(-1)[positions] for each in (golden, condition))
        if noisy and same_shape:
            values = tensor.golden if centre is None else centre[name].reshape(-1)[positions]
            # A condition is NaN where its value is NaN: a row that one deviation fills and another leaves NaN.
            plain, own = (np.where(np.isfinite(each), each, 0.0) for each in (tensor.condition, spread))
            scattering = _distribute_scatter(scattered[name].reshape(-1)[positions], plain) / dtype.roundoff
            spread = np.sqrt(own**2 + plain**2 + scattering**2)
        tensors[name] = ExpectedTensor(shape, positions, values, spread)
    return Expected(tensors, expected.kinked_rows)


def _distribute_scatter(scatter: P, condition: P) -> P:
    """The scatter of each value under a deviation that is predicted in size only. Its mean square is that of `scatter`.

    Half of the mean square is the same for all values. Half is proportional to the squared condition, since the values
    that amplify noise scatter most: a weight between 0 and 1 more than one near 0. NaN values are left out.
    """
    finite = np.isfinite(scatter)
    if not finite.any():
        return np.zeros_like(condition)
    mean_square = np.mean(scatter[finite] ** 2)
    shares = condition**2
    mean_share = np.mean(shares[finite])
    even = np.ones_like(shares)
    return np.asarray(np.sqrt(mean_square * (even + (shares / mean_share if mean_share else even)) / 2))


def _largest_distance(patched: Expected, expected: Expected, names: tuple[str, ...], dtype: Format) -> float:
    """The largest distance between the two expectations, in σ of the plain one; infinite if shapes differ."""
    largest = 0.0
    for name in names:
        one, other = patched.tensors[name], expected.tensors[name]
        if one.shape != other.shape:
            return np.inf
        error = np.abs(one.golden - other.golden) / dtype.sigma(other.condition)
        largest = max(largest, float(np.nan_to_num(error, nan=np.inf).max(initial=0.0)))
    return largest
