"""Reads a bias by distance off its values: the row of a table that each takes (E-23, E-42), or slopes (E-43)."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import product

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.forms.position_bias import (
    GEOMETRIC,
    INTERPOLATED,
    POSITION_BIAS,
    SLOPES,
    WRONG_BUCKETS,
    WRONG_DISTANCES,
    both_ways,
    clipped,
    slopes_of,
)
from encoder_conformance.readers.onnx_file.tracing.expressions import UnsupportedPattern, Weights, WeightSource
from encoder_conformance.readers.onnx_file.tracing.features import Feature
from encoder_conformance.readers.onnx_file.tracing.softmax import hides
from encoder_conformance.readers.onnx_file.tracing.symbolic_trace import SymbolicTrace
from encoder_conformance.spec.axes import RH, Array
from encoder_conformance.spec.layer import Distances, Slopes

CLOSE = 1e-5
_FEW = 4
"""Slopes that are said."""
USUAL = (128, 256, 64, 32, 512, 1024, 16, 8)
"""Largest distances, by preference where a short sequence does not tell."""
_FOLDED = (32, 64, 16, 8)
"""Numbers of buckets, by preference where the table was folded into the numbers that are added."""
FORMS = (both_ways, *WRONG_BUCKETS["logarithmic"].values())
"""The right buckets first, and wrong ones that the catalogue knows: with those the file is read, and found wrong."""
_LEAST_CLIPPED, _LEAST_BY_LOGARITHM = 3, 4
"""Rows: one each for a key before the query, at it and after it; and two of each half of the buckets."""


@dataclass(frozen=True)
class BucketBias:
    """`table` [buckets, H]; None of linear distances. `told`: whether the sequence is long enough to show
    `max_distance`."""

    buckets: int | None
    max_distance: int | None
    table: WeightSource | None
    told: bool
    evidence: str
    distances: Distances = "logarithmic"
    slopes: Slopes | None = None


def buckets_of(trace: SymbolicTrace, weights: Weights, values: Mapping[str, Array], S: int) -> BucketBias:
    """Raises UnsupportedPattern where the numbers are not of rows by buckets of distance."""
    H = weights.shape[1]
    short = _summed(weights.added, {name: trace.number(name) for name in weights.added}, H, trace.S)
    sign = next((each for each in (1.0, -1.0) if _is_all_of(each * short, weights)), None)
    if sign is None:
        feature: Feature = "distance" if _is_by_distance(weights, trace.S) else "position_bias"
        raise UnsupportedPattern(f"{weights.added[0]!r} is added, times others", feature)
    short, added = sign * short, sign * _summed(weights.added, values, H, S)  # what is subtracted is its opposite
    missing = [name for name in weights.added if name not in values]
    if missing:
        added, S = short, trace.S
    distances, rows = _by_distance(added, S, weights.added[0])
    if (linear := _linear(weights.added[0], distances, rows)) is not None:
        return linear
    table = _table(trace, weights.added, rows, H)
    if table is not None:
        found = _of_table(table, distances, rows)
    else:
        found = _folded_clipped(distances, rows) or _folded(distances, rows)
    if found is None:
        raise UnsupportedPattern(
            f"{weights.added[0]!r} is added, by {_own_slopes(distances, rows) or 'no buckets that are known'}",
            "distance" if table is None or len(table.value) % 2 else "position_bias",
        )
    return found


def _summed(names: tuple[str, ...], values: Mapping[str, Array], H: int, S: int) -> Array:
    """The numbers [H, S, S] that are added in the first item; −∞ where one of them hides."""
    total = np.zeros((H, S, S))
    for name in names:
        value = values.get(name)
        if value is not None and value.ndim >= 2 and value.dtype.kind == "f":
            first = _of_first_item(value, H)
            total += np.where(hides(first), -np.inf, first.astype(np.float64))
    return total


def _of_first_item(value: Array, H: int) -> Array:
    """What is added in the first item [S, S] or [1 or H, S, S]; its heads may lie by groups of those that share keys:
    [batch, groups, heads of a group, S, S], or without a batch."""
    if value.ndim == 4 and value.shape[1] not in (1, H) and value.shape[0] * value.shape[1] == H:
        return np.asarray(value.reshape(H, *value.shape[2:]))
    if value.ndim < 5:
        return value[0] if value.ndim == 4 else value[:H] if value.ndim == 3 else value
    item: Array = value[0]
    groups, each = item.shape[:2]
    if groups * each == 1:
        return np.asarray(item[0])
    full = (groups if groups > 1 else H // each, each if each > 1 else H // groups, *item.shape[2:])
    return np.asarray(np.broadcast_to(item, full)).reshape(H, *item.shape[2:])


def _is_all_of(short: Array, weights: Weights) -> bool:
    """Whether these are the numbers [H, S, S] that the softmax was found to add, but for one of each row."""
    if weights.constant is None:
        return False
    seen = np.isfinite(weights.constant[0]) & np.isfinite(short)
    with np.errstate(all="ignore"):
        apart = np.where(seen, weights.constant[0] - short, 0.0)
    counts = np.maximum(seen.sum(-1, keepdims=True), 1)
    rest = np.where(seen, apart - apart.sum(-1, keepdims=True) / counts, 0.0)
    return bool(np.abs(rest).max() <= 1e-3 * max(1.0, np.abs(short[np.isfinite(short)]).max(initial=0)))


def _is_by_distance(weights: Weights, S: int) -> bool:
    """Whether what the softmax was found to add is the same at each distance, whichever values of the file it is of."""
    if weights.constant is None:
        return False
    with suppress(UnsupportedPattern):
        distances, _ = _by_distance(weights.constant[0], S, weights.name)
        return len(distances) > 1
    return False


def _by_distance(added: Array, S: int, name: str) -> tuple[Array, RH]:
    """The distances key − query that are seen, and the numbers of each [n, H]."""
    distances, rows = [], []
    for apart in range(1 - S, S):
        line = np.diagonal(added, apart, 1, 2)  # [H, …]
        if not np.isfinite(line).all():
            continue
        if np.abs(line - line[:, :1]).max() > CLOSE * max(1.0, np.abs(line).max()):
            raise UnsupportedPattern(f"{name!r} is added, not by distance", "by_place")
        distances.append(apart)
        rows.append(line[:, 0])
    return np.array(distances), np.array(rows)


def _linear(name: str, distances: Array, rows: RH) -> BucketBias | None:
    """The slopes by which `rows` [n, H] fall with distances [n] (E-43), or rise, or do so to one side; None where they
    are no usual ones. `name`: the tensor that is added."""
    for form, slopes in product(("linear", *WRONG_DISTANCES["linear"]), SLOPES):
        due = _numbers(form, slopes, distances, rows.shape[1])
        if due.any() and np.abs(due - rows).max() <= CLOSE * np.abs(due).max():
            said = f"{name!r} is a power of two times the distance, {slopes} over the heads"
            return BucketBias(
                None, None, None, True, said, "linear", "interpolated" if slopes == INTERPOLATED else None
            )
    return None


def _own_slopes(distances: Array, rows: RH) -> str:
    """What each head's scores lose with distance, where `rows` [n, H] are a slope of its own times it; else nothing."""
    near = rows[np.abs(distances) == 1]
    if not len(near) or np.abs(np.abs(distances)[:, None] * near[0] - rows).max() > CLOSE * np.abs(rows).max():
        return ""
    own = -near[0]
    if own.min() <= 0 or (np.diff(own) > 0).any():  # as of a parameter, which was drawn
        return "a slope of each head that is none of ALiBi's"
    few = ", ".join(f"{slope:.4g}" for slope in own[:_FEW]) + (", …" if rows.shape[1] > _FEW else "")
    due = ", ".join(f"{slope:.4g}" for slope in slopes_of(Arithmetic(), GEOMETRIC, rows.shape[1])[:_FEW])
    return f"slopes {few} of its heads; ALiBi's are {due}{', …' if rows.shape[1] > _FEW else ''}"


def _numbers(form: str, slopes: str, distances: Array, H: int) -> RH:
    """[n, H], what this form of linear distances adds at each of `distances` [n]."""
    nothing = np.zeros((1, H, *[int(np.abs(distances).max()) + 1] * 2))
    added, _ = POSITION_BIAS.variants[form](Arithmetic(), nothing, np.zeros(1), slopes=slopes, head_dim=1)
    return np.array([added[0, :, max(-apart, 0), max(apart, 0)] for apart in distances])


def _table(trace: SymbolicTrace, names: tuple[str, ...], rows: RH, H: int) -> WeightSource | None:
    """The table [R, H] of the file that has every row."""
    needed = trace.graph.needed_by(names)
    for name in trace.graph.constants:
        value = trace.graph.constants[name]
        if name not in needed or value.ndim != 2 or value.dtype.kind not in "fV" or H not in value.shape:
            continue
        source = trace.source(name)
        for each in ([source] if value.shape[1] == H else []) + ([_turned(source)] if value.shape[0] == H else []):
            if _nearest(each.value.astype(np.float64), rows) is not None:
                return each
    return None


def _turned(source: WeightSource) -> WeightSource:
    return source.arranged(lambda values: values.T)


def _nearest(table: RH, rows: RH) -> Array | None:
    """The number of the table's row that each of `rows` [n, H] is, [n]; None where one is none of them."""
    found = np.array([int(np.abs(table - row).max(1).argmin()) for row in rows])
    return found if np.abs(table[found] - rows).max() <= CLOSE * max(1.0, np.abs(table).max()) else None


def _of_table(table: WeightSource, distances: Array, rows: RH) -> BucketBias | None:
    """The buckets by which distances [n] take `rows` [n, H] of the table [R, H]; None where none do."""
    R, values = len(table.value), table.value.astype(np.float64)
    if (by_distance := _clipped(table, distances, rows)) is not None:
        return by_distance
    for form in FORMS if R >= _LEAST_BY_LOGARITHM and R % 2 == 0 else ():
        with np.errstate(all="ignore"):  # a wrong form may have no bucket for some of these distances
            fitting = [
                distance for distance in _candidates(R, distances) if _takes(values, form(distances, R, distance), rows)
            ]
        if fitting and (form is both_ways or _has_a_logarithm(form(distances, R, fitting[0]), distances)):
            told = 4 * max(np.abs(distances)) not in fitting
            return BucketBias(R, fitting[0], table, told, _said(R, fitting[0], distances, told))
    return None


def _has_a_logarithm(buckets: Array, distances: Array) -> bool:
    """Whether distances [n] before the query share one of their `buckets` [n] that is not the last: else a table by
    distance of another kind is no mistake in T5's."""
    before = buckets[distances < 0]
    held, times = np.unique(before, return_counts=True)
    return bool((times[held != before[0]] > 1).any()) if before.size else False


def _clipped(table: WeightSource, distances: Array, rows: RH) -> BucketBias | None:
    """The distances [n] that take `rows` [n, H], each its own of a table [R, H], up to the largest on each side (E-42).

    The table may begin with the keys before the query or with those after it, and hold a row too many, as one of twice
    the longest sequence does.
    """
    R, ends = len(table.value), {0: slice(None), 1: slice(1, None), -1: slice(None, -1)}
    for end in (0,) if R % 2 else (1, -1):
        cut = table if end == 0 else table.take(ends[end])
        most = len(cut.value) // 2
        for each in (cut, cut.arranged(lambda values: values[::-1])):
            if len(each.value) >= _LEAST_CLIPPED and _takes(
                each.value.astype(np.float64), clipped(distances, len(each.value), most), rows
            ):
                told = bool(np.abs(distances).max() > most)
                return BucketBias(2 * most + 1, most, each, told, _said_clipped(most, distances, told), "clipped")
    return None


def _takes(table: RH, bucket: Array, rows: RH) -> bool:
    """Whether the rows `bucket` [n] of the table are `rows` [n, H]; a wrong form may name some that do not exist."""
    if bucket.min() < 0 or bucket.max() >= len(table):
        return False
    return bool(np.abs(table[bucket] - rows).max() <= CLOSE * max(1.0, np.abs(table).max()))


def _folded(distances: Array, rows: RH) -> BucketBias | None:
    """The buckets that distances [n] of equal numbers, `rows` [n, H], share, and a table made of those numbers."""
    for R in _FOLDED:
        for distance in _candidates(R, distances):
            bucket, table = both_ways(distances, R, distance), np.zeros((R, rows.shape[1]))
            table[bucket] = rows
            if np.abs(table[bucket] - rows).max() <= CLOSE * max(1.0, np.abs(rows).max()):
                if len(np.unique(rows, axis=0)) < len(np.unique(bucket)):
                    continue
                source = WeightSource(table.astype(np.float32), None)
                return BucketBias(R, distance, source, False, _said(R, distance, distances, told=False))
    return None


def _folded_clipped(distances: Array, rows: RH) -> BucketBias | None:
    """The distances [n] up to which each has numbers of its own, of `rows` [n, H], where some are beyond; and a table
    made of those numbers (E-42)."""
    farthest = int(np.abs(distances).max())
    if not np.array_equal(distances, np.arange(-farthest, farthest + 1)):
        return None
    kept = ((most, np.clip(distances, -most, most)) for most in range(farthest + 1))
    most = next(most for most, near in kept if np.array_equal(rows, rows[farthest + near]))
    table = rows[farthest - most : farthest + most + 1]
    if not 0 < most < farthest or len(np.unique(table, axis=0)) < len(table):
        return None
    source = WeightSource(table.astype(np.float32), None)
    return BucketBias(2 * most + 1, most, source, True, _said_clipped(most, distances, told=True), "clipped")


def _candidates(R: int, distances: Array) -> Iterator[int]:
    """Largest distances to try: beyond what the sequence shows, all are alike."""
    least, most = R // 4 + 1, 4 * int(max(np.abs(distances)))
    usual = [distance for distance in USUAL if least <= distance]
    yield from dict.fromkeys([*usual, *range(least, most + 1)])


def _said_clipped(most: int, distances: Array, told: bool) -> str:
    if told:
        return f"distances up to {most} take a row each of a table, and those beyond the last"
    return f"distances up to {np.abs(distances).max()} take a row each of a table for {most} to each side"


def _said(R: int, max_distance: int, distances: Array, told: bool) -> str:
    shown = f"distances up to {max(np.abs(distances))} take rows of a table of {R}"
    return shown if told else f"{shown}, and leave open where the last begins: {max_distance} is usual"
