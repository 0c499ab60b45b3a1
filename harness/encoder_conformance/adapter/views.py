"""Asks an adapter again with x and masks that do not lie in one piece: the same numbers as views of larger arrays.

The wire brings every array in one piece, and a user's code has slices and transposed ones. An adapter on PyTorch may
copy what it is given, so its modules are given views; any other adapter gets x and the masks as views itself.
"""

import sys
from dataclasses import replace
from typing import Any

import numpy as np

from encoder_conformance.adapter.base import Adapter
from encoder_conformance.adapter.masks import Array, Masks
from encoder_conformance.adapter.request import RunRequest
from encoder_conformance.adapter.watching import FAR, Watch, WrongInMemory


class ReadInARow(WrongInMemory):
    """A layer reads a view as if it lay in one piece."""


def refuse_reading_in_a_row(adapter: Adapter, answer: Array, x: Array, masks: Masks, run: RunRequest) -> None:
    """Raises ReadInARow if the output is another than `answer` where x and masks are views.

    What refuses a view says so itself, and is not accused; nor is what does not repeat its answers.
    """
    far = FAR.get(answer.dtype.name)
    found = None if far is None else _seen_as_views(adapter, x, masks, run)
    if far is None or found is None or found.shape != answer.shape:
        return
    if (distance := _apart(answer, found)) > far and _apart(answer, adapter.output(x, masks, run)) <= far:
        raise ReadInARow(
            "where x and masks are views, with strides and an offset, of larger arrays, the output is "
            f"{distance:.2g} of its size off what the same numbers in a row give: they are read as contiguous"
        )


def _seen_as_views(adapter: Adapter, x: Array, masks: Masks, run: RunRequest) -> Array | None:
    """The output of views; None where they are refused."""
    try:
        if "torch" in sys.modules:
            with Watch(adapter, laid=_part_of_tensor) as watch:
                found = adapter.output(x, masks, run)
            if watch.given:
                return found
        padding, attention, bias = (
            None if each is None else _part_of_array(each) for each in (masks.padding, masks.attention, masks.bias)
        )
        laid = replace(masks, padding=padding, attention=attention, bias=bias)
        return adapter.output(_part_of_array(x), laid, run)
    except Exception:
        return None


def _part_of_array(value: Array) -> Array:
    """The array as every other number along each axis of a larger one, whose axes lie the other way round."""
    if not value.ndim:
        return value
    larger = np.full([2 * size + 1 for size in value.shape[::-1]], _beside(value.dtype.kind), value.dtype)
    part: Array = larger.T[tuple(slice(1, None, 2) for _ in value.shape)]
    part[...] = value
    return part


def _part_of_tensor(value: Any) -> Any:
    """The same of a tensor. What needs a gradient is no input."""
    if not value.ndim or value.requires_grad:
        return value
    number = _beside("f" if value.is_floating_point() else "i")
    larger = value.new_full([2 * size + 1 for size in reversed(value.shape)], number)
    part = larger.permute(*range(value.ndim - 1, -1, -1))[tuple(slice(1, None, 2) for _ in value.shape)]
    part.copy_(value)
    return part


def _beside(kind: str) -> int:
    """A number that is no mistake in a mask or a list of token ids, and one in x."""
    return 7 if kind == "f" else 0


def _apart(answer: Array, found: Array) -> float:
    """The distance of two outputs, relative to the first; infinite where one alone is NaN."""
    if not np.array_equal(np.isfinite(answer), np.isfinite(found)):
        return float("inf")
    one, two = (np.nan_to_num(each.astype(np.float64), posinf=0, neginf=0) for each in (answer, found))
    return float(np.linalg.norm(two - one) / (np.linalg.norm(one) or 1.0))
