"""The edits of masks that a patch may name (rule V-2)."""

from collections.abc import Callable, Sequence

import numpy as np

from encoder_conformance.spec.axes import Bools
from encoder_conformance.spec.case import Case, causal_mask, joined
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.masking import Causal
from encoder_conformance.spec.stages import appended_keys


def edited_mask(case: Case, mask: Bools | None, edit: str | None) -> Bools | None:
    """The mask after the edit (rule V-2). Masks are None or bool, broadcastable to [B, H, S, S]."""
    if edit is None:
        return mask
    padding, attention = case.padding_mask(), case.attention_mask()
    if edit in _WHOLE:
        return mask if mask is None else _WHOLE[edit](mask)
    if edit in OF_CAUSAL:
        causal = isinstance(case.situation.mask.attention, Causal)
        return joined(padding, OF_CAUSAL[edit](case.situation.sequence)) if causal else mask
    match edit:
        case "ignored":
            return None
        case "causal":
            return joined(mask, causal_mask(case.situation.sequence))
        case "padding-only":
            return padding
        case "attention-only":
            return attention
        case "on-queries":
            return joined(None if padding is None else padding.swapaxes(-1, -2), attention)
        case _:  # transposed
            return joined(padding, None if attention is None else attention.swapaxes(-1, -2))


_WHOLE: dict[str, Callable[[Bools], Bools]] = {
    "inverted": lambda mask: ~mask,
    "shifted": lambda mask: np.roll(mask, 1, axis=-1),
    "first-item": lambda mask: np.broadcast_to(mask[:1], mask.shape),
    "reversed": lambda mask: mask[..., ::-1],
}
OF_CAUSAL: dict[str, Callable[[int], Bools]] = {
    "without-diagonal": lambda sequence: causal_mask(sequence, -1),
    "one-ahead": lambda sequence: causal_mask(sequence, 1),
}


OF_ONE_SEQUENCE = frozenset({"causal", "on-queries", "transposed", *OF_CAUSAL})
"""Mask edits that take positions of keys for positions of queries."""


def leaves_an_empty_row(case: Case, deviations: Sequence[Deviation]) -> bool:
    """Whether these deviations edit the mask, and leave some query no key."""
    mask = case.mask()
    for edit in (deviation.patch.mask for deviation in deviations):
        mask = edited_mask(case, mask, edit)
    edited = any(deviation.patch.mask for deviation in deviations)
    return edited and not appended_keys(case.layer) and mask is not None and not mask.any(axis=-1).all()
