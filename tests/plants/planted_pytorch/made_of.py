"""What forms of several steps are made with: narrower formats, and dropout."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

Form = Callable[..., Tensor]
NARROW = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def narrowed(x: Tensor, to: str) -> Tensor:
    """To a narrower format and back. A CPU has no tf32: 11 significant bits, rounded to nearest even."""
    if to == "tf32":
        fraction, exponent = torch.frexp(x)
        return torch.ldexp(torch.round(fraction * 2**11) / 2**11, exponent)
    return x.to(NARROW[to]).to(x.dtype)


def in_float32(form: Form) -> Form:
    """Every operation in float32: operands cast before, the result cast back."""
    return lambda *operands: form(*(operand.float() for operand in operands)).to(operands[0].dtype)


def dropped(x: Tensor) -> Tensor:
    """Dropout of 0.1 left on: drawn anew each time, and so no two answers are the same."""
    return F.dropout(x, 0.1, training=True)
