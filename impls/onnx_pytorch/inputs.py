"""What the exported model is given: masks as whole as it takes them, and sizes that fit each other."""

from collections.abc import Iterable

import numpy as np
import onnxruntime as ort

from harness.adapter import Masks, Tensors
from harness.adapter.base import Array


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


def check_fit(inputs: Iterable[ort.NodeArg], given: Tensors) -> None:
    """Refuse two sizes for one symbol. ONNX Runtime holds a model's inputs to the sizes that it states as numbers, but
    a symbol, `batch` or `sequence`, it takes for anything, each time: one item of x beside masks of two became two.
    """
    sizes: dict[str, tuple[str, int]] = {}
    for stated in inputs:
        for symbol, size in zip(stated.shape, given[stated.name].shape, strict=False):
            if isinstance(symbol, str) and sizes.setdefault(symbol, (stated.name, size))[1] != size:
                other, n = sizes[symbol]
                shape = list(given[stated.name].shape)
                raise ValueError(f"{stated.name} is {shape}, for which {symbol} is {size}, and in {other} it is {n}")
