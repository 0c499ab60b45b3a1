"""LayerNorm and RMSNorm in the forms that people write: other variances, other roots, gain and shift folded in."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.rewritings.sums import Sum, sequential

LayerNorm = Callable[[Tensor, Tensor, Tensor, float], Tensor]
Variance = Callable[[Tensor], tuple[Tensor, Tensor]]
"""x [..., D] → its mean and biased variance, [..., 1] each."""


def library(x: Tensor, gain: Tensor, shift: Tensor, epsilon: float) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], gain, shift, epsilon)


def library_rms(x: Tensor, gain: Tensor, epsilon: float) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], gain, epsilon)


def by(moments: Variance) -> LayerNorm:
    def norm(x: Tensor, gain: Tensor, shift: Tensor, epsilon: float) -> Tensor:
        mean, variance = moments(x)
        return (x - mean) / (variance + epsilon).sqrt() * gain + shift

    return norm


def summed_by(add: Sum) -> LayerNorm:
    def moments(x: Tensor) -> tuple[Tensor, Tensor]:
        mean = add(x).unsqueeze(-1) / x.shape[-1]
        return mean, add((x - mean) ** 2).unsqueeze(-1) / x.shape[-1]

    return by(moments)


def var_mean(x: Tensor) -> tuple[Tensor, Tensor]:
    variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    return mean, variance


def welford(x: Tensor) -> tuple[Tensor, Tensor]:
    """One pass (Welford, 1962)."""
    mean, squares = torch.zeros_like(x[..., 0]), torch.zeros_like(x[..., 0])
    for number, value in enumerate(x.unbind(-1), start=1):
        before = value - mean
        mean = mean + before / number
        squares = squares + before * (value - mean)
    return mean.unsqueeze(-1), (squares / x.shape[-1]).unsqueeze(-1)


def merged_halves(x: Tensor) -> tuple[Tensor, Tensor]:
    """Two halves by themselves, merged (Chan, Golub and LeVeque, 1983)."""
    halves = x.split(max(1, x.shape[-1] // 2), dim=-1)
    count, (mean, variance) = halves[0].shape[-1], var_mean(halves[0])
    squares = variance * count
    for half in halves[1:]:
        (other, variance), more = var_mean(half), half.shape[-1]
        apart, whole = other - mean, count + more
        mean = mean + apart * (more / whole)
        squares = squares + variance * more + apart * apart * (count * more / whole)
        count = whole
    return mean, squares / count


def corrected_two_pass(x: Tensor) -> tuple[Tensor, Tensor]:
    """Less the square of what rounding left of the sum of the centred values (Chan, Golub and LeVeque, 1983)."""
    mean = x.mean(-1, keepdim=True)
    centred = x - mean
    left = centred.sum(-1, keepdim=True)
    return mean, ((centred * centred).sum(-1, keepdim=True) - left * left / x.shape[-1]) / x.shape[-1]


def shifted(estimate: Callable[[Tensor], Tensor]) -> Variance:
    """E[y²] − E[y]² of y = x − K, K an estimate of the mean."""

    def moments(x: Tensor) -> tuple[Tensor, Tensor]:
        about = estimate(x)
        y = x - about
        mean = y.mean(-1, keepdim=True)
        return about + mean, (y * y).mean(-1, keepdim=True) - mean * mean

    return moments


def of_first_half(x: Tensor) -> Tensor:
    return x[..., : max(1, x.shape[-1] // 2)].mean(-1, keepdim=True)


def first_element(x: Tensor) -> Tensor:
    return x[..., :1]


def fast(x: Tensor) -> tuple[Tensor, Tensor]:
    """E[x²] − E[x]²."""
    mean = x.mean(-1, keepdim=True)
    return mean, ((x * x).mean(-1, keepdim=True) - mean * mean).clamp(min=0)


def by_rsqrt(x: Tensor, gain: Tensor, shift: Tensor, epsilon: float) -> Tensor:
    mean, variance = var_mean(x)
    return (x - mean) * torch.rsqrt(variance + epsilon) * gain + shift


def by_power(x: Tensor, gain: Tensor, shift: Tensor, epsilon: float) -> Tensor:
    mean, variance = var_mean(x)
    return (x - mean) * (variance + epsilon) ** -0.5 * gain + shift


def as_affine_map(x: Tensor, gain: Tensor, shift: Tensor, epsilon: float) -> Tensor:
    """x · (gain · scale) + (shift − mean · gain · scale), as fused kernels have it."""
    mean, variance = var_mean(x)
    scale = gain * torch.rsqrt(variance + epsilon)
    return x * scale + (shift - mean * scale)


def scaled_before_centring(x: Tensor, gain: Tensor, shift: Tensor, epsilon: float) -> Tensor:
    """x · scale − mean · scale."""
    mean, variance = var_mean(x)
    scale = torch.rsqrt(variance + epsilon)
    return (x * scale - mean * scale) * gain + shift


def by_hypot(x: Tensor, gain: Tensor, shift: Tensor, epsilon: float) -> Tensor:
    """√(variance + ε) as the hypotenuse of the deviation and √ε."""
    centred = x - x.mean(-1, keepdim=True)
    deviation = torch.linalg.vector_norm(centred, dim=-1, keepdim=True) / math.sqrt(x.shape[-1])
    return centred / torch.hypot(deviation, deviation.new_tensor(math.sqrt(epsilon))) * gain + shift


def by_matrix(x: Tensor, gain: Tensor, shift: Tensor, epsilon: float) -> Tensor:
    """Centred by a product with I − 1/D."""
    D = x.shape[-1]
    centred = x @ (torch.eye(D, dtype=x.dtype) - torch.full((D, D), 1 / D, dtype=x.dtype))
    return centred / ((centred * centred).mean(-1, keepdim=True) + epsilon).sqrt() * gain + shift


def of_scaled_squares(x: Tensor, gain: Tensor, shift: Tensor, epsilon: float) -> Tensor:
    """√D (x − mean) / √(Σ (x − mean)² + D ε)."""
    D, centred = x.shape[-1], x - x.mean(-1, keepdim=True)
    return centred * (math.sqrt(D) / ((centred * centred).sum(-1, keepdim=True) + D * epsilon).sqrt()) * gain + shift


def in_wider(x: Tensor, gain: Tensor, shift: Tensor, epsilon: float) -> Tensor:
    """In float64, or from a 16-bit format in float32, and rounded once."""
    wider = torch.float64 if x.dtype in (torch.float32, torch.float64) else torch.float32
    return library(x.to(wider), gain.to(wider), shift.to(wider), epsilon).to(x.dtype)


def rms_by_rsqrt(x: Tensor, gain: Tensor, epsilon: float) -> Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + epsilon) * gain


def rms_gain_first(x: Tensor, gain: Tensor, epsilon: float) -> Tensor:
    """x · (gain · scale)."""
    return x * (gain * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon))


def rms_by_norm(x: Tensor, gain: Tensor, epsilon: float) -> Tensor:
    size = torch.linalg.vector_norm(x, dim=-1, keepdim=True) / math.sqrt(x.shape[-1])
    return x / torch.hypot(size, size.new_tensor(math.sqrt(epsilon))) * gain


def rms_in_order(x: Tensor, gain: Tensor, epsilon: float) -> Tensor:
    return x / (sequential(x * x).unsqueeze(-1) / x.shape[-1] + epsilon).sqrt() * gain
