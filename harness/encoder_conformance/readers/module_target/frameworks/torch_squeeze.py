"""Squeezes that PyTorch leaves out, since the axis has more than one element, in what it exports; the module stays.

The exporter writes them as ONNX' Squeeze, which takes no such axis.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_SQUEEZES = {torch.squeeze, Tensor.squeeze}


class SqueezesAreOfOne(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _SQUEEZES and len(args) + len(kwargs) == 2:
            axis, shape = kwargs.get("dim", args[-1]), args[0].shape if args else ()
            if isinstance(axis, int) and shape and shape[axis] != 1:
                return args[0]
        return func(*args, **kwargs)
