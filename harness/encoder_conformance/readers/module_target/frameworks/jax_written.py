"""Arrays of JAX that are written part by part, as in `y.at[..., ::2].set(even).at[..., 1::2].set(odd)`: once all is
written, what was written is joined along one axis, and put in order there."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from encoder_conformance.spec.axes import Array

Scatter = Callable[[Any, Any], Any]
"""Writes the second array into the first, in places that are known."""
_UNWRITTEN = -1
_MOST = 1 << 22
"""Elements: so many numbers are told apart in float32, and these are counted in it."""


class Written(NamedTuple):
    """`value` as JAX computes it. `taken`: the element of each of its own in all `sources`, one behind the other."""

    value: Any
    taken: Array
    sources: tuple[Any, ...]


def written(before: Any, value: Any, source: Any, scatter: Scatter) -> Any:
    """What `source` was written into `before`, an array or Written, with the `value` that this has: the sources joined,
    where all of it is known to be of them along one axis."""
    if value.size + source.size > _MOST:
        return value
    sources = before.sources if isinstance(before, Written) else ()
    start = sum(each.size for each in sources)
    own = before.taken if isinstance(before, Written) else np.full(value.shape, _UNWRITTEN)
    with jax.ensure_compile_time_eval():
        numbers = start + jnp.arange(source.size, dtype=jnp.float32).reshape(source.shape)
        taken = np.asarray(scatter(jnp.asarray(own, jnp.float32), numbers)).astype(np.int64)
    found = Written(value, taken, (*sources, source))
    joined = _joined(found) if taken.min() > _UNWRITTEN else None
    return found if joined is None else joined


def _joined(found: Written) -> Any:
    """The sources joined along one axis, in order; None where no axis is that."""
    ends = np.cumsum([each.size for each in found.sources])
    whose = np.searchsorted(ends, found.taken, "right")
    for axis in range(whose.ndim):
        first = np.moveaxis(whose, axis, 0).reshape(whose.shape[axis], -1)
        if (first == first[:, :1]).all():
            parts = _parts(found, axis, first[:, 0], ends)
            if parts is not None:
                order = np.argsort(np.argsort(first[:, 0], kind="stable"), kind="stable")
                return jnp.take(jnp.concatenate(parts, axis), order, axis)
    return None


def _parts(found: Written, axis: int, whose: Array, ends: Array) -> Sequence[Any] | None:
    """Each source as it lies in the result. `whose` [places along the axis]: the number of the source of each; `ends`
    [sources]: where each source ends, where they lie one behind the other."""
    parts = []
    for number, source in enumerate(found.sources):
        places = np.flatnonzero(whose == number)
        if not places.size:
            continue
        taken = np.take(found.taken, places, axis) - (ends[number] - source.size)
        part = _turned(source, taken)
        if part is None:
            return None
        parts.append(part)
    return parts


def _turned(source: Any, taken: Array) -> Any:
    """The source in the shape of `taken`, its elements in their order but for a turn of axes; None where it is not."""
    if taken.size != source.size:
        return None
    steps = [
        int(np.take(taken, 1, axis).flat[0] - taken.flat[0]) if taken.shape[axis] > 1 else 0
        for axis in range(taken.ndim)
    ]
    turn = sorted(range(taken.ndim), key=lambda axis: (-abs(steps[axis]), axis))
    sizes = [taken.shape[axis] for axis in turn]
    back = np.argsort(turn)
    if not np.array_equal(np.arange(taken.size).reshape(sizes).transpose(back), taken):
        return None
    return source.reshape(sizes).transpose(back)
