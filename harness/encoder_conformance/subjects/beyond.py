"""Cases at sizes beyond the core's, which need no golden: whole blocks of keys with padding, and many items."""

from collections.abc import Collection, Iterator

from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import load
from encoder_conformance.spec.masking import EndPadding
from encoder_conformance.spec.situation import Situation

_BLOCKS = 256
"""A multiple of every usual block of keys, and beyond every length at which a kernel is chosen."""
_UNSORTED = 4, 6, 1, 5, 2, 6, 3, 6, 1, 4, 6, 2, 5, 3, 6, 1, 5
"""Lengths of an odd number of items, more than one chunk of 8 or of 16."""


def cases_beyond(layer: Layer, dtypes: Collection[str]) -> Iterator[Case]:
    """The same equations, where code takes another path: one position, whole blocks, and more items than a chunk.

    In these formats alone: σ of a narrow one takes four times the runs.
    """
    single = load().situations["single-position"]
    blocks = _sized("blocks-padded", (_BLOCKS - 6,), _BLOCKS, dtypes)
    items = _sized("items-many", _UNSORTED, max(_UNSORTED), dtypes)
    yield from (Case(layer, situation) for situation in (single, blocks, items))


def _sized(name: str, lengths: tuple[int, ...], sequence: int, dtypes: Collection[str]) -> Situation:
    """Items of these lengths, padded on the right: the output alone."""
    padded = load().situations["padding-right"]
    changed = {
        "situation": name, "batch": len(lengths), "sequence": sequence, "equals": None, "checks": ("output",),
        "mask": {**padded.mask.model_dump(), "padding": EndPadding(kind="right", lengths=lengths).model_dump()},
        "dtypes": tuple(name for name in FORMATS if name in dtypes),
    }  # fmt: skip
    return Situation.model_validate({**padded.model_dump(), **changed})
