"""Complex numbers as pairs, where PyTorch's exporter knows no complex form of an operator; the module stays."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_UNSQUEEZED = {torch.unsqueeze, Tensor.unsqueeze}
_EXPANDED = {Tensor.expand}
_TAKEN = {Tensor.__getitem__}


class ComplexAsPairs(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.polar and len(args) == 2 and not kwargs:
            size, angle = args
            return torch.view_as_complex(torch.stack((size * angle.cos(), size * angle.sin()), -1))
        if func is torch.complex and len(args) == 2 and not kwargs:
            return torch.view_as_complex(torch.stack(args, -1))
        if args and isinstance(args[0], Tensor) and args[0].is_complex():
            made = _moved(func, args[0], args[1:], kwargs)
            if made is not None:
                return torch.view_as_complex(made.contiguous())
        return func(*args, **kwargs)


def _moved(func: Callable[..., Any], value: Tensor, given: Sequence[Any], named: Mapping[str, Any]) -> Tensor | None:
    """The pairs of what an operator that only moves gives; None for another, or one of more than places."""
    if func in _UNSQUEEZED:
        dim = int(named["dim"] if "dim" in named else given[0])
        return torch.view_as_real(value).unsqueeze(dim if dim >= 0 else dim - 1)
    if func in _EXPANDED and not named:
        sizes = given[0] if len(given) == 1 and isinstance(given[0], (tuple, list)) else given
        return torch.view_as_real(value).expand(*sizes, 2)
    if func in _TAKEN:
        at = given[0] if isinstance(given[0], tuple) else (given[0],)
        if all(each is None or each is ... or isinstance(each, (int, slice)) for each in at):
            return torch.view_as_real(value)[(*at, *([slice(None)] if ... in at else []))]
    return None
