"""The parameters of a `build` request. Large ones are drawn while they are written."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from encoder_conformance.implementation.task import Task
from encoder_conformance.protocol.frames import LARGE, Sendable, Tensors
from encoder_conformance.protocol.spool import Spool
from encoder_conformance.protocol.streamed import Array, Sink, Streamed, parts_of, whole
from encoder_conformance.spec.case_parameters import DrawnParameter, drawn
from encoder_conformance.spec.parameters import parameter_count, without_prefix


def parameters_to_send(task: Task) -> dict[str, Array | Streamed]:
    """Every parameter of the task's layer, in the task's dtype."""
    case, dtype = task.case, task.format.numpy
    if parameter_count(case.layer) * dtype.itemsize < LARGE:
        return {name: value.astype(dtype, copy=False) for name, value in case.parameters().items()}
    sources: Mapping[str, DrawnParameter | Array] = (
        drawn(case.layer, case.situation.parameter_exponents, case.seed) if case.held is None else case.held.as_given
    )
    return {name: Streamed(dtype, source.shape, partial(_cast, source, dtype)) for name, source in sources.items()}


def _cast(source: DrawnParameter | Array, dtype: np.dtype[Any]) -> Iterator[Array]:
    if not isinstance(source, DrawnParameter):
        return (part.astype(dtype, copy=False) for part in parts_of(source))
    drawn_parts = (part.astype(dtype, copy=False) for part in source.parts())
    return _DRAWN.parts((source, dtype), drawn_parts, prod(source.shape) * dtype.itemsize)


_DRAWN = Spool()
"""The layers of a run: several implementations build them, and each sends back what it was sent."""


Parameter = TypeVar("Parameter", bound=Array | Streamed)


@dataclass(frozen=True)
class StoredParameters:
    """The parameters of a built layer. `sent` and `held`: before and after the round trip.

    `own`: the specification's name → the implementation's name, if the adapter gives it.
    """

    sent: Tensors
    held: Tensors
    own: dict[str, str]


class RoundTrip:
    """A `Receive` that compares returned parameters while they are read: of large ones neither they nor those sent are
    in memory whole. It declines a wrong name, dtype or shape."""

    def __init__(self, sent: Sendable) -> None:
        self._sent = sent
        self._same: dict[str, bool] = {}
        self._small: dict[str, list[Array]] = {}

    def __call__(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Sink | None:
        sent = self._sent.get(name)
        if sent is None or (sent.dtype, sent.shape) != (dtype, shape):
            return None
        sent_parts, left = parts_of(sent), np.empty(0, dtype)
        self._same[name] = True
        small = prod(shape) * dtype.itemsize < LARGE
        if small:
            self._small[name] = []

        def compare(part: Array) -> None:
            nonlocal left
            if small:
                self._small[name].append(part.copy())
            while part.size and self._same[name]:
                if not left.size:
                    left = next(sent_parts)
                count = min(part.size, left.size)
                self._same[name] = np.array_equal(_bits(part[:count]), _bits(left[:count]))
                part, left = part[count:], left[count:]

        return compare

    def round_trip_error(self, held: Tensors, missing_parameters: Collection[str]) -> str:
        """How the returned parameters differ from the sent ones; "" if they have the same bits.

        `held`: the returned parameters that were read whole.
        """
        expected = expected_parameters(self._sent, {*held, *self._same}, missing_parameters)
        small = {
            name: np.concatenate(parts).reshape(self._sent[name].shape) for name, parts in self._small.items() if parts
        }
        return round_trip_error(expected, {**held, **small}, self._same)


def expected_parameters(
    sent: Mapping[str, Parameter], held: Collection[str], missing_parameters: Collection[str]
) -> dict[str, Parameter]:
    """The parameters of `sent` that the layer must return. It may omit `missing_parameters`; its output shows that."""
    return {
        name: value for name, value in sent.items() if name in held or without_prefix(name)[1] not in missing_parameters
    }


_NO_CHANCE = 4
"""So many numbers are not equal by chance: portable ones are of 256."""


def _bits(value: Array) -> Array:
    """The bytes of a tensor, without a copy. They distinguish −0 from 0, and NaNs from each other."""
    return np.ascontiguousarray(value).reshape(-1).view(np.uint8)


def round_trip_error(sent: Sendable, held: Tensors, same: Mapping[str, bool] = MappingProxyType({})) -> str:
    """How the parameters `held` by the layer differ from `sent`; "" if they are the same bit for bit.

    `same`: those that were compared while they were read, and whether they have the same bits.
    """
    returned = {*held, *same}
    if missing := sorted(set(sent) - returned):
        return f"parameters missing from the built layer: {', '.join(missing)}"
    if extra := sorted(returned - set(sent)):
        return f"parameters that the specification does not have: {', '.join(extra)}"
    for name, value in sent.items():
        own = held.get(name)
        if own is not None and (own.shape, own.dtype) != (value.shape, value.dtype):
            text = f"{own.dtype} {list(own.shape)} instead of {value.dtype} {list(value.shape)}"
            return f"parameter {name} came back as {text}"
        # What was read whole is of a small frame, whatever was sent.
        if not (same[name] if own is None else np.array_equal(_bits(own), _bits(whole(value)))):
            return _made_one(name, sent, held) or (
                f"parameter {name} came back with other values: the map does not round-trip"
            )
    return ""


def _made_one(name: str, sent: Sendable, held: Tensors) -> str:
    """That two parameters are one in the layer, in whole or in part: `name` came back as another, which came back as it
    was sent; "" where none did."""
    if (own := held.get(name)) is None or (apart := own != whole(sent[name])).sum() < _NO_CHANCE:
        return ""
    for other in (each for each in sent if each in held and each != name):
        right = whole(sent[other])
        for turned, due, back in (("", right, held[other]), (", one transposed", right.T, held[other].T)):
            if due.shape != own.shape or due.min() == due.max():
                continue
            if np.array_equal(own[apart], due[apart]) and np.array_equal(back, due):
                same = "the same numbers" if np.array_equal(own, due) else "in part the same numbers"
                return f"parameters {name} and {other} came back as {same}{turned}: in the layer these two are one"
    return ""
