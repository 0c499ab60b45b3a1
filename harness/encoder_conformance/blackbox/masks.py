"""Masks of a whole file: which positions they hide, what true means in them, and how they lie in an input."""

from collections.abc import Iterator

import numpy as np

from encoder_conformance.protocol.description import WholeInput
from encoder_conformance.spec.axes import Array, Bools
from encoder_conformance.spec.dtypes import FORMATS

_WORDS = ("mask", "padding", "valid")
_SEEN = 0.7
"""Of the keys, by each query, where a mask tells queries apart."""


def is_name_of_mask(name: str) -> bool:
    return any(word in name.lower() for word in _WORDS)


def hidden_positions(batch: int, sequence: int) -> Iterator[tuple[str, Bools]]:
    """Name → positions [B, S] that are hidden."""
    third = max(sequence // 3, 1)
    right, holes, whole = (np.zeros((batch, sequence), np.bool_) for _ in range(3))
    right[-1, -third:] = holes[-1, 1::3] = True
    whole[-1] = True
    lengths = np.resize([sequence // 2, sequence, sequence - 1], batch)
    yield "padding on the right", right
    yield "padding on the left", right[:, ::-1]
    yield "holes", holes
    yield "lengths that are not in order", np.arange(sequence) >= np.maximum(lengths, 1)[:, None]
    if batch > 1:
        yield "an item of padding alone", whole


def seen_by_each_query(batch: int, sequence: int, rng: np.random.Generator) -> Bools:
    """The keys that each query sees [B, S, S], itself among them."""
    drawn = rng.random((batch, sequence, sequence)) < _SEEN
    return np.asarray(drawn | np.eye(sequence, dtype=np.bool_))


def supposed_meaning(port: WholeInput) -> str:
    """What true means in a mask of which only the type and the name are known."""
    if port.dtype in FORMATS and len(port.shape or ()) != 2:
        return "additive"
    return "ignore" if "padding" in port.name.lower() and port.dtype == "bool" else "attend"


def laid_out(visible: Bools, shape: tuple[int, ...], kind: np.dtype, meaning: str) -> Array:
    """The mask in the shape of an input: its last axis are keys, its first the batch; of one axis a count. `visible`
    [B, S], or [B, S, S] where each query sees others."""
    (B, *_, S), own = visible.shape, visible.ndim - 1
    laid = visible if len(shape) <= 2 else visible.reshape(B, *(1,) * (len(shape) - 1 - own), *visible.shape[1:])
    if own > 1 and shape[0] == 1:  # one for all items
        laid = laid[:1]
    if shape == (S, B) and B != S:
        laid = visible.T
    if len(shape) == 3 and shape[0] not in (1, B):  # heads and items in one axis
        laid = np.repeat(laid, shape[0] // B, axis=0)
    if meaning == "additive":
        lowest = float(np.finfo(kind).min) if kind.name != "bfloat16" else -3e38
        return np.broadcast_to(np.where(laid, 0.0, lowest), shape).astype(kind)
    told = ~laid if meaning == "ignore" else laid
    return np.broadcast_to(told, shape).astype(kind)
