"""What a mask does that hides no position that it flags, or not as a mask does: it is not read, lies along the queries,
hides another position, hides what it flags in a part of attention, changes what other positions get and leaves it to be
attended to, or raises what it leaves."""

from contextlib import suppress

import numpy as np

from encoder_conformance import Tensors
from encoder_conformance.protocol.arguments import MaskEffect
from encoder_conformance.protocol.description import Port
from encoder_conformance.readers.module_target.differing import differ
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.probing import drawn, features_turned
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics
from encoder_conformance.readers.onnx_file.interface.mask_semantics import MaskSemantics, polarities_of
from encoder_conformance.spec.axes import Array

_SAME = 1e-5
"""Of the output's largest number: more than another order of the same sums leaves."""
_LESS = 0.9
"""A position that keeps less than this share of its influence, and of what any other keeps, is hidden in part."""


def effect_of(runner: LiveModule, found: InputSemantics, name: str, like: Array) -> tuple[MaskEffect | None, int]:
    """What flagging one position does, and by how many positions it is shifted; `like`: a mask of its form."""
    answers = list[tuple[MaskEffect | None, int]]()
    for shut in (1, 0) if found.S in like.shape else ():
        with suppress(ExecutionError):
            answers.append(_effect(runner, found, name, np.full_like(like, 1 - shut), shut))
    seen = [each for each in answers if each[0] is not None]
    telling = (each for each in seen if each[0] != "attended")  # of what is open, the rest changes, and none is hidden
    return next(telling, seen[0] if seen else (None, 0))


def _effect(
    runner: LiveModule, found: InputSemantics, name: str, opened: Array, shut: int
) -> tuple[MaskEffect | None, int]:
    flagged, at = opened.copy(), found.S - 2
    axis = max(a for a, size in enumerate(opened.shape) if size == found.S)
    flagged.swapaxes(axis, -1)[..., at] = shut
    masks = [{name: opened}, {name: flagged}]
    before, after = (_output(runner, found, each) for each in masks)
    changed = np.flatnonzero(_apart(before, after)).tolist()
    if not changed:
        return None, 0
    if changed == [at]:
        before, after = (_output(runner, found, each, equal=True) for each in masks)
        of_weights = not np.isfinite(after[:, at]).all() or not _apart(before, after).any()
        return ("queries" if of_weights else None), 0
    others = ~np.eye(found.S, dtype=np.bool_)
    seen, left = (_influence(runner, found, each) * others for each in masks)
    hidden = [i for i in range(found.S) if (seen[i] > _SAME).any() and not (left[i] > _SAME).any()]
    if len(hidden) == 1 and hidden != [at]:
        return "shifted", hidden[0] - at
    with np.errstate(all="ignore"):
        kept = left.sum(1) / seen.sum(1)
    return ("part" if kept[at] < _LESS * min(1.0, *np.delete(kept, at)) else "attended"), 0


def _influence(runner: LiveModule, found: InputSemantics, masks: Tensors) -> Array:
    """[S, S], how far each position of x changes each of the output, by its largest number."""
    plain = _output(runner, found, masks)
    most = np.abs(plain[np.isfinite(plain)]).max(initial=0.0) or 1.0
    moved = (_output(runner, found, masks, i) - plain for i in range(found.S))
    return np.stack([np.abs(each).max((0, 2)) / most for each in moved])


def _output(
    runner: LiveModule, found: InputSemantics, masks: Tensors, turned: int | None = None, equal: bool = False
) -> Array:
    """[B, S, D], of an x whose features are `turned` at one position, since a norm takes a sum away; or whose positions
    are all `equal`: no weights of attention are seen then."""
    x = found.batch_first(drawn(found.x_shape(found.B, found.S))).copy()
    if equal:
        x[:] = x[:, :1]
    if turned is not None:
        x = features_turned(x, np.s_[:, turned])
    return found.batch_first(runner.run({"x": found.laid_out(x), **masks})["output"])


def _apart(one: Array, other: Array) -> Array:
    """[S], whether any number of a position is another."""
    most = np.abs(one[np.isfinite(one)]).max(initial=0.0)
    alike: Array = np.isclose(one, other, rtol=0, atol=_SAME * most, equal_nan=True)
    apart: Array = np.logical_not(alike.all((0, 2)))
    return apart


def is_unread(runner: LiveModule, found: InputSemantics, port: Port) -> bool:
    """Whether the output is to the bit the same whatever half of its keys a mask flags, as of an argument that is
    ignored: three calls, for the hundred of a whole probe."""
    x, shape = drawn(found.x_shape(found.B, found.S)), tuple(size for size in port.shape or () if isinstance(size, int))
    bare, flags = runner.run({"x": x})["output"], np.indices(shape).sum(0) % 2 == 1
    for polarity in polarities_of(port.dtype):
        mask = np.where(flags, polarity.shut, polarity.open).astype(port.dtype)
        if not np.array_equal(runner.run({"x": x, port.name: mask})["output"], bare):
            return False
    return bool(np.isfinite(bare).all())


def raises(runner: LiveModule, found: InputSemantics, mask: MaskSemantics) -> bool:
    """Whether a mask hides by a large number that is added to, or stands in the place of, the scores that it leaves:
    one that hides all is then as none, and one that hides nothing is not. A module that refuses the first hides."""
    if mask.polarity is None or mask.polarity.meaning == "additive":
        return False
    x, numbers = drawn(found.x_shape(found.B, found.S)), (mask.polarity.shut, mask.polarity.open)
    bare = runner.run({"x": x})["output"]
    try:
        hidden, opened = (runner.run({"x": x, mask.name: mask.filled(number)})["output"] for number in numbers)
    except ExecutionError:
        return False
    return not differ(bare, hidden) and differ(bare, opened)
