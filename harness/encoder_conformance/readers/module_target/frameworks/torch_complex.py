"""Complex numbers in what PyTorch exports: what the exporter cannot do with them is done with pairs of real ones."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


class ComplexByPairs(TorchFunctionMode):
    """Rotary positions are often a product of complex numbers, whose table is moved, widened and indexed. The exporter
    knows the product."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _MADE and len(args) == 2 and not kwargs:
            return torch.view_as_complex(torch.stack(_MADE[func](*args), -1))
        of_pairs = _OF_PAIRS.get(getattr(func, "__name__", ""))
        if of_pairs is None or not args or not isinstance(args[0], Tensor) or not args[0].is_complex():
            return func(*args, **kwargs)
        first, *others = args
        return torch.view_as_complex(
            of_pairs(torch.view_as_real(first.resolve_conj()), first.ndim, *others, **kwargs).contiguous()
        )


def _indexed(pairs: Tensor, ndim: int, index: Any) -> Tensor:
    each = index if isinstance(index, tuple) else (index,)
    whole = (*each, slice(None)) if any(one is Ellipsis for one in each) else each
    return pairs[whole]


def _sizes(given: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(given[0]) if len(given) == 1 and not isinstance(given[0], int) else given


_MADE: Mapping[Callable[..., Any], Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    torch.polar: lambda size, angle: (size * angle.cos(), size * angle.sin()),
    torch.complex: lambda real, imaginary: (real, imaginary),
}
"""What makes complex numbers of real ones → their real and imaginary parts."""
_OF_PAIRS: Mapping[str, Callable[..., Tensor]] = {
    "__getitem__": _indexed,
    "unsqueeze": lambda pairs, ndim, dim: pairs.unsqueeze(dim % (ndim + 1)),
    "squeeze": lambda pairs, ndim, dim=None: pairs.squeeze() if dim is None else pairs.squeeze(dim % ndim),
    "select": lambda pairs, ndim, dim, index: pairs.select(dim % ndim, index),
    "index_select": lambda pairs, ndim, dim, index: pairs.index_select(dim % ndim, index),
    "expand": lambda pairs, ndim, *sizes: pairs.expand(*_sizes(sizes), 2),
    "expand_as": lambda pairs, ndim, other: pairs.expand(*other.shape, 2),
    "repeat": lambda pairs, ndim, *times: pairs.repeat(*_sizes(times), 1),
    "repeat_interleave": lambda pairs, ndim, times, dim: pairs.repeat_interleave(times, dim % ndim),
}
"""Method of a complex tensor that the exporter has not → the same of its pairs [..., 2], the tensor's axes being
`ndim`."""
