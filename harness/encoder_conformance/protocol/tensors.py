"""A question's tensors in the one form in which a file asks: x batch first, one mask of all axes, true = attend.

Adapters' side, too: it needs no more than frames do.
"""

import hashlib
from collections.abc import Mapping

import numpy as np

from encoder_conformance.protocol.frames import Tensors
from encoder_conformance.protocol.streamed import Array

ASKED = "asked"
"""The tensor that an answer repeats: [32] uint8, the digest of the asking."""
COTANGENT = "cotangent"
"""The gradient of the loss with respect to the output, [B, S, d_model], of a question that asks for gradients."""
PARAMETERS = "parameters"
"""The second part of a parameter's name in the file: GROUP/parameters/NAME."""


def question_tensors(
    x: Array,
    allowed: Array | None,
    bias: Array | None,
    num_heads: int,
    memory: Array | None,
    token_types: Array | None = None,
) -> Tensors:
    """`x` (or `ids`) [B, S, …], `mask` [B, H, S, T] uint8, and where there are any `bias` [B, H, S, T], `memory` and
    `token_types` [B, S].

    `allowed` and `bias` are broadcast; 1 in `mask` is where a query may attend to a key.
    """
    B, S = x.shape[:2]
    full = B, num_heads, S, S if memory is None else memory.shape[1]
    tensors = {"ids" if x.dtype.kind == "i" else "x": x}
    tensors["mask"] = np.ascontiguousarray(np.broadcast_to(True if allowed is None else allowed, full)).view(np.uint8)
    if bias is not None:
        tensors["bias"] = np.ascontiguousarray(np.broadcast_to(bias, full))
    if memory is not None:
        tensors["memory"] = memory
    if token_types is not None:
        tensors["token_types"] = token_types
    return tensors


def digest_of(tensors: Mapping[str, Array], more: str = "") -> bytes:
    """SHA-256, 32 bytes, of names, dtypes, shapes and values, in the order of the names."""
    digest = hashlib.sha256(more.encode())
    for name in sorted(tensors):
        value = np.ascontiguousarray(tensors[name])
        digest.update(f"{name} {value.dtype.name} {list(value.shape)} ".encode() + value.tobytes())
    return digest.digest()
