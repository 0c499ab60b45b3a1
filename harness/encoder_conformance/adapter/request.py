"""One run, as an adapter is asked for it: what is told beside x and the masks (clauses S-2, A-1, B-3, E-17)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from encoder_conformance.adapter.masks import Array


@dataclass(frozen=True)
class RunRequest:
    """All that one run is told beside x and its masks. `RunRequest()` is a plain run: batch first, in mode eval.

    Example: `RunRequest(layout="sequence_first").batch_first(x)` of x [S, B, d_model] is [B, S, d_model].
    """

    layout: str = "batch_first"
    """The layout of x, output, cotangent and gradient with respect to x: "batch_first" [B, S, d_model],
    "sequence_first" [S, B, d_model], "unbatched" [S, d_model]. The manifest lists the supported layouts."""
    mode: str = "eval"
    """"eval", or "train", where dropout is active."""
    seed: int = 0
    """The seed of dropout, in mode "train"."""
    checkpoint: bool = False
    """Whether gradients are to be computed with recomputed activations (B-3)."""
    memory: Array | None = None
    """[B, T, d_model], from which keys and values are made, if the layer is attention alone (E-17)."""
    token_types: Array | None = None
    """int64, the type of each token, in the layout of token ids, if the layer has types of tokens (E-36)."""
    positions: Array | None = None
    """[B or 1, S, 1] float64: where token ids lie, for what is added to them there (S-3); None for 0 … S − 1. Only an
    implementation with the capability `positions` is told so."""

    @classmethod
    def of(cls, tensors: Mapping[str, Array], message: Mapping[str, Any]) -> "RunRequest":
        """The request in the frame of a `run` or `profile`: its tensors and its message (docs/wire.md)."""
        given, beside = message["given"], {name: tensors.get(name) for name in ("memory", "token_types", "positions")}
        return cls(given["layout"], message["mode"], message.get("seed", 0), given["checkpoint"], **beside)

    def batch_first(self, x: Array) -> Array:
        """x or a cotangent, in this run's layout, as [B, S, d_model], or token ids as [B, S], without a copy."""
        if self.layout == "unbatched":
            return x[None]
        return x.swapaxes(0, 1) if self.layout == "sequence_first" else x

    def as_given(self, y: Array) -> Array:
        """An output or a gradient with respect to x, [B, S, d_model], in this run's layout, without a copy."""
        if self.layout == "unbatched":
            return np.asarray(y[0])
        return y.swapaxes(0, 1) if self.layout == "sequence_first" else y
