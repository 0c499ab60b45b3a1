"""The inputs of a staged model: masks as whole as it takes them, and sizes that fit each other."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from encoder_conformance import Array, Masks, Tensors

Shape = tuple[int | str | None, ...]
"""The shape of an input, each axis a size, a symbol, or None if it is not stated."""


def takes_ids(layer: Mapping[str, Any]) -> bool:
    """Whether token ids come in the place of x (E-15, E-39)."""
    return bool(layer["embedding"]) and layer["embedding"]["vocabulary"] is not None


def takes_types(layer: Mapping[str, Any]) -> bool:
    """Whether each token has a type, a second input (E-36)."""
    return bool(layer["embedding"]) and layer["embedding"].get("token_types") is not None


def types_of(layer: Mapping[str, Any], x: Array, given: Array | None) -> Tensors:
    """The types [B, S] of the tokens, of a layer that takes them: 0 where none are given."""
    if not takes_types(layer):
        return {}
    return {"token_types": np.zeros(x.shape[:2], np.int64) if given is None else np.ascontiguousarray(given)}


def whole(x: Array, masks: Masks, num_heads: int, dtype: str) -> Tensors:
    """x, its masks for every item, head and query, and the bias if there is one, in `dtype`."""
    B, S = x.shape[:2]
    every = B, num_heads, S, S
    mask, bias, valid = masks.joined(num_heads), masks.added(num_heads), masks.valid()
    given = {
        "x": x,
        "mask": np.broadcast_to(True, every) if mask is None else expanded(mask, every),
        "valid": np.broadcast_to(True, (B, S)) if valid is None else expanded(valid, (B, S)),
    }
    if bias is not None:
        given["bias"] = expanded(bias.astype(dtype), every)
    return {name: np.ascontiguousarray(tensor) for name, tensor in given.items()}


def expanded(mask: Array, due: tuple[int, ...]) -> Array:
    """Only an axis of 1 is widened: that another size is wrong is not for this to say."""
    return np.broadcast_to(mask, [n if size == 1 else size for size, n in zip(mask.shape, due, strict=True)])


def check_symbols(stated: Mapping[str, Shape], given: Tensors) -> None:
    """Refuse two sizes for one symbol, with ValueError. No runtime here does: `batch` or `sequence` is to each of them
    anything, each time, and one item of x beside masks of two became two.
    """
    sizes: dict[str, tuple[str, int]] = {}
    for name, shape in stated.items():
        for symbol, size in zip(shape, given[name].shape, strict=False):
            if isinstance(symbol, str) and sizes.setdefault(symbol, (name, size))[1] != size:
                other, n = sizes[symbol]
                raise ValueError(
                    f"{name} is {list(given[name].shape)}, for which {symbol} is {size}, and in {other} it is {n}"
                )


def check_stated(stated: Mapping[str, Shape], dtypes: Mapping[str, np.dtype], given: Tensors) -> None:
    """Refuse another rank or size than the model states, with ValueError, and another dtype, with TypeError: for
    runtimes that would broadcast or cast it."""
    for name, shape in stated.items():
        tensor = given[name]
        if tensor.dtype != dtypes[name]:
            raise TypeError(f"{name} is {tensor.dtype}, and the model takes {dtypes[name]}")
        fits = tensor.ndim == len(shape) and all(
            size == n for size, n in zip(tensor.shape, shape, strict=True) if isinstance(n, int)
        )
        if not fits:
            raise ValueError(f"{name} is {list(tensor.shape)}, and the model takes {list(shape)}")
