"""Reads a bias by buckets of distance (E-23) off its values: which row of which table a distance takes."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from encoder_conformance.oracle.forms.position_bias import WRONG_BUCKETS, both_ways
from encoder_conformance.readers.onnx_file.tracing.expressions import UnsupportedPattern, Weights, WeightSource
from encoder_conformance.readers.onnx_file.tracing.features import Feature
from encoder_conformance.readers.onnx_file.tracing.softmax import hides
from encoder_conformance.readers.onnx_file.tracing.symbolic_trace import SymbolicTrace
from encoder_conformance.spec.axes import RH, Array

CLOSE = 1e-5
USUAL = (128, 256, 64, 32, 512, 1024, 16, 8)
"""Largest distances, by preference where a short sequence does not tell."""
_FOLDED = (32, 64, 16, 8)
"""Numbers of buckets, by preference where the table was folded into the numbers that are added."""
FORMS: tuple[Callable[[Array, int, int], Array], ...] = (both_ways, *WRONG_BUCKETS.values())
"""The right buckets first, and wrong ones that the catalogue knows: with those the file is read, and found wrong."""


@dataclass(frozen=True)
class BucketBias:
    """`table` [buckets, H]. `told`: whether the sequence is long enough to show `max_distance`."""

    buckets: int
    max_distance: int
    table: WeightSource
    told: bool
    evidence: str


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
    table = _table(trace, weights.added, rows, H)
    found = _of_table(table, distances, rows) if table is not None else _folded(distances, rows)
    if found is None:
        raise UnsupportedPattern(
            f"{weights.added[0]!r} is added, by no buckets that are known",
            "distance" if table is None else "position_bias",
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
    if R < 4 or R % 2:
        raise UnsupportedPattern(f"a table has {R} rows for them, and buckets go in pairs, from 4 on", "distance")
    for form in FORMS:
        with np.errstate(all="ignore"):  # a wrong form may have no bucket for some of these distances
            fitting = [
                distance for distance in _candidates(R, distances) if _takes(values, form(distances, R, distance), rows)
            ]
        if fitting:
            told = 4 * max(np.abs(distances)) not in fitting
            return BucketBias(R, fitting[0], table, told, _said(R, fitting[0], distances, told))
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


def _candidates(R: int, distances: Array) -> Iterator[int]:
    """Largest distances to try: beyond what the sequence shows, all are alike."""
    least, most = R // 4 + 1, 4 * int(max(np.abs(distances)))
    usual = [distance for distance in USUAL if least <= distance]
    yield from dict.fromkeys([*usual, *range(least, most + 1)])


def _said(R: int, max_distance: int, distances: Array, told: bool) -> str:
    shown = f"distances up to {max(np.abs(distances))} take rows of a table of {R}"
    return shown if told else f"{shown}, and leave open where the last begins: {max_distance} is usual"
