"""The ways to call a module of PyTorch."""

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import ModuleType
from unittest.mock import patch

import torch
from torch import Tensor, nn

from encoder_conformance.readers.module_target.frameworks.pytorch_compiled import as_given, bare

THREADS = 3
"""More than one, and no divisor of usual sizes."""
View = Callable[[Tensor], Tensor]
Told = tuple[tuple[ModuleType, str], ...]
COMPILING: Told = (
    (torch.compiler, "is_compiling"),
    (torch.compiler, "is_dynamo_compiling"),
    (torch.compiler, "is_exporting"),
)
TRACING: Told = (torch.jit, "is_tracing"), (torch.onnx, "is_in_onnx_export")


@dataclass(frozen=True)
class WayToCall:
    """A way to call a module: without its compiled code, with gradients, in inference mode or under autocast, on many
    threads, on the fused path of PyTorch's own layers, with an x, or masks, that lie in memory as a view says, where
    functions of PyTorch are `overridden`, as under torch.device, or where those `told` say that its code is compiled or
    traced."""

    bare: bool = False
    gradients: bool = False
    inference: bool = False
    autocast: bool = False
    threads: int | None = None
    fused: bool = False
    view: View | None = None
    view_of_masks: View | None = None
    overridden: bool = False
    told: Told = ()

    @contextmanager
    def taken(self, given: nn.Module) -> Generator[None]:
        fused, threads = torch.backends.mha.get_fastpath_enabled(), torch.get_num_threads()
        torch.backends.mha.set_fastpath_enabled(fused or self.fused)
        torch.set_num_threads(self.threads or threads)
        try:
            with ExitStack() as stack:
                stack.enter_context(bare(given) if self.bare else as_given(given))
                stack.enter_context(torch.autocast("cpu", enabled=self.autocast))
                if self.overridden:
                    stack.enter_context(torch.device("cpu"))
                for owner, name in self.told:
                    stack.enter_context(patch.object(owner, name, _yes))
                yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fused)
            torch.set_num_threads(threads)


OVERRIDDEN = WayToCall(overridden=True)


def _yes() -> bool:
    return True


def as_it_is(value: Tensor) -> Tensor:
    return value


def turned(x: Tensor) -> Tensor:
    """x, or a mask of two axes and more, as a view of its transpose, which begins after other numbers."""
    if x.ndim < 2:
        return x
    shape = x.shape[1] + 1, x.shape[0], *x.shape[2:]
    larger = torch.full(shape, 1e3, dtype=x.dtype)
    larger[1:] = x.transpose(0, 1)
    return larger[1:].transpose(0, 1)


def every_other(x: Tensor) -> Tensor:
    """x, or a mask, as a view of every other number of a larger one."""
    larger = torch.full((*x.shape[:-1], 2 * x.shape[-1]), 1e3, dtype=x.dtype)
    larger[..., 1::2] = x
    return larger[..., 1::2]
