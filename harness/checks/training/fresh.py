"""The parameters of a layer as it is made, each judged as it comes and then let go (clause A-4).

Of a large layer two draws are compared, in both formats and by two workers at a time: none of them is kept.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from encoder_conformance.checks.training.statistics import FALSE_ALARM, Z_LIMIT, uniform, variance
from encoder_conformance.portable import Floats, splitmix64
from encoder_conformance.spec.parameters import Parameter, parameters_of
from encoder_conformance.task import Task
from encoder_conformance.wire.streamed import PART, Array, Sink, parts_of

Sums = npt.NDArray[np.uint64]
_ROUNDED = 1 + 2.0**-20
"""A bound may be passed by what rounding it to float32 makes."""


@dataclass(frozen=True)
class Fresh:
    """One parameter as it was made: what is wrong with its `values`, and what tells them from others.

    `digest` is the same of equal values, 0 and −0 among them, and None where a value is NaN, which equals nothing.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    values: tuple[str, ...]
    digest: bytes | None


class Judging:
    """Takes the parameters of one draw. Call it with what was left whole to have them all."""

    def __init__(self, task: Task) -> None:
        self._parameters = {parameter.name: parameter for parameter in parameters_of(task.case.layer)}
        self._due = {name: (task.format.numpy, each.shape(task.case.layer)) for name, each in self._parameters.items()}
        self._found: dict[str, Fresh] = {}

    def receive(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Sink | None:
        """Takes a tensor while it is read, if it is one that the layer has."""
        if self._due.get(name) != (dtype, shape):
            return None
        made, at = np.empty(shape, dtype), 0

        def take(part: Array) -> None:
            nonlocal made, at
            made.reshape(-1)[at : at + part.size] = part
            at += part.size
            if at == made.size:
                self._found[name] = self._judged(name, made)
                made = np.empty(0, dtype)

        return take

    def every(self, whole: dict[str, Array]) -> dict[str, Fresh]:
        """Those that were taken, and those that were not, which are `whole`."""
        return {**self._found, **{name: self._judged(name, value) for name, value in whole.items()}}

    def _judged(self, name: str, made: Array) -> Fresh:
        as_due = self._due.get(name) == (made.dtype, made.shape)
        wrong = tuple(wrong_values(self._parameters[name], made.astype(np.float64, copy=False))) if as_due else ()
        return Fresh(made.dtype, made.shape, wrong, _digest(made))


def wrong_values(parameter: Parameter, value: Floats) -> Iterator[str]:
    """What is wrong with the values that a parameter is made with; nothing where they are as A-4 has them."""
    name = parameter.name
    if parameter.drawn != "weight":
        due = 1.0 if parameter.drawn == "gain" else 0.0
        if wrong := int((value != due).sum()):
            first = value[value != due][0]
            yield f"{name}: {wrong} of {value.size} elements are not {due:g}, the first of them {first:.4g}"
    else:
        yield from _not_xavier(name, value)


def _not_xavier(name: str, value: Floats) -> Iterator[str]:
    bound = sqrt(6 / sum(value.shape))
    largest = float(np.maximum(value.max(), -value.min()))
    if not largest <= bound * _ROUNDED:
        yield f"{name}: as large as {largest:.4g}, where Xavier's bound is {bound:.4g}"
    elif abs(z := variance(value, bound)) > Z_LIMIT:
        root = float(np.sqrt(np.mean(value**2)))
        yield f"{name}: root mean square {root:.4g} instead of {bound / sqrt(3):.4g} (z = {z:.3g})"
    elif (chance := uniform(value, bound)) < FALSE_ALARM:
        yield f"{name}: not drawn uniformly from ±{bound:.4g} (chance {chance:.1g})"
    for lines, sums, said in zip((value, value.T), _sums(value), ("rows", "columns"), strict=True):
        if _two_equal(lines, sums):
            yield f"{name}: two equal {said}"


def _sums(value: Floats) -> tuple[Sums, Sums]:
    """One number for each row, and for each column: the same of equal ones, and seldom of others. They are sums of the
    values' bits, modulo 2**64, each times a number of its place."""
    rows, columns = value.shape
    by_row, by_column = np.empty(rows, np.uint64), np.zeros(columns, np.uint64)
    of_column, of_row = splitmix64(1, columns), splitmix64(2, rows)
    step = max(1, PART // columns)
    for begin in range(0, rows, step):
        part = slice(begin, begin + step)
        bits = (value[part] + 0.0).view(np.uint64)  # of −0 the sum makes 0
        by_row[part] = (bits * of_column).sum(axis=1, dtype=np.uint64)
        by_column += (bits * of_row[part, None]).sum(axis=0, dtype=np.uint64)
    return by_row, by_column


def _two_equal(lines: Floats, sums: Sums) -> bool:
    order = np.argsort(sums, kind="stable")
    alike = np.flatnonzero(sums[order[1:]] == sums[order[:-1]])
    return any(np.array_equal(lines[order[at]], lines[order[at + 1]]) for at in alike)


def _digest(values: Array) -> bytes | None:
    found = hashlib.blake2b(digest_size=16)
    for part in parts_of(values):
        exact = part.astype(np.float64)
        exact += 0.0  # of −0 it makes 0
        if np.isnan(exact).any():
            return None
        found.update(exact.data)
    return found.digest()
