"""Modules of PyTorch that make their parameters at the first call: that call is made, on a copy."""

from contextlib import suppress
from copy import deepcopy

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from encoder_conformance.readers.module_target.frameworks.pytorch_compiled import copy_of
from encoder_conformance.readers.module_target.live import USUAL_WIDTHS


def is_built_later(module: nn.Module) -> bool:
    """Whether it has parameters after a call that it has not before."""
    if any(is_lazy(value) for value in (*module.parameters(), *module.buffers())):
        return True
    return not any(True for _ in module.parameters()) and any(True for _ in built(module).parameters())


def built(module: nn.Module) -> nn.Module:
    """A copy after its first call, with an x of a usual width; a plain copy where all of it is there."""
    lazy = any(is_lazy(value) for value in (*module.parameters(), *module.buffers()))
    if not lazy and any(True for _ in module.parameters()):
        return copy_of(module)
    for width in _widths(module):
        copied = deepcopy(module).to("cpu").eval()
        with suppress(Exception), torch.no_grad():
            copied(torch.zeros(3, 5, width))
            if not any(is_lazy(value) for value in (*copied.parameters(), *copied.buffers())):
                return copied
    return copy_of(module)


def _widths(module: nn.Module) -> list[int]:
    """Those that its parts say, and then usual ones."""
    names = ("d_model", "dim", "embed_dim", "hidden_size", "width", "num_features", "features", "in_features")
    said = [getattr(part, name, 0) for part in module.modules() for name in names]
    return [*dict.fromkeys([*(each for each in said if isinstance(each, int) and each > 1), *USUAL_WIDTHS])]
