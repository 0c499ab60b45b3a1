"""Ways to run a whole layer: checkpointed, compiled, mapped over items, with gradients written by hand."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch._inductor.config
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from benchmarks.rewritings.layer import Steps, gelu, layer_norm, linear
from benchmarks.rewritings.softmaxes import divided


def checkpointed(one: Callable[..., Any], *given: Any) -> Any:
    return checkpoint(one, *given, use_reentrant=False)


class LinearByHand(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None
        return linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, by: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        rows, by_rows = x.reshape(-1, x.shape[-1]), by.reshape(-1, by.shape[-1])
        return by @ weight.T, rows.T @ by_rows, by_rows.sum(0) if ctx.biased else None


class SoftmaxByHand(torch.autograd.Function):
    """weights · (g − Σ g · weights)"""

    @staticmethod
    def forward(ctx: Any, kept: Tensor) -> Tensor:
        weights = torch.softmax(kept, dim=-1)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx: Any, by: Tensor) -> Tensor:  # type: ignore[override]
        (weights,) = ctx.saved_tensors
        return weights * (by - (by * weights).sum(-1, keepdim=True))


class SoftmaxByJacobian(torch.autograd.Function):
    """g times the matrix diag(w) − w wᵀ"""

    @staticmethod
    def forward(ctx: Any, kept: Tensor) -> Tensor:
        weights = torch.softmax(kept, dim=-1)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx: Any, by: Tensor) -> Tensor:  # type: ignore[override]
        (weights,) = ctx.saved_tensors
        jacobian = torch.diag_embed(weights) - weights.unsqueeze(-1) * weights.unsqueeze(-2)
        return (by.unsqueeze(-2) @ jacobian).squeeze(-2)


class LayerNormByHand(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, shift: Tensor, epsilon: float) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        scale = torch.rsqrt(((x - mean) ** 2).mean(-1, keepdim=True) + epsilon)
        normal = (x - mean) * scale
        ctx.save_for_backward(normal, scale, gain)
        return normal * gain + shift

    @staticmethod
    def backward(ctx: Any, by: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        normal, scale, gain = ctx.saved_tensors
        D, rows, by_normal = by.shape[-1], tuple(range(by.ndim - 1)), by * gain
        sums = by_normal.sum(-1, keepdim=True), (by_normal * normal).sum(-1, keepdim=True)
        by_x = scale / D * (D * by_normal - sums[0] - normal * sums[1])
        return by_x, (by * normal).sum(rows), by.sum(rows), None


class GeluByHand(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return gelu(x)

    @staticmethod
    def backward(ctx: Any, by: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        density = torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)
        return by * (0.5 * (1 + torch.erf(x * math.sqrt(0.5))) + x * density)


def by_hand() -> Steps:
    plain = Steps()
    return Steps(
        linear=LinearByHand.apply,
        softmax=SoftmaxByHand.apply,
        layer_norm=LayerNormByHand.apply,
        activations={**plain.activations, "gelu": GeluByHand.apply},
    )


_compiled: dict[str, Callable[..., Any]] = {}


def compiled(name: str, step: Callable[..., Any]) -> Callable[..., Any]:
    """The step compiled by Inductor, for any shape; made on first use, which takes seconds."""

    def call(*given: Any) -> Any:
        if name not in _compiled:
            torch._inductor.config.compile_threads = 1  # no processes of its own beside those of the benchmark
            _compiled[name] = torch.compile(step, dynamic=True)
        return _compiled[name](*given)

    return call


def compiled_steps() -> Steps:
    """The steps that are made into kernels of their own. A product of matrices is the library's, compiled or not."""
    plain = Steps()
    return Steps(
        softmax=compiled("softmax", divided()),
        layer_norm=compiled("layer_norm", layer_norm),
        activations={name: compiled(name, form) for name, form in plain.activations.items()},
    )
