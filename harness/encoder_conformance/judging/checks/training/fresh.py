"""Judges each initial parameter of a layer as it arrives, and then frees it (clause A-4).

Two draws are compared, in both formats and by two workers at a time. None of them is kept, to bound memory.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.checks.training.statistics import (
    FALSE_ALARM,
    Z_LIMIT,
    is_surely_uniform,
    mean_square,
    uniform,
    variance,
)
from encoder_conformance.protocol.streamed import PART, Array, Sink, parts_of
from encoder_conformance.spec.parameters import Parameter, parameters_of
from encoder_conformance.spec.portable import splitmix64

Sums = npt.NDArray[np.uint64]
_ROUNDED = 1 + 2.0**-20
"""The factor by which rounding to float32 may carry a value beyond its bound."""


@dataclass(frozen=True)
class FreshParameter:
    """One initial parameter: the problems of its `values`, and a digest to compare them with others.

    Equal values of one format have equal digests, where 0 equals −0. `digest` is None if a value is NaN, which equals
    nothing.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    values: tuple[str, ...]
    digest: bytes | None


class Judging:
    """Judges the parameters of one draw while they are read. `every` gives the results."""

    def __init__(self, task: Task) -> None:
        self._parameters = {parameter.name: parameter for parameter in parameters_of(task.case.layer)}
        self._expected = {
            name: (task.format.numpy, each.shape(task.case.layer)) for name, each in self._parameters.items()
        }
        self._judged: dict[str, FreshParameter] = {}

    def receive(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Sink | None:
        """A sink for the parts of a tensor, or None if the layer has no parameter of this name, dtype and shape."""
        if self._expected.get(name) != (dtype, shape):
            return None
        values, offset = np.empty(shape, dtype), 0

        def receive_part(part: Array) -> None:
            nonlocal values, offset
            values.reshape(-1)[offset : offset + part.size] = part
            offset += part.size
            if offset == values.size:
                self._judged[name] = self._judge(name, values)
                values = np.empty(0, dtype)

        return receive_part

    def every(self, whole: dict[str, Array]) -> dict[str, FreshParameter]:
        """The parameters received in parts, and those in `whole`, which were not."""
        return {**self._judged, **{name: self._judge(name, value) for name, value in whole.items()}}

    def _judge(self, name: str, values: Array) -> FreshParameter:
        is_expected = self._expected.get(name) == (values.dtype, values.shape)
        problems = tuple(wrong_values(self._parameters[name], values)) if is_expected else ()
        return FreshParameter(values.dtype, values.shape, problems, _digest(values))


def wrong_values(parameter: Parameter, value: Array) -> Iterator[str]:
    """The problems of a parameter's initial values; none if they are as A-4 specifies."""
    name = parameter.name
    if parameter.drawn != "weight":
        expected = 1.0 if parameter.drawn == "gain" else 0.0
        if wrong := int((value != expected).sum()):
            first = value[value != expected][0]
            yield f"{name}: {wrong} of {value.size} elements are not {expected:g}, the first of them {first:.4g}"
    else:
        yield from _xavier_problems(name, value)


def _xavier_problems(name: str, value: Array) -> Iterator[str]:
    bound = sqrt(6 / sum(value.shape))
    largest = float(np.maximum(value.max(), -value.min()))
    if not largest <= bound * _ROUNDED:
        yield f"{name}: as large as {largest:.4g}, where Xavier's bound is {bound:.4g}"
    elif abs(z := variance(value, bound)) > Z_LIMIT:
        rms = float(np.sqrt(mean_square(value)))
        yield f"{name}: root mean square {rms:.4g} instead of {bound / sqrt(3):.4g} (z = {z:.3g})"
    elif not is_surely_uniform(value, bound) and (chance := uniform(value, bound)) < FALSE_ALARM:
        yield f"{name}: not drawn uniformly from ±{bound:.4g} (chance {chance:.1g})"
    for vectors, checksums, kind in zip((value, value.T), _checksums(value), ("rows", "columns"), strict=True):
        if _has_two_equal(vectors, checksums):
            yield f"{name}: two equal {kind}"


def _checksums(value: Array) -> tuple[Sums, Sums]:
    """[rows] and [columns], a checksum of each: equal for equal rows, and seldom equal otherwise.

    It is the sum of the values' bits, each times a pseudo-random number of its position, modulo 2**64.
    """
    rows, columns = value.shape
    by_row, by_column = np.empty(rows, np.uint64), np.zeros(columns, np.uint64)
    column_factors, row_factors = splitmix64(1, columns), splitmix64(2, rows)
    step = max(1, PART // columns)
    for begin in range(0, rows, step):
        part = slice(begin, begin + step)
        bits = _bits(value[part])
        by_row[part] = (bits * column_factors).sum(axis=1, dtype=np.uint64)
        by_column += (bits * row_factors[part, None]).sum(axis=0, dtype=np.uint64)
    return by_row, by_column


def _bits(values: Array) -> npt.NDArray[np.unsignedinteger]:
    """The bits of the values, in one shape with them; −0 has those of 0."""
    bits: npt.NDArray[np.unsignedinteger] = (values + values.dtype.type(0)).view(f"u{values.dtype.itemsize}")
    return bits


def _has_two_equal(vectors: Array, checksums: Sums) -> bool:
    order = np.argsort(checksums, kind="stable")
    equal = np.flatnonzero(checksums[order[1:]] == checksums[order[:-1]])
    return any(np.array_equal(vectors[order[at]], vectors[order[at + 1]]) for at in equal)


def _digest(values: Array) -> bytes | None:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts_of(values):
        if np.isnan(part).any():
            return None
        digest.update(_bits(part).data)
    return digest.digest()
