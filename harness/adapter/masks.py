"""The masks of a run, as a Python adapter is given them (clauses M-1 to M-9)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Masks:
    """What the harness hands over, as it comes. A framework that takes a mask in this very form takes it as it is; for
    one that does not there are `joined` and `added`, which read every form.

    `encoding` says what an element means: "attend", true where a query may attend to a key; "ignore", true where it
    may not; "integer" or "float", 1 and 0 for "attend"; "additive" or "additive_float32", what is added to the score,
    minus infinity where it may not. `padding` is [B, 1, 1, S], [B, 1, S], [B, S] or [S]; `attention`, the query before
    the key, [B or 1, H or 1, S, S], [B * H, S, S] or [S, S]. Of attention over a memory [B, T, d_model] the keys, and
    padding, are T. `causal`: a causal mask is meant beside what is given. `bias`, [1, H, S, S], is added to the scores.
    """

    padding: Array | None
    attention: Array | None
    bias: Array | None = None
    encoding: str = "attend"
    causal: bool = False
    sequence: int = 0

    @classmethod
    def of(cls, tensors: Mapping[str, Array], given: Mapping[str, Any]) -> "Masks":
        """The masks in the frame of a `run` request, whose message says how they are given."""
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
        )

    def joined(self, num_heads: int = 1) -> Array | None:
        """[B or 1, H or 1, S or 1, S], true where a query may attend to a key; None where nothing is masked.

        `num_heads` tells the items from the heads in a mask [B * H, S, S].
        """
        allowed = [self._allowed(_padding_4d(self.padding)), self._allowed(_attention_4d(self.attention, num_heads))]
        if self.causal:
            allowed.append(np.tri(self.sequence, dtype=np.bool_)[None, None])
        found = None
        for mask in allowed:
            if mask is not None:
                found = mask if found is None else found & mask
        return found

    def added(self, num_heads: int = 1) -> Array | None:
        """[1 or B, H, S, S], what is added to the scores beside the mask; None for nothing."""
        if self.bias is not None or not self.encoding.startswith("additive"):
            return self.bias
        mask = _attention_4d(self.attention, num_heads)
        bias = None if mask is None else np.where(np.isneginf(mask), mask.dtype.type(0), mask)
        return bias if bias is not None and bias.any() else None

    def valid(self) -> Array | None:
        """[B, S], true at the positions that are not padding; None where none is."""
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
