"""Equations that the data suggest: another order of elements, found by matching; a linear map with another weight and
bias, found by least squares; a step that is wrong in some slices of an axis alone.

Each is a guess, judged like any other equation of the search.
"""

import ast
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from encoder_conformance.diagnosis.identify.edits import edits, parsed
from encoder_conformance.diagnosis.identify.fitted_numbers import Number, has_constant, with_constant, written
from encoder_conformance.diagnosis.identify.samples import EXACT, StepSample, assigned
from encoder_conformance.oracle.equation import Operands, evaluate_tree
from encoder_conformance.spec.axes import KM, Array, M
from encoder_conformance.spec.equation import dotted
from encoder_conformance.spec.load import constants

MOST_PERMUTED = 64
"""Elements of an axis that an equation can put in another order one by one."""
_WRITTEN = 4
"""Ways to write a solved weight, and a bias, that are tried with each other."""
_CLOSER = 0.5
"""What another order may leave of the cost, to be worth a try."""
WEIGHT_TOLERANCE = 0.02
"""The distance of a solved weight from the parameter that it is, relative to its size: it has the noise of its rows."""


def rearrangements(tree: ast.expr, sample: StepSample) -> Iterator[ast.expr]:
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


def solved(samples: Sequence[StepSample]) -> LinearMap | None:
    """Return the linear map of the specified source that is nearest to what was observed, over the cases of the first
    one's parameters; None where they have too few rows."""
    [source] = (name for name in samples[0].specified.names if "." not in name)
    build = samples[0].built_with
    parts = [sample.at_all_positions().rows(source) for sample in samples if sample.built_with == build]
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


def linear_maps(samples: Sequence[StepSample]) -> Iterator[ast.expr]:
    """Yield the map with the weight and the bias that were solved for, written with the parameters they are near to."""
    found = solved(samples)
    if found is None:
        return
    operands = samples[0].operands
    weights, biases = (_nearest(operands, wanted)[:_WRITTEN] for wanted in (found.weight, found.bias))
    without = float(np.abs(found.bias).max()) < WEIGHT_TOLERANCE * max(float(np.abs(found.weight).max()), 1e-300)
    for weight in weights:
        if without or not biases:
            yield parsed(f"{found.source} @ ({weight})")
        yield from (parsed(f"{found.source} @ ({weight}) + {bias}") for bias in biases)


def terms_before(samples: Sequence[StepSample]) -> Iterator[ast.expr]:
    """Yield the map with a term added to its source, where the same is added to every row of its result."""
    sample = samples[0].at_all_positions()
    source, weight, bias = _named_parts(sample.specified.tree)
    value, computed = sample.operands.values.get(weight), sample.whole(sample.specified.tree)
    if value is None or computed is None or value.shape[0] > value.shape[1]:  # of these many terms give the same
        return
    more = (sample.observed_whole() - computed).reshape(-1, computed.shape[-1])
    rows = more[np.isfinite(more).all(axis=1)]
    if not len(rows):
        return
    term, _, rank, _ = np.linalg.lstsq(value.T.astype(np.float64), rows.mean(axis=0), rcond=None)
    if rank == len(term):
        texts = (f"({source} + {text}) @ {weight}" for text in _nearest(sample.operands, term)[:_WRITTEN])
        yield from (parsed(f"{text} + {bias}" if bias else text) for text in texts)


def _named_parts(tree: ast.expr) -> tuple[str, str, str | None]:
    """Return the names of the source, the weight and the bias of a linear map."""
    match tree:
        case ast.BinOp(left=product, op=ast.Add(), right=bias):
            source, weight, _ = _named_parts(product)
            return source, weight, dotted(bias)
        case ast.BinOp(left=left, right=right):
            return dotted(left) or "", dotted(right) or "", None
    raise ValueError(f"{ast.unparse(tree)} is no linear map")


def _nearest(operands: Operands, wanted: Array) -> list[str]:
    """Return what gives the `wanted` weight [K, M] or bias [M], nearest first: a parameter, or one with one edit."""
    found = list[tuple[float, int, str]]()
    parameters = {name: value for name, value in operands.values.items() if "." in name}
    of_parameters = Operands(operands.layer, {**parameters, "x": operands.values["x"]}, operands.softmax_choices)
    for name, value in parameters.items():
        edited = edits(parsed(name), of_parameters, value.shape)
        for tree in (parsed(name), *_in_order(name, value, wanted), *edited):
            text, away = _with_best_number(tree, of_parameters, wanted)
            if away < WEIGHT_TOLERANCE:
                found.append((round(away, 4), len(text), text))
    return [text for _, _, text in sorted(found)]


def _with_best_number(tree: ast.expr, operands: Operands, wanted: Array) -> tuple[str, float]:
    """Return the expression, with the number for `c` that comes nearest to what is `wanted`, if it is linear in `c`;
    and how far it is away, relative to its size."""
    try:
        with np.errstate(all="ignore"):
            value, more = (evaluate_tree(tree, EXACT, operands.having("c", np.asarray(c))) for c in (0.0, 1.0))
    except (ValueError, IndexError, TypeError):
        return "", np.inf
    text, size = ast.unparse(tree), max(float(np.linalg.norm(wanted)), 1e-300)
    if value.shape != wanted.shape or not np.isfinite(value).all():
        return "", np.inf
    if has_constant(tree):
        slope = more - value
        length = float((slope * slope).sum())
        if not length or not np.isfinite(length):
            return "", np.inf
        factor = float(((wanted - value) * slope).sum()) / length
        value = value + factor * slope
        left = float(np.linalg.norm(value - wanted))
        text = ast.unparse(with_constant(tree, next(written(Number(factor, left / math.sqrt(length))))))
    return text, float(np.linalg.norm(value - wanted)) / size


def _in_order(name: str, value: Array, wanted: Array) -> Iterator[ast.expr]:
    """Yield the parameter with the elements of an axis in the order in which they match what is `wanted`: [K, M] or [M]
    both."""
    if value.shape != wanted.shape:
        return
    for axis in range(-value.ndim, 0):
        if 1 < value.shape[axis] <= MOST_PERMUTED:
            rows = [np.moveaxis(each, axis, 0).reshape(value.shape[axis], -1) for each in (wanted, value)]
            order, *_ = assigned(((rows[0][:, None] - rows[1][None]) ** 2).sum(axis=-1))
            yield from map(parsed, ordered(name, axis, order))


Condition = Callable[[Array, int], Array]
"""(index of a slice, `at` [n]; n) → whether it is one of those: [n]."""


class Slices(NamedTuple):
    """The slices of an axis that are out of line: a condition on their index, as text, and as a predicate of index and
    size."""

    axis: int
    text: str
    holds: Condition


def wrong_slices(tree: ast.expr, samples: Sequence[StepSample], least: float = 1.0) -> Iterator[Slices]:
    """Yield for each axis the condition that the slices out of line meet, in every case, if there is one.

    At `least` such a part of the slices that meet it is out of line: a slice of zeros does not show that it is doubled.
    """
    samples = [sample.at_all_positions() for sample in samples]
    for axis in range(-len(samples[0].shape), 0):
        seen = [_slices_out_of_line(tree, sample, axis) for sample in samples]
        if any(each is None for each in seen):
            return
        known = [each for each in seen if each is not None and each[1].any()]
        right = any((~wrong & compared).any() for wrong, compared in known)
        if not right or not any(wrong.any() for wrong, _ in known):
            continue
        found = [
            (_part_out_of_line(holds, known), Slices(axis, text, holds))
            for text, holds in _conditions(max(len(wrong) for wrong, _ in known), _size_of(axis, samples))
        ]
        best = max(part for part, _ in found)
        if best >= least:
            yield next(slices for part, slices in found if part == best)


def _part_out_of_line(holds: Condition, known: Sequence[tuple[Array, Array]]) -> float:
    """Return which part of the slices that meet a condition is out of line; 0 where any other slice is, too. `known`:
    which slices [n] of each case are out of line, and which are compared."""
    out, met = 0, 0
    for wrong, compared in known:
        those = holds(np.arange(len(wrong)), len(wrong)) & compared
        if (wrong & compared & ~those).any():
            return 0.0
        out, met = out + int((wrong & those).sum()), met + int(those.sum())
    return out / met if met else 0.0


_SIZES = ("num_heads", "sequence_length", "batch_size", "head_dim", "d_model", "d_ff")


def _size_of(axis: int, samples: Sequence[StepSample]) -> str | None:
    """Return the name of the size that an axis has in every case; None if it has none."""
    return next((name for name in _SIZES if all(float(s.operands[name]) == s.shape[axis] for s in samples)), None)


def _conditions(size: int, name: str | None) -> Iterator[tuple[str, Condition]]:
    """Yield conditions on the index of a slice, plain ones first; `name` is that of the axis' size."""
    yield "== 0", lambda at, n: at == 0
    yield "> 0", lambda at, n: at > 0
    if name:
        yield f"== {name} - 1", lambda at, n: at == n - 1
        yield f"< {name} - 1", lambda at, n: at < n - 1
        yield f"< {name} / 2", lambda at, n: at < n / 2
        yield f">= {name} / 2", lambda at, n: at >= n / 2
        yield f"< {name} // 2", lambda at, n: at < n // 2
        yield f">= {name} // 2", lambda at, n: at >= n // 2
    for k in _BLOCKS:
        yield from ((f"% {k} == {rest}", partial(_remains, k, rest)) for rest in range(min(k, 4)))
        yield from ((f"% {k} != {rest}", partial(_remains_not, k, rest)) for rest in (0, k - 1))
        yield f"% {2 * k} >= {k}", partial(_in_other_blocks, k)
        if name:
            yield f">= {name} // {k} * {k}", partial(_beyond_whole_blocks, k)
    for k in range(1, min(size, MOST_PERMUTED)):
        for sign, compare in _COMPARISONS.items():
            yield f"{sign} {k}", partial(_compared, compare, k)


_BLOCKS = (2, 3, 4, 8, 16)


def _remains(k: int, rest: int, at: Array, n: int) -> Array:
    """Whether the index of a slice, [n], leaves this rest by k: [n]."""
    return np.asarray(at % k == rest)


def _remains_not(k: int, rest: int, at: Array, n: int) -> Array:
    """Whether the index of a slice, [n], leaves another rest by k: [n]."""
    return np.asarray(at % k != rest)


def _in_other_blocks(k: int, at: Array, n: int) -> Array:
    """Whether the index of a slice, [n], is in every other block of k, from the second: [n]."""
    return np.asarray(at % (2 * k) >= k)


def _beyond_whole_blocks(k: int, at: Array, n: int) -> Array:
    """Whether the index of a slice, [n], is behind the last whole block of k: [n]."""
    return np.asarray(at >= n // k * k)


def _compared(compare: Callable[[Array, int], Array], k: int, at: Array, n: int) -> Array:
    """Whether the index of a slice, [n], compares so with k: [n]."""
    return compare(at, k)


_COMPARISONS: dict[str, Callable[[Array, int], Array]] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    ">=": np.greater_equal,
}


def _slices_out_of_line(tree: ast.expr, sample: StepSample, axis: int) -> tuple[Array, Array] | None:
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


def restricted_to(slices: Slices, sample: StepSample) -> StepSample | None:
    """Return the sample with what is compared in these slices alone; None where that is nothing."""
    at = np.unravel_index(sample.positions, sample.shape)[slices.axis]
    kept = slices.holds(at, sample.shape[slices.axis])
    if not kept.any():
        return None
    return replace(sample, positions=sample.positions[kept], observed=sample.observed[kept], sigma=sample.sigma[kept])


def equation_in_slices(slices: Slices, other: ast.expr, tree: ast.expr, samples: Sequence[StepSample]) -> ast.expr:
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
