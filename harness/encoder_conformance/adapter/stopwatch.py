"""Measures time for `profile`: seconds by the monotonic clock, after one pass to warm up."""

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from encoder_conformance.adapter.masks import Array


def timed(work: Callable[[], object], repeats: int) -> Array:
    """The seconds of each of `repeats` calls of `work`, [repeats] float64, after one call to warm up.

    `work` waits for an asynchronous device itself. Example: `timed(lambda: layer(x), repeats=10).min()`.
    """
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
    """Stage → the seconds from the previous tap to its own, [repeats] float64, for an eager `forward(tap)`.

    `settle` waits until an asynchronous device is done. Work between two taps that is no stage of its own, such as a
    mask or a reshaping, counts to the stage that follows.

    Example: `between_taps(lambda tap: layer(x, tap=tap), repeats=10)["norm1"]`.
    """
    seconds: dict[str, Array] = {}
    last = 0.0
    for repeat in range(-1, repeats):  # pass −1 warms up; pass 0 overwrites its times

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
