"""The forms in which a module takes x, and gives its output, for an x [batch, sequence, d_model]."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from encoder_conformance.protocol.arguments import PACKED, PACKED_IN_ONE

Shape = tuple[int, ...]


class HeldTogether(dict[str, Any]):
    """A mapping whose values are attributes, too, as those of transformers' encodings and of dataclasses are."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        """As a batch of a graph, in which a layer writes what it gives in the place of x."""
        self[name] = value

    def _replace(self, **named: Any) -> "HeldTogether":
        """As of a NamedTuple."""
        return HeldTogether(self | named)


@dataclass(frozen=True)
class Arrays:
    """How a framework does with its own arrays what a call needs. `beside`: (array, x) → the array, in the format of x
    where it is of floating-point numbers. `total`: the sum along the last axis. `held`: a mapping, as it takes one."""

    beside: Callable[[Any, Any], Any]
    is_array: Callable[[Any], bool]
    swapped: Callable[[Any, int, int], Any] = lambda x, one, other: x.swapaxes(one, other)
    reshaped: Callable[[Any, Shape], Any] = lambda x, shape: x.reshape(shape)
    total: Callable[[Any], Any] = lambda x: x.sum(-1)
    held: Callable[[Mapping[str, Any]], Any] = HeldTogether


@dataclass(frozen=True)
class FormOfX:
    """`out`: x [batch, sequence, d_model] in this form. `back`: what has it, of a shape [batch, sequence, d_model]."""

    said: str
    out: Callable[[Any, Arrays], Any]
    back: Callable[[Any, Arrays, Shape], Any]


def height_of(sequence: int) -> int:
    """Of a map that is as square as so many positions can be."""
    return max(each for each in range(1, int(sequence**0.5) + 1) if sequence % each == 0)


def _map(x: Any, arrays: Arrays) -> Any:
    batch, sequence, width = x.shape
    height = height_of(sequence)
    return arrays.reshaped(x, (batch, height, sequence // height, width))


def _parts(x: Any, arrays: Arrays) -> Any:
    """As few as the width divides into."""
    batch, sequence, width = map(int, x.shape)
    parts = next((each for each in range(2, width) if width % each == 0), 1)
    return arrays.reshaped(x, (batch, sequence, parts, width // parts))


def as_map(mask: Any, arrays: Arrays) -> Any:
    """A mask [batch, sequence] as [batch, height, width]."""
    batch, sequence = mask.shape
    height = height_of(sequence)
    return arrays.reshaped(mask, (batch, height, sequence // height))


def _channels_map(x: Any, arrays: Arrays) -> Any:
    batch, sequence, width = x.shape
    height = height_of(sequence)
    return arrays.reshaped(arrays.swapped(x, 1, 2), (batch, width, height, sequence // height))


def _from_channels_map(y: Any, arrays: Arrays, shape: Shape) -> Any:
    batch, sequence, width = shape
    return arrays.swapped(arrays.reshaped(y, (batch, width, sequence)), 1, 2)


def _swapped(one: int, other: int) -> tuple[Callable[[Any, Arrays], Any], Callable[[Any, Arrays, Shape], Any]]:
    return (
        lambda x, arrays: arrays.swapped(x, one, other),
        lambda y, arrays, _: arrays.swapped(y, one, other),
    )


def _reshaped(y: Any, arrays: Arrays, shape: Shape) -> Any:
    return arrays.reshaped(y, shape)


FORMS: Mapping[str, FormOfX] = {
    "BSD": FormOfX("[batch, sequence, d_model]", lambda x, _: x, lambda y, *_: y),
    "SBD": FormOfX("[sequence, batch, d_model]", *_swapped(0, 1)),
    "BDS": FormOfX("[batch, d_model, sequence]", *_swapped(1, 2)),
    "BHWD": FormOfX("[batch, height, width, d_model]", _map, _reshaped),
    "BDHW": FormOfX("[batch, d_model, height, width]", _channels_map, _from_channels_map),
    "BRSD": FormOfX(
        "[batch, 1, sequence, d_model], one of the rows that it takes each by itself",
        lambda x, arrays: arrays.reshaped(x, (int(x.shape[0]), 1, *map(int, x.shape[1:]))),
        _reshaped,
    ),
    "BSRD": FormOfX(
        "[batch, sequence, 1, d_model], one of the columns that it takes each by itself",
        lambda x, arrays: arrays.reshaped(x, (*map(int, x.shape[:2]), 1, int(x.shape[2]))),
        _reshaped,
    ),
    "BSPF": FormOfX("[batch, sequence, parts, d_model / parts]", _parts, _reshaped),
    "SD": FormOfX("[sequence, d_model], item by item", lambda x, _: x[0], lambda y, *_: y[None]),
    "TD": FormOfX(
        PACKED,
        lambda x, arrays: arrays.reshaped(x, (int(x.shape[0]) * int(x.shape[1]), int(x.shape[2]))),
        _reshaped,
    ),
    "1TD": FormOfX(
        PACKED_IN_ONE,
        lambda x, arrays: arrays.reshaped(x, (1, int(x.shape[0]) * int(x.shape[1]), int(x.shape[2]))),
        _reshaped,
    ),
}
"""A map of height and width has the sequence in its rows, one after the other."""
MAPS = "BHWD", "BDHW"
ROWS = "TD", "1TD"
"""Forms of the positions of all items, one after the other."""
