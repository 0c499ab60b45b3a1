"""What PyTorch does with its own arrays beside x."""

import numpy as np
import torch
from torch import Tensor

from encoder_conformance.readers.module_target.forms_of_x import Arrays
from encoder_conformance.readers.module_target.frameworks.torch_known import known
from encoder_conformance.spec.axes import Array


def _beside(value: Array | Tensor, x: Tensor) -> Tensor:
    """An array as a tensor beside x: numbers in its format."""
    if isinstance(value, Tensor):
        return value.to(x.dtype) if value.is_floating_point() else value
    if value.dtype.kind == "i" and torch.compiler.is_exporting():
        return known(value)
    if value.dtype.kind == "c":  # the exporter knows no cast of such
        value = value.astype(np.complex128 if x.dtype == torch.float64 else np.complex64)
    made = torch.from_numpy(np.ascontiguousarray(value))
    return made.to(x.dtype) if made.is_floating_point() else made


def _swapped(x: Tensor, one: int, other: int) -> Tensor:
    """As a caller holds it, in the order of its axes: `view` takes no other."""
    return x.swapaxes(one, other).contiguous()


ARRAYS = Arrays(_beside, lambda value: isinstance(value, Tensor), _swapped)
