"""Convolutions of kernel 1 as the linear maps that they are, in what PyTorch exports; the module stays."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

_CONVOLUTIONS = {torch.conv1d, torch.conv2d, F.conv1d, F.conv2d}


class PointwiseIsLinear(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _CONVOLUTIONS and (made := _linear(*args, **kwargs)) is not None:
            return made
        return func(*args, **kwargs)


def _linear(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor | None:
    """The map of each position's channels, for an input [batch, channels, …]; None for another convolution."""
    plain = all(each == 1 for each in (*weight.shape[2:], *_numbers(stride), groups))
    if not plain or isinstance(padding, str) or any(_numbers(padding)) or input.ndim != weight.ndim:
        return None
    return F.linear(input.movedim(1, -1), weight.flatten(1), bias).movedim(-1, 1)


def _numbers(value: Any) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)
