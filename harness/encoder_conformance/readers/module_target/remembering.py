"""Finds out whether a call leaves something behind in a module, and whether its later answers depend on that."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress

import numpy as np

from encoder_conformance.protocol.module_description import Kept
from encoder_conformance.readers.module_target.live import Feeds, HeldState
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.spec.axes import Array

_SAME = 1e-5
"""The relative difference of two equal answers: roundoff in float32, where the order of a sum is not fixed."""
_MOST_NAMES = 4
State = Mapping[str, Array]
"""Path → what is held there beside the parameters."""


def kept_by_object(
    run: Callable[[Feeds], Array], now: Callable[[], HeldState], feeds: Feeds, place: Callable[[str], str]
) -> tuple[Kept, HeldState] | None:
    """What a call of a module leaves in it that was not called before, and what it held then; None: nothing.

    `run` gives the output, in the shape of x; `place`: the path of what is changed → by what it is.
    """
    fresh = now()
    first = run(feeds)
    names = fresh.changed()
    if not names:
        return None
    called = now()
    run(_other(feeds))
    again = called.changed()
    apart = _apart(first, run(feeds))
    for other in _cut(feeds):
        with suppress(ExecutionError):  # of a module that takes so many positions alone
            run(other)
            apart = max(apart, _apart(first, run(feeds)))
    fresh.restore()
    by = place((again or names)[0])
    fresh.restore()
    return _kept(names, again, by, apart), fresh


def kept_by_masks(
    run: Callable[[Feeds], Array], fresh: HeldState, plain: Feeds, masked: Feeds, place: Callable[[str], str]
) -> Kept | None:
    """The same of a call with masks, where one without leaves nothing. `fresh`: what is held before it, and then is
    again."""
    fresh.restore()
    first = run(plain)
    run(masked)
    names, apart = fresh.changed(), 0.0
    with suppress(ExecutionError):
        apart = _apart(first, run(plain))
    fresh.restore()
    if not names:
        return None
    by = place(names[0])
    fresh.restore()
    return Kept(names=names[:_MOST_NAMES], by=by, once=True, apart=apart if apart > _SAME else 0.0, masked=True)


def kept_by_function(step: Callable[[State, Feeds], tuple[Array, State]], held: State, feeds: Feeds) -> Kept | None:
    """The same of a function (state, feeds) → the output, in the shape of x, and the state after it."""
    first, after = step(held, feeds)
    names = _differing(held, after)
    if not names:
        return None
    _, last = step(after, _other(feeds))
    return _kept(names, _differing(after, last), "", _apart(first, step(last, feeds)[0]))


def _kept(names: tuple[str, ...], again: tuple[str, ...], by: str, apart: float) -> Kept:
    return Kept(names=(again or names)[:_MOST_NAMES], by=by, once=not again, apart=apart if apart > _SAME else 0.0)


def _other(feeds: Feeds) -> dict[str, Array]:
    """The feeds with another x of the same shape."""
    return {**feeds, "x": np.ascontiguousarray(2 * feeds["x"][::-1] + 1).astype(feeds["x"].dtype)}


def _cut(feeds: Feeds) -> Iterator[dict[str, Array]]:
    """The feeds with a shorter x: in each of its axes but that of features, which of them its positions are."""
    for axis in range(feeds["x"].ndim - 1):
        yield {**feeds, "x": np.ascontiguousarray(feeds["x"].take(range(1, feeds["x"].shape[axis]), axis))}


def _differing(before: State, after: State) -> tuple[str, ...]:
    return tuple(_paths_differing(before, after))


def _paths_differing(before: State, after: State) -> Iterable[str]:
    for path, value in after.items():
        if path not in before or not np.array_equal(before[path], value, equal_nan=value.dtype.kind == "f"):
            yield path


def _apart(one: Array, two: Array) -> float:
    """The largest difference of two outputs of one shape, relative to the largest number in the first."""
    one, two = one.astype(np.float64), two.astype(np.float64)
    size = max(np.nan_to_num(np.abs(one)).max(), np.finfo(np.float32).tiny)
    return float(np.nan_to_num(np.abs(one - two)).max() / size)
