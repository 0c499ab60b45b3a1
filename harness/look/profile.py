"""A profile: the seconds that an implementation spends on each stage, the most expensive first."""

from dataclasses import dataclass

import numpy as np

from harness.wire.frames import WHOLE
from harness.worker.session import Observation


@dataclass(frozen=True)
class StageTime:
    """`seconds` is the median over the repeats, `share` its part of the sum of all stages' medians, 0 … 1."""

    stage: str
    seconds: float
    share: float
    least: float
    most: float


@dataclass(frozen=True)
class Times:
    """`whole` is the median of a pass by the road that a user takes, in seconds, where nothing is shown or held up."""

    stages: list[StageTime]
    total: float
    whole: float


def times(observed: Observation, repeats: int) -> Times:
    """Sorted by cost. Raises ValueError with what is wrong, if the answer is not seconds by stage and `whole`."""
    for name, seconds in observed.items():
        if seconds.shape != (repeats,) or seconds.dtype != np.float64:
            raise ValueError(f"{name}: {seconds.dtype} {list(seconds.shape)} instead of float64 [{repeats}]")
        if not np.isfinite(seconds).all() or (seconds < 0).any():
            raise ValueError(f"{name}: {seconds.min():g} s is no time")
    if WHOLE not in observed or len(observed) < 2:
        raise ValueError(f"no stage was timed, or {WHOLE!r} is missing")
    medians = {name: float(np.median(seconds)) for name, seconds in observed.items()}
    whole = medians.pop(WHOLE)
    total = sum(medians.values())
    stages = [
        StageTime(name, seconds, seconds / total if total else 0.0, *_range(observed[name]))
        for name, seconds in sorted(medians.items(), key=lambda item: -item[1])
    ]
    return Times(stages, total, whole)


def _range(seconds: np.ndarray) -> tuple[float, float]:
    return float(seconds.min()), float(seconds.max())
