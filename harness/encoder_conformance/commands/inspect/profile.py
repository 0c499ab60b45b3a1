"""A profile: the seconds that an implementation takes for each stage, the most expensive first."""

from dataclasses import dataclass

import numpy as np

from encoder_conformance.protocol.frames import WHOLE, Tensors

FEWEST = 5
"""The fewest passes for which quartiles differ from extremes; with fewer, no stage is named most expensive."""


@dataclass(frozen=True)
class StageTime:
    """The time of one stage. `seconds` is the median over the repeats, `share` its share of the stages' total, 0 … 1.

    `lower` and `upper` are the quartiles, `least` and `most` the extremes, in seconds.
    """

    stage: str
    seconds: float
    share: float
    lower: float
    upper: float
    least: float
    most: float


@dataclass(frozen=True)
class Times:
    """`total` is the sum of the stages' medians, `whole` the median of an ordinary, uninstrumented pass, in seconds.

    `most_expensive`: the stage with the largest median, then those that are indistinguishable from it, since their
    upper quartile reaches its lower one; empty with fewer than `FEWEST` passes.
    """

    stages: list[StageTime]
    total: float
    whole: float
    most_expensive: list[str]


def times(observed: Tensors, repeats: int) -> Times:
    """The stages sorted by cost. Raises ValueError if `observed` is not seconds [repeats] by stage and `whole`."""
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
        StageTime(name, seconds, seconds / total if total else 0.0, *_spread(observed[name]))
        for name, seconds in sorted(medians.items(), key=lambda item: -item[1])
    ]
    first, *others = stages
    indistinguishable = [stage.stage for stage in others if stage.upper >= first.lower]
    return Times(stages, total, whole, [first.stage, *indistinguishable] if repeats >= FEWEST else [])


def _spread(seconds: np.ndarray) -> tuple[float, float, float, float]:
    """The quartiles, the least and the largest value of `seconds` [repeats]."""
    lower, upper = np.quantile(seconds, (0.25, 0.75))
    return float(lower), float(upper), float(seconds.min()), float(seconds.max())
