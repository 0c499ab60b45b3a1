"""The forms in which a module takes x, and gives its output, for an x [batch, sequence, d_model]."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Form:
    """`out`: x [batch, sequence, d_model] in this form. `back`: what has it, of a shape [batch, sequence, d_model]."""

    said: str
    out: Callable[[Any], Any]
    back: Callable[[Any, Shape], Any]


def height_of(sequence: int) -> int:
    """Of a map that is as square as so many positions can be."""
    return max(each for each in range(1, int(sequence**0.5) + 1) if sequence % each == 0)


def _map(x: Any) -> Any:
    batch, sequence, width = x.shape
    height = height_of(sequence)
    return x.reshape(batch, height, sequence // height, width)


def _channels_map(x: Any) -> Any:
    batch, sequence, width = x.shape
    height = height_of(sequence)
    return x.swapaxes(1, 2).reshape(batch, width, height, sequence // height)


def _packed(x: Any) -> Any:
    return x.reshape(-1, x.shape[-1])


def _from_channels_map(y: Any, shape: Shape) -> Any:
    batch, sequence, width = shape
    return y.reshape(batch, width, sequence).swapaxes(1, 2)


def _reshaped(y: Any, shape: Shape) -> Any:
    return y.reshape(*shape)


FORMS: Mapping[str, Form] = {
    "BSD": Form("[batch, sequence, d_model]", lambda x: x, lambda y, _: y),
    "SBD": Form("[sequence, batch, d_model]", lambda x: x.swapaxes(0, 1), lambda y, _: y.swapaxes(0, 1)),
    "BDS": Form("[batch, d_model, sequence]", lambda x: x.swapaxes(1, 2), lambda y, _: y.swapaxes(1, 2)),
    "BHWD": Form("[batch, height, width, d_model]", _map, _reshaped),
    "BDHW": Form("[batch, d_model, height, width]", _channels_map, _from_channels_map),
    "TD": Form("[positions of all items, d_model]", _packed, _reshaped),
}
"""A map of height and width has the sequence in its rows, one after the other."""
