"""Tells that a module, called in one way, takes what it is given beside x for something else than it is."""

import numpy as np

from encoder_conformance.readers.module_target.differing import differ
from encoder_conformance.readers.module_target.lengths_of_items import counts
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.probing import features_turned
from encoder_conformance.readers.module_target.supplies import Supply
from encoder_conformance.readers.module_target.supply_options import speaks
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.spec.axes import Array

_ENOUGH = 3
"""Positions of which the last is neither of the first two."""


def is_of_any_batch(module: LiveModule, x: Array) -> bool:
    """Whether items are what they are given as: any number of them, each by itself, with all positions, and of lengths
    that count."""
    if not _takes_fewer_items(module, x) or _follows_items(module, x) or _hides_by_positions(module, x):
        return False
    guessed = (name for name, each in module.signature.arrangement.beside.items() if each.kind == "lengths")
    return all(speaks(name, "lengths") or counts(module, name, x) for name in guessed)


def of_each_position(module: LiveModule, x: Array) -> bool:
    """Whether what it is given as positions [sequence] is read as such: not where the second counts and the last does
    not, as of a pair whose items are taken for cosines and sines."""
    for name, supply in module.signature.arrangement.beside.items():
        if supply.kind != "count" or supply.axes != "S":
            continue
        counted = supply.of(*x.shape[:2])
        others = [counted.copy() for _ in range(2)]
        for each, at in zip(others, (1, -1), strict=True):
            each[at] = 0
        held = (module.giving({name: Supply("held", "S", supply.dtype, value=each)}) for each in (counted, *others))
        plain, second, last = (_output(each, x) for each in held)
        if plain is not None and second is not None and last is not None:
            return np.array_equal(plain, second) or not np.array_equal(plain, last)
    return True


def _takes_fewer_items(module: LiveModule, x: Array) -> bool:
    """Whether a mask of items is taken beside another number of them, too: one may be as many as there are heads."""
    beside = module.signature.arrangement.beside.values()
    return not any(each.kind == "full" and each.axes[0] in "BX" for each in beside) or module.takes(x[:-1])


def _follows_items(module: LiveModule, x: Array) -> bool:
    """Whether what it is given of each position stands along its items, or its heads, as of a module that takes x
    [sequence, batch, d_model]: one item depends on another."""
    if not any(each.kind in ("turning", "count") for each in module.signature.arrangement.beside.values()):
        return False
    other = x.copy()
    other[0] = -x[0]
    before, after = (module.run({"x": each})["output"][1:] for each in (x, other))
    return differ(before, after)


def _hides_by_positions(module: LiveModule, x: Array) -> bool:
    """Whether of the first two positions the last one depends on one alone: where positions, 0 and 1, are given to what
    has no name of them, and are taken for truths, as an adjacency's; or where ones are, and are taken for lengths. The
    first axis of x may be that of positions, too."""
    beside = module.signature.arrangement.beside.items()
    taken = any(
        (each.kind == "count" and not speaks(name, "count")) or (each.kind == "full" and len(each.axes) == 1)
        for name, each in beside
    )
    if min(x.shape[:2]) < _ENOUGH or not taken:
        return False
    plain = module.run({"x": x})["output"]

    def counts(*at: slice | int) -> bool:
        """Whether the last depends on what stands there."""
        moved, last = module.run({"x": features_turned(x, at)})["output"], (*at[:-1], -1)
        return differ(plain[last], moved[last])

    every = slice(None)
    return counts(0) != counts(1) or counts(every, 0) != counts(every, 1)


def _output(module: LiveModule | None, x: Array) -> Array | None:
    """The output for x [B, S, D]; None where it takes none."""
    try:
        return None if module is None else module.run({"x": x})["output"]
    except ExecutionError:
        return None
