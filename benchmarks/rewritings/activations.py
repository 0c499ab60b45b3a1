"""The activations in other algebraic forms."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def relu_by_absolute(x: Tensor) -> Tensor:
    return (x + x.abs()) / 2


def relu_by_product(x: Tensor) -> Tensor:
    return x * (x > 0).to(x.dtype)


def relu_less_negative(x: Tensor) -> Tensor:
    return x - x.clamp(max=0)


def relu_by_where(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, torch.zeros_like(x))


def gelu_by_erfc(x: Tensor) -> Tensor:
    return 0.5 * x * torch.erfc(-x * math.sqrt(0.5))


def gelu_by_cdf(x: Tensor) -> Tensor:
    return x * torch.special.ndtr(x)


def gelu_by_log_cdf(x: Tensor) -> Tensor:
    return x * torch.special.log_ndtr(x).exp()


def gelu_apart(x: Tensor) -> Tensor:
    """x/2 + x/2 · erf(x/√2)."""
    half = x / 2
    return half + half * torch.erf(x * math.sqrt(0.5))


def tanh_gelu_by_sigmoid(x: Tensor) -> Tensor:
    return x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


def tanh_gelu_nested(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(x * (math.sqrt(2 / math.pi) + math.sqrt(2 / math.pi) * 0.044715 * (x * x))))


def tanh_gelu_by_exp(x: Tensor) -> Tensor:
    """tanh u = 1 − 2 / (1 + exp 2u)."""
    u = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
    return 0.5 * x * (2 - 2 / (1 + torch.exp(2 * u)))


def silu_by_tanh(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(0.5 * x))


def silu_by_sigmoid(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


LIBRARY = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}
