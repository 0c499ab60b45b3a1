"""The floating-point formats that a module of PyTorch holds its numbers in."""

from collections.abc import Iterator, Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

from encoder_conformance.readers.module_target.frameworks.torch_in_model import call_of

Module = TypeVar("Module", bound=nn.Module)


def in_format(module: Module, dtype: torch.dtype) -> Module:
    """The module with all that it holds in a format, complex numbers in a format for these: PyTorch's `module.to` makes
    real numbers of them, and rotary tables are often complex."""
    of_pairs = torch.complex128 if dtype == torch.float64 else torch.complex64

    def converted(value: Tensor) -> Tensor:
        if value.is_complex():
            return value.to(of_pairs)
        return value.to(dtype) if value.is_floating_point() else value

    module._apply(converted)
    return module


def with_numbers_as_parameters(module: nn.Module) -> nn.Module:
    """The module, whose parameters that are no floating-point numbers, as a mask of truths that is to be saved with it,
    are buffers: nothing is trained of them."""
    for part in module.modules():
        for name, value in [*part._parameters.items()]:
            if value is not None and not (value.is_floating_point() or value.is_complex()):
                del part._parameters[name]
                part._buffers[name] = value.data
    return module


def numbers_of(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Its parameters and buffers that are floating-point numbers, each by its first name."""
    for name, value in (*module.named_parameters(), *module.named_buffers()):
        if value.is_floating_point():
            yield name, value


def formats_of(module: nn.Module) -> Mapping[str, str]:
    """Own parameter or buffer → the format that it was given in."""
    if call := call_of(module):
        return call.formats
    return {name: str(value.dtype).removeprefix("torch.") for name, value in numbers_of(module)}
