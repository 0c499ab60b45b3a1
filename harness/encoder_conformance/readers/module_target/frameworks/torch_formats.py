"""The floating-point formats that a module of PyTorch holds its numbers in."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from encoder_conformance.readers.module_target.frameworks.torch_in_model import call_of


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


def in_format(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """The module itself, its floating-point numbers in this format, and complex buffers as pairs of such: `to` alone
    leaves of these the real part, which turns nothing."""
    plain = (part for part in module.modules() if not isinstance(part, torch.jit.ScriptModule))
    held = [(part._buffers, name, value) for part in plain for name, value in part._buffers.items()]
    pairs = [(buffers, name, value) for buffers, name, value in held if value is not None and value.is_complex()]
    for buffers, name, _ in pairs:
        buffers[name] = None
    try:
        return module.to(dtype)
    finally:
        for buffers, name, value in pairs:
            buffers[name] = value.to(torch.complex128 if dtype == torch.float64 else torch.complex64)
