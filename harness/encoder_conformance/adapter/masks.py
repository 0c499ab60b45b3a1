"""The masks of a run, as a Python adapter gets them (clauses M-1 to M-9)."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
"""A NumPy array of any shape and dtype, for annotations."""


@dataclass(frozen=True)
class Masks:
    """The masks of a run in the situation's format. `joined` and `added` convert every format.

    `padding`: [B, 1, 1, T], [B, 1, T], [B, T] or [T]. `attention`: [B or 1, H or 1, S, T], [B * H, S, T] or [S, T],
    queries before keys. T is S in self-attention. `bias`: [1, H, S, S], added to the scores (M-7). `causal`: a causal
    mask applies too. `sequence`: S, for the causal mask.

    `encoding`, the meaning of an element: "attend", true where a query may attend to a key; "ignore", true where it may
    not; "integer" or "float", 1 and 0 for "attend"; "additive" or "additive_float32", a number that is added to the
    score, minus infinity where it may not.

    Example: `Masks(np.array([[True, False]]), None).valid()` is [[True, False]].
    """

    padding: Array | None
    attention: Array | None
    bias: Array | None = None
    encoding: str = "attend"
    causal: bool = False
    sequence: int = 0
    padding_id: int | None = None
    """Where it is given there is no padding mask: the layer makes one, true where a token id is another (M-9). `joined`
    and `valid` leave it out. Only an implementation with the capability `padding_ids` is asked so."""

    @classmethod
    def of(cls, tensors: Mapping[str, Array], given: Mapping[str, Any]) -> "Masks":
        """The masks in the frame of a `run` request. `given`: the part of its message with their format."""
        sequence = tensors["ids" if "ids" in tensors else "x"].shape[
            0 if given["layout"] in ("sequence_first", "unbatched") else 1
        ]
        return cls(
            tensors.get("padding_mask"),
            tensors.get("attention_mask"),
            tensors.get("attention_bias"),
            given["masks"],
            given["causal_flag"],
            sequence,
            given.get("padding_id"),
        )

    def joined(self, num_heads: int = 1) -> Array | None:
        """[B or 1, H or 1, S or 1, T], true where a query may attend to a key; None if nothing is masked.

        `num_heads` separates items from heads in a mask [B * H, S, T].
        """
        masks = [self._allowed(_padding_4d(self.padding)), self._allowed(_attention_4d(self.attention, num_heads))]
        if self.causal:
            masks.append(np.tri(self.sequence, dtype=np.bool_)[None, None])
        present = [mask for mask in masks if mask is not None]
        return reduce(np.bitwise_and, present) if present else None

    def added(self, num_heads: int = 1) -> Array | None:
        """The bias of the scores, [1 or B, H, S, S], or None: `bias`, or the finite part of an additive mask."""
        if self.bias is not None or not self.encoding.startswith("additive"):
            return self.bias
        mask = _attention_4d(self.attention, num_heads)
        bias = None if mask is None else np.where(np.isneginf(mask), mask.dtype.type(0), mask)
        return bias if bias is not None and bias.any() else None

    def valid(self) -> Array | None:
        """[B, T], true at the positions that are not padding; None without a padding mask."""
        allowed = self._allowed(_padding_4d(self.padding))
        return None if allowed is None else allowed[:, 0, 0]

    def _allowed(self, mask: Array | None) -> Array | None:
        if mask is None or self.encoding == "attend":
            return mask
        if self.encoding == "ignore":
            return ~mask
        return mask != 0 if self.encoding in ("integer", "float") else ~np.isneginf(mask)


def _padding_4d(mask: Array | None) -> Array | None:
    return mask if mask is None or mask.ndim == 4 else mask.reshape(-1, 1, 1, mask.shape[-1])


def _attention_4d(mask: Array | None, num_heads: int) -> Array | None:
    if mask is None or mask.ndim == 4:
        return mask
    return mask[None, None] if mask.ndim == 2 else mask.reshape(-1, num_heads, *mask.shape[-2:])
