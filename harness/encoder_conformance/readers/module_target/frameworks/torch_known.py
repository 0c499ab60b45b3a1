"""Numbers that stay known while PyTorch exports: cumulative lengths, by whose values a module cuts its rows; and those
that it makes of nothing, as `arange` does."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from encoder_conformance.spec.axes import Array

_MAKE = (torch.tensor, torch.as_tensor)
_OF_NOTHING = frozenset({
    *_MAKE, torch.arange, torch.linspace, torch.logspace, torch.zeros, torch.ones, torch.full, torch.eye,
    torch.tril_indices, torch.triu_indices, torch.from_numpy, torch.hann_window,
})  # fmt: skip
"""Functions that make a tensor without one."""


class KnownNumbers(Tensor):
    """What is made of such numbers alone is computed at once, and of no part of the graph; beside others it is a plain
    tensor."""

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        plain = [tree_map(_plain, each) for each in (args, kwargs)]
        if not all(isinstance(each, cls) for each in tensors):
            return func(*plain[0], **plain[1])
        with unset_fake_temporarily(), disable_proxy_modes_tracing(), torch._C.DisableTorchFunctionSubclass():
            return tree_map(_known, func(*args, **kwargs))


class MadeAgain(TorchFunctionMode):
    """`torch.tensor` and `torch.as_tensor` of such numbers, which a list of lengths may be: PyTorch makes no tensor of
    a subclass while it exports."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _MAKE and args and isinstance(args[0], KnownNumbers):
            return args[0].to(kwargs.get("dtype") or args[0].dtype)
        return func(*args, **kwargs)


class MadeAtOnce(TorchFunctionMode):
    """Numbers made of nothing are known, and so is what is made of these alone: the exporter need not know by which
    operator, nor take a branch that depends on them."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _OF_NOTHING and not any(isinstance(each, Tensor) for each in tree_leaves((args, kwargs))):
            with unset_fake_temporarily(), disable_proxy_modes_tracing():
                return _known(func(*args, **kwargs))
        return func(*args, **kwargs)


def known(value: Array) -> Tensor:
    """Whole numbers, whatever traces the code that asks for them."""
    with unset_fake_temporarily(), disable_proxy_modes_tracing():
        return torch.from_numpy(np.ascontiguousarray(value)).as_subclass(KnownNumbers)


def _known(value: Any) -> Any:
    return value.as_subclass(KnownNumbers) if isinstance(value, Tensor) else value


def _plain(value: Any) -> Any:
    return value.as_subclass(Tensor) if isinstance(value, KnownNumbers) else value
