"""Gradients against central differences of the output along random directions, with the same draws (rule Q-5)."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.dtypes import DtypeName

FAR: Mapping[str, float] = {"float64": 1e-4, "float32": 5e-2}
"""A distance that is no rounding. The gradient of another mask is 0.1 and more away."""
_STEP: Mapping[str, float] = {"float64": 1e-8, "float32": 2e-4}
"""Of central differences, as short as rounding allows: a kink of ReLU that is met adds to the distance."""
_DIRECTIONS = 2
"""A gradient is wrong where it is in all of them: a kink is met in one."""
Loss = Callable[[dict[str, Array]], float]
"""(x and parameters, each moved) → sum(output * cotangent)."""


@dataclass(frozen=True)
class ChangeAlong:
    """The change of sum(output * cotangent) along one direction: as the gradients say it, and as the output shows it.

    `size`: the root mean square of what the gradients say, over directions.
    """

    said: float
    shown: float
    size: float

    @property
    def distance(self) -> float:
        """How far the two are apart, of that size."""
        found = abs(self.said - self.shown) / (self.size or 1.0)
        return found if np.isfinite(found) else np.inf

    def __str__(self) -> str:
        return (
            f"along a random direction it says {self.said:.4g}, and with the same seed the output changes by "
            f"{self.shown:.4g}"
        )


def nearest_change(
    values: Mapping[str, Array], gradients: Mapping[str, Array], loss: Loss, dtype: DtypeName
) -> ChangeAlong:
    """The change along the first direction where the two are near, else where they are nearest.

    `values`: x under "x", and parameters; `gradients`: those by them, and 0 by what is not there.
    """
    found: list[ChangeAlong] = []
    for change in _changes(values, gradients, loss, _STEP[dtype]):
        found.append(change)
        if change.distance <= FAR[dtype]:
            break
    return min(found, key=lambda change: change.distance)


def _changes(
    values: Mapping[str, Array], gradients: Mapping[str, Array], loss: Loss, step: float
) -> Iterator[ChangeAlong]:
    least = 0.1 * float(np.sqrt(np.mean(np.square(values["x"]))))
    widths = {name: np.abs(values[name]) + least for name in gradients}
    size = float(np.sqrt(sum(float(np.sum(np.square(gradients[name] * widths[name]))) for name in gradients)))
    for number in range(_DIRECTIONS):
        draw = np.random.default_rng(number)
        along = {name: draw.normal(size=width.shape) * width for name, width in widths.items()}
        said = float(sum(np.sum(gradients[name] * along[name]) for name in gradients))
        ends = []
        for signed in (step, -step):
            moved = {name: (values[name] + signed * by).astype(values[name].dtype) for name, by in along.items()}
            ends.append(loss({**values, **moved}))
        yield ChangeAlong(said, (ends[0] - ends[1]) / (2 * step), size)
