"""Whether a part of a module is one that was examined before, but for its numbers: layers of a stack mostly are."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from encoder_conformance import Masks
from encoder_conformance.protocol.module_description import ModuleDescription
from encoder_conformance.readers.module_target.describing import described
from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.readers.module_target.examination import Examination
from encoder_conformance.readers.module_target.feeding import module_feeds
from encoder_conformance.readers.module_target.live import Feeds, LiveModule
from encoder_conformance.readers.module_target.local import long_enough
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics
from encoder_conformance.readers.onnx_file.interface.mask_inputs import UnsupportedMask
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.dtypes import FORMATS, DtypeName

MOST_AS_ONE = 1 << 24
"""Parameters of a model of several layers that is read as one: beyond, each layer is by itself, in a fraction of the
time."""
_LONG = (300, 66)
"""Lengths beyond the windows that a layer usually has: the first that is taken."""
_ASKED = 4
"""Of the lengths that it takes, where it does not take any, about as many."""
_SPREAD = 0.1
"""By how much each parameter is moved: what was drawn as zero, or as one, would hide what is made of it."""


@dataclass(frozen=True)
class _Asked:
    """What a part answers in one format with the parameters `moved`, all elements [n]; None for what it refuses."""

    shapes: Mapping[str, tuple[int, ...]]
    moved: Array
    answers: Sequence[tuple[Feeds, Array | None]]


@dataclass(frozen=True)
class ExaminedBefore:
    """The part at this path, as it was given, and what was found of it. It is asked once for all others."""

    at: str
    given: Any
    found: Examination
    _asked: dict[DtypeName, _Asked] = field(default_factory=dict, repr=False, compare=False)

    def values_of(self, given: Any) -> dict[str, Array] | None:
        """The own values of another part of one model that computes the same of x, masks and parameters: the same
        classes with the same settings, and the same bits in every call with the same parameters. None for another."""
        found, framework = self.found, self.found.framework
        proved = found.proof is not None and found.proof.holds  # else it has to be asked by itself, if it is a layer
        if found.folded or not (proved or found.mapped_to is None) or not framework.are_alike(self.given, given):
            return None
        try:
            live = framework.live(given)
            live = live.arranged(found.module.signature.arrangement) or live
        except BadTarget:
            return None
        if live.signature != found.module.signature or live.formats != found.module.formats:
            return None
        if not all(self._is_answered_by(live.bare(), dtype) for dtype in found.dtypes):
            return None
        return found.map.held(live.flat()) if found.map else {}

    @cached_property
    def described(self) -> ModuleDescription:
        """What is told of each that is like it, too."""
        return described(self.found)

    def _is_answered_by(self, live: LiveModule, dtype: DtypeName) -> bool:
        try:
            other = live.in_dtype(dtype)
            if dtype not in self._asked:
                self._asked[dtype] = _asked(self.found, dtype)
        except ExecutionError:
            return False
        due = self._asked[dtype]
        if other.shapes != due.shapes:
            return False
        other.assign(due.moved)
        return all(_same(_answer(other, feeds), answer) for feeds, answer in due.answers)


def _asked(found: Examination, dtype: DtypeName) -> _Asked:
    """Raises ExecutionError for a format that it cannot have."""
    one = found.read.in_dtype(dtype)
    flat = one.flat()
    moved = flat + _SPREAD * np.random.default_rng(5).standard_normal(flat.shape).astype(flat.dtype)
    one.assign(moved)
    questions = [*_questions(found, dtype)]
    long = (_feeds(found, replace(found.semantics.at_length(S), B=1), dtype, 1) for S in _LONG)
    taken = next((feeds for feeds in long if not found.lengths and one.takes(feeds["x"])), None)
    if taken is not None:
        questions.append(taken)
    return _Asked(one.shapes, moved, [(feeds, _answer(one, feeds)) for feeds in questions])


def _questions(found: Examination, dtype: DtypeName) -> Iterator[Feeds]:
    """x of several items, without a mask and with one that hides some positions and all of an item, or of a query; and
    one item of one position, or at each length that it takes."""
    semantics, layer = found.semantics, found.mapped_to
    heads, long = 1 if layer is None else layer.attention.num_heads, long_enough(semantics, layer).S
    yield _feeds(found, semantics, dtype, heads)
    for masks in _hiding(semantics):
        with suppress(UnsupportedMask):
            yield _feeds(found, semantics, dtype, heads, masks)
            break
    some = found.lengths[:: max(1, len(found.lengths) // _ASKED)]
    for S in dict.fromkeys((*some, *found.lengths[-1:]) or (1, long)):
        yield _feeds(found, replace(semantics.at_length(S), B=1), dtype, heads)


def _hiding(of: InputSemantics) -> Iterator[Masks]:
    """Masks of keys for each item, and of keys for each query, since a layer may take one of the two, or none."""
    rng = np.random.default_rng((7, of.S))
    for shape in ((of.B, 1, 1, of.S), (1, 1, of.S, of.S)):
        allowed = rng.random(shape) > 1 / 3
        allowed[0, ..., 0, :] = False
        padding, attention = (allowed, None) if shape[2] == 1 else (None, allowed)
        yield Masks(padding, attention, sequence=of.S)


def _feeds(found: Examination, of: InputSemantics, dtype: DtypeName, heads: int, masks: Masks | None = None) -> Feeds:
    rng = np.random.default_rng((5, of.S))
    x = rng.standard_normal((of.B, of.S, of.d_model)).astype(FORMATS[dtype].numpy)
    return module_feeds(of, x, masks or Masks(None, None, sequence=of.S), heads, always_causal=found.always_causal)


def _answer(module: LiveModule, feeds: Feeds) -> Array | None:
    """None for what it does not take."""
    try:
        return module.run(feeds)["output"]
    except (ExecutionError, NotImplementedError):
        return None


def _same(mine: Array | None, others: Array | None) -> bool:
    """Whether two answers, both [*shape], are one; two refusals are."""
    if mine is None or others is None:
        return mine is others
    return np.array_equal(mine, others, equal_nan=True)
