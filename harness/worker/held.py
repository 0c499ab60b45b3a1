"""Whether a built layer holds the parameters that it was sent."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from harness.adapter.base import Array
from harness.spec.parameters import without_prefix
from harness.wire.frames import Tensors


@dataclass(frozen=True)
class Parameters:
    """What was sent with a layer, what it says it holds, and what the adapter calls each, where it says so."""

    sent: Tensors
    held: Tensors
    own: dict[str, str]


def with_a_place(sent: Tensors, held: Tensors, lacks: Collection[str]) -> Tensors:
    """What of `sent` the layer is to hold. `lacks` are those that it may have no place for: what comes of that is seen
    in what it gives."""
    return {name: value for name, value in sent.items() if name in held or without_prefix(name)[1] not in lacks}


def _bits(value: Array) -> Array:
    """The bytes of a tensor, which tell −0 from 0 and one NaN from another; nothing is copied."""
    return np.ascontiguousarray(value).reshape(-1).view(np.uint8)


def not_held(sent: Tensors, held: Tensors) -> str:
    """What is wrong with the parameters that the layer says it holds; "" when they came back bit for bit."""
    if missing := sorted(set(sent) - set(held)):
        return f"parameters missing from the built layer: {', '.join(missing)}"
    if extra := sorted(set(held) - set(sent)):
        return f"parameters that the specification does not have: {', '.join(extra)}"
    for name, value in sent.items():
        if held[name].shape != value.shape or held[name].dtype != value.dtype:
            was = f"{held[name].dtype} {list(held[name].shape)}"
            return f"parameter {name} came back as {was} instead of {value.dtype} {list(value.shape)}"
        if not np.array_equal(_bits(held[name]), _bits(value)):
            return f"parameter {name} came back with other values: the map does not round-trip"
    return ""
