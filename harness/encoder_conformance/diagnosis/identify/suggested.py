"""Equations that the data suggest: another order of elements, found by matching; a linear map with another weight and
bias, found by least squares; a step that is wrong in some slices of an axis alone.

Each is a guess, judged like any other equation of the search.
"""

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from encoder_conformance.diagnosis.identify.edits import parsed
from encoder_conformance.diagnosis.identify.samples import Sample, assigned
from encoder_conformance.spec.axes import KM, Array, Elementwise, M
from encoder_conformance.spec.equation import dotted
from encoder_conformance.spec.load import constants

MOST_PERMUTED = 64
"""Elements of an axis that an equation can put in another order one by one."""
_CLOSER = 0.5
"""What another order may leave of the cost, to be worth a try."""
WEIGHT_TOLERANCE = 0.02
"""The distance of a solved weight from the parameter that it is, relative to its size: it has the noise of its rows."""


def rearrangements(tree: ast.expr, sample: Sample) -> Iterator[ast.expr]:
    """Yield the result with the elements of one axis in the order in which they match what was observed."""
    sample = sample.at_all_positions()
    computed, observed = sample.whole(tree), sample.observed_whole()
    if computed is None:
        return
    scale = float(np.median(sample.sigma)) + sample.relative * np.abs(computed)
    for axis in range(-computed.ndim, 0):
        if not 1 < computed.shape[axis] <= MOST_PERMUTED:
            continue
        rows = [np.moveaxis(each, axis, 0).reshape(computed.shape[axis], -1) for each in (observed, computed, scale)]
        order, left, before = assigned(_log_distances(*rows))
        if left < _CLOSER * before:
            yield from (parsed(text) for text in ordered(f"({ast.unparse(tree)})", axis, order))


def _log_distances(observed: Array, computed: Array, scale: Array) -> Array:
    """Return how far each observed row is from each computed one, where it is compared: [n, k] each → [n, n]."""
    with np.errstate(all="ignore"):
        every = np.log1p(((observed[:, None] - computed[None]) / scale[None]) ** 2)
    compared = np.isfinite(every)
    return np.asarray(np.where(compared, every, 0.0).sum(axis=-1) / np.maximum(compared.sum(axis=-1), 1))


def ordered(text: str, axis: int, order: Sequence[int]) -> Iterator[str]:
    """Yield the tensor with its elements along the axis in this order; an exchange of two fits axes of any size."""
    moved = [at for at, of in enumerate(order) if at != of]
    if len(moved) == 2:
        yield f"exchange({text}, {axis}, {moved[0]}, {moved[1]})"
    elif moved:
        yield f"permute({text}, {axis}, {', '.join(map(str, order))})"


class LinearMap(NamedTuple):
    """observed = source @ weight [K, M] + bias [M]: the name of the source, and the rms `error` in σ that it leaves."""

    source: str
    weight: KM
    bias: M
    error: float


def solved(samples: Sequence[Sample]) -> LinearMap | None:
    """Return the linear map of the specified source that is nearest to what was observed, over the cases of the first
    one's parameters; None where they have too few rows."""
    [source] = (name for name in samples[0].specified.names if "." not in name)
    build = _parameters_of(samples[0])
    parts = [sample.at_all_positions().rows(source) for sample in samples if _parameters_of(sample) == build]
    rows, results, noise = (np.concatenate(each) for each in zip(*parts, strict=True))
    finite = np.isfinite(rows).all(axis=1) & np.isfinite(results).all(axis=1)
    rows, results, noise = rows[finite], results[finite], noise[finite]
    design = np.hstack([rows, np.ones((len(rows), 1))])
    if len(np.unique(rows, axis=0)) <= design.shape[1]:  # cases share inputs, and any map fits as few rows
        return None
    found, _, rank, _ = np.linalg.lstsq(design, results, rcond=None)
    if rank < design.shape[1] or not np.isfinite(found).all():
        return None
    errors = (results - design @ found) / np.maximum(noise, 1e-300)
    free = len(rows) / (len(rows) - design.shape[1])
    return LinearMap(source, found[:-1], found[-1], float(np.sqrt(free * np.mean(errors**2))))


def _parameters_of(sample: Sample) -> tuple[str, str, object]:
    case = sample.evidence.case
    return case.layer.layer, sample.within, case.situation.parameter_exponents


def linear_maps(samples: Sequence[Sample]) -> Iterator[ast.expr]:
    """Yield the map with the weight and the bias that were solved for, written with the parameters they are near to."""
    found = solved(samples)
    if found is None:
        return
    parameters = {name: value for name, value in samples[0].operands.values.items() if "." in name}
    weights = [f"0 * {name}" for name, value in parameters.items() if not np.abs(found.weight).max()] + [
        text for name, value in parameters.items() for text in _written_with(name, value, found.weight)
    ]
    biases = [text for name, value in parameters.items() for text in _written_with(name, value, found.bias)]
    without = float(np.abs(found.bias).max()) < WEIGHT_TOLERANCE * max(float(np.abs(found.weight).max()), 1e-300)
    for weight in weights[:3]:
        if without or not biases:
            yield parsed(f"{found.source} @ {weight}")
        yield from (parsed(f"{found.source} @ {weight} + {bias}") for bias in biases[:3])


def _written_with(name: str, value: Array, wanted: Array) -> Iterator[str]:
    """Yield how this parameter gives what is `wanted`, [K, M] or [M]: as it is, transposed, or in another order."""
    for text, form in ((name, value), (f"transpose({name})", value.T)):
        if form.shape == wanted.shape and _near(form, wanted):
            yield text
            return
    if value.shape != wanted.shape:
        return
    for axis in range(-value.ndim, 0):
        if 1 < value.shape[axis] <= MOST_PERMUTED:
            rows = [np.moveaxis(each, axis, 0).reshape(value.shape[axis], -1) for each in (wanted, value)]
            order, *_ = assigned(((rows[0][:, None] - rows[1][None]) ** 2).sum(axis=-1))
            if _near(np.take(value, order, axis=axis), wanted):
                yield from ordered(name, axis, order)


def _near(value: Elementwise, wanted: Elementwise) -> bool:
    return float(np.linalg.norm(value - wanted)) < WEIGHT_TOLERANCE * max(float(np.linalg.norm(value)), 1e-300)


class Slices(NamedTuple):
    """The slices of an axis that are out of line: a condition on their index, as text, and as a predicate of index and
    size."""

    axis: int
    text: str
    holds: Callable[[Array, int], Array]


def wrong_slices(tree: ast.expr, samples: Sequence[Sample]) -> Iterator[Slices]:
    """Yield for each axis a condition that exactly the slices out of line meet, in every case, if there is one."""
    samples = [sample.at_all_positions() for sample in samples]
    for axis in range(-len(samples[0].shape), 0):
        seen = [_slices_out_of_line(tree, sample, axis) for sample in samples]
        if any(each is None for each in seen):
            return
        known = [each for each in seen if each is not None and each[0].any()]
        if not known or any(not (~wrong & compared).any() for wrong, compared in known):
            continue  # none is right
        for text, holds in _conditions(max(len(wrong) for wrong, _ in known), _size_of(axis, samples)):
            if all(
                np.array_equal(wrong[compared], holds(np.arange(len(wrong)), len(wrong))[compared])
                for wrong, compared in known
            ):
                yield Slices(axis, text, holds)
                break


_SIZES = ("num_heads", "sequence_length", "batch_size", "head_dim", "d_model", "d_ff")


def _size_of(axis: int, samples: Sequence[Sample]) -> str | None:
    """Return the name of the size that an axis has in every case; None if it has none."""
    return next((name for name in _SIZES if all(float(s.operands[name]) == s.shape[axis] for s in samples)), None)


def _conditions(size: int, name: str | None) -> Iterator[tuple[str, Callable[[Array, int], Array]]]:
    yield "== 0", lambda at, n: at == 0
    yield "> 0", lambda at, n: at > 0
    if name:
        yield f"== {name} - 1", lambda at, n: at == n - 1
        yield f"< {name} - 1", lambda at, n: at < n - 1
        yield f"< {name} / 2", lambda at, n: at < n / 2
        yield f">= {name} / 2", lambda at, n: at >= n / 2
    for k in range(1, min(size, MOST_PERMUTED)):
        for sign, compare in _COMPARISONS.items():
            yield f"{sign} {k}", partial(_compared, compare, k)


def _compared(compare: Callable[[Array, int], Array], k: int, at: Array, n: int) -> Array:
    """Whether the number of a slice, `at` [n], compares so with k: [n]."""
    return compare(at, k)


_COMPARISONS: dict[str, Callable[[Array, int], Array]] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    ">=": np.greater_equal,
}


def _slices_out_of_line(tree: ast.expr, sample: Sample, axis: int) -> tuple[Array, Array] | None:
    """Return which slices of an axis of n are out of line, and which are compared at all: [n] of bool each."""
    errors = sample.errors(tree)
    if errors is None:
        return None
    at = np.unravel_index(sample.positions, sample.shape)[axis]
    size = sample.shape[axis]
    count = np.bincount(at, minlength=size)
    rms = np.sqrt(np.bincount(at, errors**2, minlength=size) / np.maximum(count, 1))
    largest = np.zeros(size)
    np.maximum.at(largest, at, np.abs(errors))
    limits = constants()
    return (rms > limits.rms_limit) | (largest > limits.max_limit), count > 0


def restricted_to(slices: Slices, sample: Sample) -> Sample | None:
    """Return the sample with what is compared in these slices alone; None where that is nothing."""
    at = np.unravel_index(sample.positions, sample.shape)[slices.axis]
    kept = slices.holds(at, sample.shape[slices.axis])
    if not kept.any():
        return None
    return replace(sample, positions=sample.positions[kept], observed=sample.observed[kept], sigma=sample.sigma[kept])


def equation_in_slices(slices: Slices, other: ast.expr, tree: ast.expr, samples: Sequence[Sample]) -> ast.expr:
    """Return the equation that is `other` in these slices, and `tree` in the rest."""
    stages = (name for name in samples[0].operands.values if "." not in name and name != "mask")
    alike = (name for name in stages if all(name in sample.operands_of_its_shape for sample in samples))
    of = next(alike, f"({ast.unparse(tree)})")
    condition = f"index({of}, {slices.axis}) {slices.text}"
    return parsed(f"where({condition}, {ast.unparse(other)}, {ast.unparse(tree)})")


def is_linear(tree: ast.expr) -> bool:
    """Whether the equation is source @ weight, with a bias or without."""
    match tree:
        case ast.BinOp(left=ast.BinOp(op=ast.MatMult()) as product, op=ast.Add(), right=bias):
            return dotted(bias) is not None and is_linear(product)
        case ast.BinOp(left=source, op=ast.MatMult(), right=weight):
            return dotted(source) is not None and "." in (dotted(weight) or "")
    return False
