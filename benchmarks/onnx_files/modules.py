"""Encoder layers in plain PyTorch, right or with one fault, to be exported by whoever exports."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

D, H, F = 32, 4, 48
Change = Callable[[nn.Module], None]


class Layer(nn.Module):
    """A user's layer: `placement` and `activation` are its choices, `fault` names what it computes otherwise."""

    def __init__(
        self, placement: str = "post", activation: str = "gelu", fault: str = "", epsilon: float = 1e-5
    ) -> None:
        super().__init__()
        self.placement, self.activation, self.fault = placement, activation, fault
        self.query, self.key, self.value, self.output = (nn.Linear(D, D) for _ in range(4))
        self.hidden, self.back = nn.Linear(D, F), nn.Linear(F, D)
        epsilon = 1e-3 if fault == "epsilon" else epsilon
        self.norm1, self.norm2 = nn.LayerNorm(D, eps=epsilon), nn.LayerNorm(D, eps=epsilon)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """`mask` [batch, sequence], true to attend."""
        if (self.placement == "pre") != (self.fault == "placement"):
            x = x + self.attention(self.norm1(x), mask)
            return x + self.feed_forward(self.norm2(x))
        x = self.norm1(self.residual(x, self.attention(x, mask)))
        return self.norm2(x + self.feed_forward(x))

    def residual(self, x: Tensor, change: Tensor) -> Tensor:
        return 2 * x + change if self.fault == "residual-twice" else x + change

    def heads(self, x: Tensor) -> Tensor:
        B, S, _ = x.shape
        if self.fault == "heads-interleaved":
            return x.view(B, S, D // H, H).permute(0, 3, 1, 2)
        return x.view(B, S, H, D // H).transpose(1, 2)

    def attention(self, x: Tensor, mask: Tensor) -> Tensor:
        B, S, _ = x.shape
        key = self.query if self.fault == "key-of-the-query" else self.key
        value = self.key if self.fault == "value-of-the-key" else self.value
        q, k, v = self.heads(self.query(x)), self.heads(key(x)), self.heads(value(x))
        width = {"scale-of-d-model": D, "scale-missing": 1, "scale-off-by-2-percent": D // H * 1.04}.get(
            self.fault, D // H
        )
        scores = torch.matmul(q, k.transpose(-1, -2)) / float(width) ** 0.5
        weights = self.masked(scores, mask[:, None, None, :])
        context = torch.matmul(weights, v).transpose(1, 2).reshape(B, S, D)
        return self.output(context)

    def masked(self, scores: Tensor, seen: Tensor) -> Tensor:
        low = torch.tensor(-1e4)
        if self.fault == "mask-after-the-softmax":
            return scores.softmax(-1) * seen.to(scores.dtype)
        if self.fault == "mask-turned-round":
            return torch.where(seen, low, scores).softmax(-1)
        if self.fault == "mask-too-weak":
            return torch.where(seen, scores, scores - 3).softmax(-1)
        if self.fault == "mask-ignored":
            return (scores + 0 * seen.to(scores.dtype)).softmax(-1)
        masked = torch.where(seen, scores, low)
        if self.fault == "causal":
            masked = masked + torch.full(scores.shape[-2:], -1e4).triu(1)
        return masked.softmax(-2 if self.fault == "softmax-over-queries" else -1)

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.back(self.activated(self.hidden(x)))

    def activated(self, x: Tensor) -> Tensor:
        named: dict[str, Callable[[Tensor], Tensor]] = {
            "relu-for-gelu": nn.functional.relu, "gelu-by-tanh": lambda x: nn.functional.gelu(x, approximate="tanh"),
            "quick-gelu": lambda x: x * torch.sigmoid(1.702 * x), "silu-for-gelu": nn.functional.silu,
            "gelu-off-by-2-percent": lambda x: 0.5 * x * (1 + torch.erf(x / 1.4425)),
        }  # fmt: skip
        own = nn.functional.relu if self.activation == "relu" else nn.functional.gelu
        return named.get(self.fault, own)(x)


def drawn(module: nn.Module, std: float = 0.2) -> Any:
    """With random numbers in every parameter: of zeros, as a bias is at first, an exporter keeps nothing."""
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.normal_(mean=1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0, std=std)
    return module.eval()


def layer(placement: str = "post", activation: str = "gelu", fault: str = "") -> Layer:
    """Right, or with this fault of its computation or of its weights."""
    made: Layer = drawn(Layer(placement, activation, fault))
    with torch.no_grad():
        WEIGHTS.get(fault, lambda module: None)(made)
    return made


class Pytorchs(nn.Module):
    """PyTorch's own layer or stack, with the mask under a name of its own, true to ignore."""

    def __init__(self, placement: str, activation: str, layers: int = 1) -> None:
        super().__init__()
        own = nn.TransformerEncoderLayer(D, H, F, 0.1, activation, batch_first=True, norm_first=placement == "pre")
        self.encoder: nn.Module = own
        if layers > 1:
            norm = nn.LayerNorm(D) if placement == "pre" else None
            self.encoder = nn.TransformerEncoder(own, layers, norm, enable_nested_tensor=False)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        made: Tensor = self.encoder(x, src_key_padding_mask=mask)
        return made


def _exchange(one: str, other: str) -> Change:
    def change(module: nn.Module) -> None:
        first, second = (module.get_parameter(name) for name in (one, other))
        kept = first.clone()
        first.copy_(second)
        second.copy_(kept)

    return change


def _edit(name: str, edit: Callable[[Tensor], Tensor]) -> Change:
    def change(module: nn.Module) -> None:
        parameter = module.get_parameter(name)
        parameter.copy_(edit(parameter.clone()))

    return change


def _with_one(value: float) -> Callable[[Tensor], Tensor]:
    def edit(weight: Tensor) -> Tensor:
        weight[3, 5] = value
        return weight

    return edit


WEIGHTS: dict[str, Change] = {
    "query-and-key-exchanged": _exchange("query.weight", "key.weight"),
    "gains-exchanged": _exchange("norm1.weight", "norm2.weight"),
    "output-transposed": _edit("output.weight", lambda weight: weight.T.clone()),
    "value-transposed": _edit("value.weight", lambda weight: weight.T.clone()),
    "columns-in-another-order": _edit("query.weight", lambda weight: weight.flip(0)),
    "weight-off-by-3-percent": _edit("hidden.weight", lambda weight: weight * 1.03),
    "bias-lost": _edit("value.bias", torch.zeros_like),
    "one-weight-wrong": _edit("back.weight", _with_one(2.0)),
    "one-weight-is-NaN": _edit("hidden.weight", _with_one(float("nan"))),
}
"""Fault of the weights → what it does to the module."""
