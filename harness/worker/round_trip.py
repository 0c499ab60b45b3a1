"""Whether a built layer holds the parameters that it was sent."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from encoder_conformance.spec.parameters import without_prefix
from encoder_conformance.wire.frames import Sendable, Tensors
from encoder_conformance.wire.streamed import Array, Sink, Streamed, parts_of

Parameter = TypeVar("Parameter", bound=Array | Streamed)


@dataclass(frozen=True)
class StoredParameters:
    """What was sent with a layer, what it says it holds, and what the adapter calls each, where it says so."""

    sent: Tensors
    held: Tensors
    own: dict[str, str]


class ComparedParameter:
    """A parameter that came back and was compared with the one sent while it was read. Neither is kept."""

    def __init__(self, sent: Array | Streamed, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        """`dtype` and `shape` are those that it came back in, and the ones it was sent in."""
        self.dtype, self.shape, self.same = dtype, shape, True
        self._due: Iterator[Array] = parts_of(sent)
        self._ahead: Array = np.empty(0, dtype)

    def take(self, part: Array) -> None:
        """The next elements that came back."""
        while part.size and self.same:
            if not self._ahead.size:
                self._ahead = next(self._due)
            count = min(part.size, self._ahead.size)
            self.same = np.array_equal(_bits(part[:count]), _bits(self._ahead[:count]))
            part, self._ahead = part[count:], self._ahead[count:]


class RoundTrip:
    """Takes the parameters that come back of what was sent; those of another name, dtype or shape it leaves whole."""

    def __init__(self, sent: Sendable) -> None:
        self._sent = sent
        self._found: dict[str, ComparedParameter] = {}

    def __call__(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Sink | None:
        due = self._sent.get(name)
        if due is None or (due.dtype, due.shape) != (dtype, shape):
            return None
        self._found[name] = ComparedParameter(due, dtype, shape)
        return self._found[name].take

    def round_trip_error(self, held: Tensors, missing_parameters: Collection[str]) -> str:
        """What differs in the parameters that came back, `held` among them; "" if they are the same bits."""
        every: dict[str, Array | ComparedParameter] = {**held, **self._found}
        return round_trip_error(expected_parameters(self._sent, every, missing_parameters), every)


def expected_parameters(
    sent: Mapping[str, Parameter], held: Collection[str], missing_parameters: Collection[str]
) -> dict[str, Parameter]:
    """The part of `sent` that the layer has to hold. It may leave out `missing_parameters`; its output shows that."""
    return {
        name: value for name, value in sent.items() if name in held or without_prefix(name)[1] not in missing_parameters
    }


def _bits(value: Array) -> Array:
    """The bytes of a tensor, which tell −0 from 0 and one NaN from another; nothing is copied."""
    return np.ascontiguousarray(value).reshape(-1).view(np.uint8)


def round_trip_error(sent: Sendable, held: Mapping[str, Array | ComparedParameter]) -> str:
    """What is wrong with the parameters that the layer says it holds; "" when they came back bit for bit."""
    if missing := sorted(set(sent) - set(held)):
        return f"parameters missing from the built layer: {', '.join(missing)}"
    if extra := sorted(set(held) - set(sent)):
        return f"parameters that the specification does not have: {', '.join(extra)}"
    for name, value in sent.items():
        if held[name].shape != value.shape or held[name].dtype != value.dtype:
            was = f"{held[name].dtype} {list(held[name].shape)}"
            return f"parameter {name} came back as {was} instead of {value.dtype} {list(value.shape)}"
        if not _same(value, held[name]):
            return f"parameter {name} came back with other values: the map does not round-trip"
    return ""


def _same(sent: Array | Streamed, held: Array | ComparedParameter) -> bool:
    if isinstance(held, ComparedParameter):
        return held.same
    if not isinstance(sent, Streamed):
        return np.array_equal(_bits(held), _bits(sent))
    compared = ComparedParameter(sent, held.dtype, held.shape)
    for part in parts_of(held):
        compared.take(part)
    return compared.same
