"""A profile: the seconds that an implementation spends on each stage, the most expensive first."""

from dataclasses import dataclass

import numpy as np

from encoder_conformance.wire.frames import WHOLE, Tensors

FEWEST = 5
"""Of fewer passes the quartiles are as good as the extremes, and no stage is named."""


@dataclass(frozen=True)
class StageTime:
    """`seconds` is the median over the repeats, `share` its part of the sum of all stages' medians, 0 … 1.

    Half of the passes lie between the quartiles `lower` and `upper`, all of them between `least` and `most`.
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
    """`whole` is the median of a pass by the path that a user takes, in seconds, where nothing is shown or held up.

    `most_expensive`: the stage with the largest median, and after it those that cannot be told from it, since their
    upper quartile reaches its lower one; empty where there were fewer than `FEWEST` passes.
    """

    stages: list[StageTime]
    total: float
    whole: float
    most_expensive: list[str]


def times(observed: Tensors, repeats: int) -> Times:
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
        StageTime(name, seconds, seconds / total if total else 0.0, *_spread(observed[name]))
        for name, seconds in sorted(medians.items(), key=lambda item: -item[1])
    ]
    first, *others = stages
    like_it = [stage.stage for stage in others if stage.upper >= first.lower]
    return Times(stages, total, whole, [first.stage, *like_it] if repeats >= FEWEST else [])


def _spread(seconds: np.ndarray) -> tuple[float, float, float, float]:
    """The quartiles, the least and the most."""
    lower, upper = np.quantile(seconds, (0.25, 0.75))
    return float(lower), float(upper), float(seconds.min()), float(seconds.max())
