"""Convolutions of kernel 1 as the linear maps that they are, in what PyTorch exports; the module stays."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

_ARGUMENTS = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_CONVOLUTIONS = {torch.conv1d, torch.conv2d, F.conv1d, F.conv2d}


class PointwiseIsLinear(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _CONVOLUTIONS:
            given = dict(zip(_ARGUMENTS, args, strict=False)) | dict(kwargs)
            if (made := _linear(given)) is not None:
                return made
        return func(*args, **kwargs)


def _linear(given: Mapping[str, Any]) -> Tensor | None:
    """The map of each position's channels, for an input [batch, channels, …]; None for another convolution."""
    x, weight, padding = given["input"], given["weight"], given.get("padding", 0)
    steps = *_numbers(given.get("stride", 1)), given.get("groups", 1)
    if isinstance(padding, str) or any(_numbers(padding)) or x.ndim != weight.ndim:
        return None
    if any(each != 1 for each in (*weight.shape[2:], *steps)):
        return None
    made = F.linear(x.movedim(1, -1), weight.flatten(1), given.get("bias"))
    return made.movedim(-1, 1).contiguous()  # as a convolution's output is: `view` takes no other


def _numbers(value: Any) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)
