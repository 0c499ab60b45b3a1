"""NumPy arrays as PyTorch tensors, and back: bfloat16 too, which neither reads of the other."""

import ml_dtypes
import numpy as np
import torch
from torch import Tensor

from encoder_conformance import Array


def to_tensor(array: Array, *, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Tensor:
    if array.dtype.name == "bfloat16":  # which NumPy has from elsewhere, and PyTorch does not read
        return torch.tensor(array.view(np.int16), device=device).view(torch.bfloat16)
    return torch.tensor(array, dtype=dtype, device=device)


def to_numpy(tensor: Tensor) -> Array:
    narrow = tensor.dtype == torch.bfloat16
    array: Array = (tensor.contiguous().view(torch.int16) if narrow else tensor).numpy(force=True)
    return array.view(ml_dtypes.bfloat16) if narrow else array
