"""Orders of summation, each operation rounded in the format of its operands, and products that are summed so."""

from collections.abc import Callable

import torch
from torch import Tensor

Sum = Callable[[Tensor], Tensor]
"""x [..., n] → its sum over the last axis, [...]."""


def sequential(x: Tensor) -> Tensor:
    total, *rest = x.unbind(-1)
    for term in rest:
        total = total + term
    return total


def backwards(x: Tensor) -> Tensor:
    """From the last term to the first."""
    return sequential(x.flip(-1))


def pairwise(x: Tensor) -> Tensor:
    while (n := x.shape[-1]) > 1:
        halves = x[..., : n // 2] + x[..., n // 2 : 2 * (n // 2)]
        x = torch.cat([halves, x[..., 2 * (n // 2) :]], dim=-1)
    return x[..., 0]


def kahan(x: Tensor) -> Tensor:
    """Compensated (Kahan, 1965)."""
    total, *rest = x.unbind(-1)
    lost = torch.zeros_like(total)
    for term in rest:
        corrected = term - lost
        larger = total + corrected
        lost = (larger - total) - corrected
        total = larger
    return total


def in_blocks(x: Tensor) -> Tensor:
    """Blocks of eight, each summed in order, then their sums: as vector registers and tiles do."""
    return sequential(torch.stack([sequential(block) for block in x.split(8, dim=-1)], dim=-1))


def in_lanes(x: Tensor) -> Tensor:
    """Four running sums, of every fourth term each."""
    return sequential(torch.stack([sequential(x[..., lane::4]) for lane in range(min(4, x.shape[-1]))], dim=-1))


def linear_by(add: Sum) -> Callable[[Tensor, Tensor, Tensor | None], Tensor]:
    """x @ weight + bias with every product rounded and the products added by `add`."""

    def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        product = add(x.unsqueeze(-2) * weight.T)
        return product if bias is None else product + bias

    return linear


def matmul_by(add: Sum) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, y: add(x.unsqueeze(-2) * y.transpose(-2, -1).unsqueeze(-3))


def scores_by(add: Sum) -> Callable[[Tensor, Tensor, int], Tensor]:
    multiplied = matmul_by(add)
    return lambda q, k, size: multiplied(q, k.transpose(-2, -1)) / q.new_tensor(float(size)).sqrt()
