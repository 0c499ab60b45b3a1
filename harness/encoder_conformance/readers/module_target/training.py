"""Asks whether the gradients of a module in training are those of its output, with the elements that this dropped."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from encoder_conformance.protocol.way_back import WayBackAnswer
from encoder_conformance.readers.module_target.errors import error_line
from encoder_conformance.readers.module_target.live import Feeds, LiveModule
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.dtypes import DtypeName

_STEP: Mapping[str, float] = {"float64": 1e-6, "float32": 2e-3}
"""Of central differences: at the smaller one a kink of ReLU is met once in a thousand modules."""
_FAR: Mapping[str, float] = {"float64": 1e-4, "float32": 5e-2}
"""A distance that is no rounding, and no kink. The gradient of another mask is 0.1 and more away."""
_NOISE: Mapping[str, float] = {"float64": 1e-12, "float32": 1e-5}
"""The distance of two equal outputs, of their size."""
_DIRECTIONS = 2
"""A gradient is wrong where it is in all of them: a kink is met in one."""


@dataclass(frozen=True)
class _Change:
    """The change of sum(output * cotangent) along one direction, as the gradients say it and as the output shows it."""

    said: float
    shown: float
    size: float
    """The root mean square of what the gradients say, over directions."""

    @property
    def distance(self) -> float:
        found = abs(self.said - self.shown) / (self.size or 1.0)
        return found if np.isfinite(found) else np.inf


def with_dropout(module: LiveModule, feeds: Feeds, cotangent: Array, dtype: DtypeName) -> WayBackAnswer:
    """The answer for this copy, which is in eval mode. `cotangent`: in the shape of x."""
    try:
        training = module.in_training(seed=1)
        if _alike(training.call(feeds), training.call(feeds), dtype):
            return _compared(module, training, feeds, cotangent, dtype)
        return _not_repeatable(training, feeds, cotangent, dtype)
    except NotImplementedError as error:
        return _answer("not-asked", str(error))
    except Exception as error:  # whatever a module does in training
        return _answer("not-asked", f"gradients with dropout on were not asked: in training {error_line(error)}")


def _compared(
    module: LiveModule, training: LiveModule, feeds: Feeds, cotangent: Array, dtype: DtypeName
) -> WayBackAnswer:
    nearest = _nearest(training, feeds, cotangent, dtype)
    if nearest.distance <= _FAR[dtype]:
        return _answer("pass", distance=nearest.distance)
    if _nearest(module, feeds, cotangent, dtype).distance > _FAR[dtype]:
        text = "gradients with dropout on were not asked: those in eval mode are not the changes of the output either"
        return _answer("not-asked", text)
    drops = not _alike(training.call(feeds), module.in_training(seed=2).call(feeds), dtype)
    wrong = "with dropout on, the gradient is not that of the mask that the output shows"
    text = (
        f"{wrong if drops else 'in training, the gradient is not that of the output'}: along a random direction it "
        f"says {nearest.said:.4g}, and with the same seed the output changes by {nearest.shown:.4g}"
    )
    return _answer("fail", text, nearest.distance)


def _not_repeatable(training: LiveModule, feeds: Feeds, cotangent: Array, dtype: DtypeName) -> WayBackAnswer:
    """A module that draws from where no seed reaches: its gradients are asked twice of one output."""
    text = "gradients with dropout on were not compared with the output: with one seed it drops others each time"
    pair = training.backward_twice(feeds, cotangent)
    if pair is None:
        return _answer("not-asked", text)
    one, other = pair
    distance = float(np.linalg.norm(one - other) / (np.linalg.norm(one) or 1.0))
    if distance <= _FAR[dtype]:
        return _answer("not-asked", text)
    text = (
        "with dropout on, the gradient is not that of the mask that the output shows: of one output, asked twice, it "
        f"is another by {distance:.2g} of its size"
    )
    return _answer("fail", text, distance)


def _nearest(module: LiveModule, feeds: Feeds, cotangent: Array, dtype: DtypeName) -> _Change:
    """The change along that of several random directions, of x and of all parameters, where the two are nearest."""
    x, flat = feeds["x"], module.flat()
    by_x, own = module.backward(feeds, cotangent)
    widths = np.ones_like(x), np.abs(flat) + 0.1 * np.sqrt(np.mean(np.square(flat)))
    size = float(np.sqrt(sum(np.sum(np.square(g * w)) for g, w in zip((by_x, own), widths, strict=True))))
    found = []
    for number in range(_DIRECTIONS):
        draw = np.random.default_rng(number)
        by, along = (draw.normal(size=width.shape) * width for width in widths)
        said = float(np.sum(by_x * by) + np.sum(own * along))
        ends = []
        for step in (_STEP[dtype], -_STEP[dtype]):
            module.assign((flat + step * along).astype(flat.dtype))
            output = module.call({**feeds, "x": (x + step * by).astype(x.dtype)})
            ends.append(float(np.sum(output.astype(np.float64) * cotangent)))
        module.assign(flat)
        found.append(_Change(said, (ends[0] - ends[1]) / (2 * _STEP[dtype]), size))
    return min(found, key=lambda change: change.distance)


def _alike(one: Array, other: Array, dtype: DtypeName) -> bool:
    return bool(np.linalg.norm(one - other) <= _NOISE[dtype] * np.linalg.norm(one))


def _answer(
    outcome: Literal["pass", "fail", "not-asked"], message: str = "", distance: float | None = None
) -> WayBackAnswer:
    return WayBackAnswer(name="dropout-gradient", outcome=outcome, distance=distance, message=message)
