"""Calls a layer of somebody else's as its equations are, where its code computes a step in float32 whatever it is
given."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class InFloat64(TorchFunctionMode):
    """Within it float64 stays float64: a cast to float32 is none, and a softmax that asks for float32 has float64."""

    def __torch_function__(
        self,
        called: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if called is torch.Tensor.float:
            return args[0]
        kept = tuple(torch.float64 if value is torch.float32 else value for value in args)
        named = {name: torch.float64 if value is torch.float32 else value for name, value in (kwargs or {}).items()}
        return called(*kept, **named)
