"""Asks a module the same twice, before anything is concluded from what it answers."""

import numpy as np

from encoder_conformance.protocol.module_description import Chance
from encoder_conformance.readers.module_target.live import Feeds, LiveModule
from encoder_conformance.readers.module_target.probing import drawn
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.spec.axes import Array

_LONG = (300, 66)
"""Numbers of positions beyond those of a probe; the second for what takes no more."""
_SAME = 1e-5
"""The relative difference of two equal answers: roundoff in float32, where the order of a sum is not fixed."""


def chance_in(module: LiveModule, x: Array) -> Chance | None:
    """How two answers to one question differ, to x or to one of as many positions as are asked; None if they are the
    same, but for roundoff.

    Attention that draws some of its keys draws all of a few (Informer's ProbAttention, of up to some 16).
    """
    if chance := _chance_in(module, {"x": x}):
        return chance
    longer = (drawn((1, positions, x.shape[-1])) for positions in _LONG if positions > x.shape[1])
    taken = next((each for each in longer if module.takes(each)), None)
    return None if taken is None else _chance_in(module, {"x": taken})


def _chance_in(module: LiveModule, feeds: Feeds) -> Chance | None:
    """The same of one question.

    Where they are drawn of the framework's random numbers the module draws the same ones in every call from here on: an
    order of sums that is drawn, too, since whatever changes with x is told from what does not to the bit.
    """
    apart = _apart(module, feeds)
    if apart <= _SAME:
        before, module.seeded = module.seeded, module.seeded or apart > 0
        module.seeded = before or (module.seeded and _apart(module, feeds) == 0)
        return None
    try:
        (first, _), (second, _) = module.watched(feeds), module.watched(feeds)
    except (ExecutionError, NotImplementedError):
        first = second = {}
    places = (place for place, value in first.items() if place in second and not np.array_equal(value, second[place]))
    name, side, _ = next(places, ("", "", 0))
    module.seeded = True
    is_drawn = _apart(module, feeds) <= _SAME
    module.seeded = is_drawn
    where = _drawn_at(module, feeds) if is_drawn else ""
    return Chance(apart=apart, seen=f"the {side} of {name}" if name else "", drawn=is_drawn, where=where)


def _drawn_at(module: LiveModule, feeds: Feeds) -> str:
    try:
        return module.drawn_at(feeds)
    except Exception:  # what it does is judged without its line
        return ""


def _apart(module: LiveModule, feeds: Feeds) -> float:
    """The largest difference of two answers, relative to the largest number in them."""
    first, second = (module.run(feeds)["output"].astype(np.float64) for _ in range(2))
    size = np.nan_to_num(np.abs(first)).max()
    return float(np.nan_to_num(np.abs(first - second)).max() / max(size, np.finfo(np.float32).tiny))
