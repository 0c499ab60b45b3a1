"""The inputs of a functional model of Keras: each has to be given, and a mask that is not has to hide nothing."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

import keras
import numpy as np

from encoder_conformance.readers.module_target.live import Feeds, LiveModule
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.spec.axes import Array

_MOST = 16
"""The most ways to open the masks that are tried."""


@dataclass(frozen=True)
class WithEveryInput:
    """Calls a functional model; a mask that is not fed has the number everywhere that `opening` has for it."""

    model: Any
    x_name: str
    opening: Mapping[str, int]

    def __call__(self, x: Any, *, training: bool | None = False, **masks: Any) -> Any:
        given = self.given(x, masks)
        return self.model(given if len(given) > 1 else given[0], training=training)

    def given(self, x: Any, masks: Mapping[str, Any]) -> list[Any]:
        """Its inputs, in its order."""
        fed = {**masks, self.x_name: x}
        return [fed[each.name] if each.name in fed else self._opened(each, x) for each in self.model.inputs]

    def flagging(self, x: Array) -> Iterator[Feeds]:
        """x [B, S, D] with each of its masks, of which the last column has the other number."""
        for each in self.model.inputs:
            if each.name != self.x_name:
                mask = np.array(keras.ops.convert_to_numpy(self._opened(each, x)))
                mask[..., -1] = 1 - self.opening[each.name]
                yield {"x": x, each.name: mask}

    def _opened(self, each: Any, x: Any) -> Any:
        shape = [int(x.shape[0]), *(int(x.shape[1]) if size is None else size for size in each.shape[1:])]
        return keras.ops.full(shape, self.opening[each.name], dtype=each.dtype)


def opened(model: Any, x_name: str, x: Array, made: Callable[[WithEveryInput], LiveModule]) -> LiveModule:
    """What is made of the model with the opening with which positions are mixed, and most masks hide the column that
    they flag: of numbers that are added to the scores a mask of nothing but them hides no less than none, and mixes."""
    names = [each.name for each in model.inputs if each.name != x_name]
    ways = islice(product((1, 0), repeat=len(names)), _MOST)
    calls = [WithEveryInput(model, x_name, dict(zip(names, numbers, strict=True))) for numbers in ways]
    modules = [made(call) for call in calls]
    found = [_hiding(module, call, x) for module, call in zip(modules, calls, strict=True)]
    return modules[found.index(max(found))]


def _hiding(module: LiveModule, call: WithEveryInput, x: Array) -> int:
    """How many masks hide the column that they flag; −1 where no position reaches another."""
    if not _reaches(module, {"x": x}):
        return -1
    return sum(not _reaches(module, feeds) for feeds in call.flagging(x))


def _reaches(module: LiveModule, feeds: Feeds) -> bool:
    """Whether the last position changes the first; whether a mask that is refused, or hides all, does is not known, and
    it counts as if it did not hide."""
    other = feeds["x"].copy()
    other[:, -1] += 1
    try:
        before, after = (module.run({**feeds, "x": each})["output"] for each in (feeds["x"], other))
    except ExecutionError:
        return len(feeds) > 1
    if not np.isfinite(before).all():
        return len(feeds) > 1
    return bool(np.abs(after - before)[:, 0].max() > 0)
