"""Time, as `profile` measures it: seconds by the monotonic clock, after one pass that is not counted."""

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def timed(work: Callable[[], object], repeats: int) -> Array:
    """How long `work` takes, in seconds, [repeats] float64. It is done once more, before, to warm up."""
    seconds = np.zeros(repeats)
    work()
    for repeat in range(repeats):
        begun = perf_counter()
        work()
        seconds[repeat] = perf_counter() - begun
    return seconds


def between_taps(
    forward: Callable[[Callable[[str, Any], Any]], object], repeats: int, settle: Callable[[], None] = lambda: None
) -> dict[str, Array]:
    """Stage → the seconds from the tap before it to its own, [repeats] float64, for an eager `forward(tap)`.

    `settle` waits until the device has done what it was asked for. What stands between two taps and is no stage of
    its own, a mask or a reshaping, is counted to the stage that follows.
    """
    seconds: dict[str, Array] = {}
    last = 0.0
    for repeat in range(-1, repeats):  # the pass numbered −1 warms up; the first real one writes over it

        def tap(name: str, stage: Any, at: int = max(repeat, 0)) -> Any:
            nonlocal last
            settle()
            now = perf_counter()
            seconds.setdefault(name, np.zeros(repeats))[at] = now - last
            last = perf_counter()
            return stage

        settle()
        last = perf_counter()
        forward(tap)
    return seconds
