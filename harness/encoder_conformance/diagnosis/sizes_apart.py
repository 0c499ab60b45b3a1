"""Sees that every case that failed is longer, or has more items, than each that passed.

That is no cause, but it says where to look: a table, a window or a buffer of a fixed size is right up to it. It is
said only where nothing else that was asked tells the two apart: a case that failed and one that passed differ in size
alone, and the other size does not account for it.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from encoder_conformance.diagnosis.claims import claim
from encoder_conformance.judging.records import Claim
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.situation import Situation


class AskedSize(NamedTuple):
    """A case that was asked of a layer, and whether any check of its forward pass failed."""

    layer: Layer
    situation: Situation
    failed: bool


def sizes_apart(asked: Iterable[AskedSize]) -> tuple[Claim, ...]:
    """Return up to which number of positions, or of items, all is right, and from which on all is wrong; () if neither
    tells what passed from what failed. `asked`: of layers that are named alike, in one format."""
    asked = list(asked)
    wrong = [each for each in asked if each.failed]
    of_wrong = {each.layer for each in wrong}
    right = [each for each in asked if not each.failed and each.layer in of_wrong]
    if not right or not wrong:
        return ()
    return tuple(_claims(right, wrong))


def _claims(right: list[AskedSize], wrong: list[AskedSize]) -> Iterator[Claim]:
    longest, shortest = max(map(_positions, right)), min(map(_positions, wrong))
    most, fewest = max(map(_items, right)), min(map(_items, wrong))
    # One position attends to itself alone, whatever its score is: that is no size that a table or a window has.
    if 1 < longest < shortest and fewest <= most and _are_alike(right, wrong):
        fewer = max(map(_items, wrong)), min(map(_items, right))
        if fewer[0] < fewer[1]:  # long cases are of one item
            yield claim("right-up-to-positions-of-items", right=longest, wrong=shortest, items=fewer[1])
        else:
            yield claim("right-up-to-positions", right=longest, wrong=shortest)
    if most < fewest and shortest <= longest and _are_alike(right, wrong):
        yield claim("right-up-to-items", right=most, wrong=fewest)


def _positions(each: AskedSize) -> int:
    return each.situation.sequence


def _items(each: AskedSize) -> int:
    return each.situation.batch


def _are_alike(right: list[AskedSize], wrong: list[AskedSize]) -> bool:
    """Whether a case that failed differs from one of its layer that passed in no more than its sizes."""
    passed = [(each.layer, _conditions(each.situation)) for each in right]
    return any((each.layer, _conditions(each.situation)) in passed for each in wrong)


def _conditions(situation: Situation) -> tuple[object, ...]:
    """What a situation asks, beside its sizes and the numbers that are made for them."""
    mask, memory = situation.mask, situation.memory
    kinds = (mask.padding and mask.padding.kind, mask.attention and mask.attention.kind, mask.bias)
    given = (situation.given, situation.mode, situation.positions is None, memory is None)
    return (*kinds, *given, situation.input, situation.parameter_exponents)
