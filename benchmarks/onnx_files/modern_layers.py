"""Twelve layers of today that no layer of the specification has to be, and bugs that are planted in them.

`LAYERS` has the choices of each, `BUGS` the bugs that each can have: `made("swiglu:gate-exchanged@2")` is one, drawn
from seed 2.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

D, H, F = 16, 4, 24
LAYERS: dict[str, dict[str, object]] = {
    "rope": {"rope": True},
    "gqa": {"rope": True, "shared": 2},
    "geglu": {"gate": "gelu"},
    "swiglu": {"gate": "silu", "rms": True},
    "qk-norm": {"qk_norm": True},
    "alibi": {"alibi": True},
    "layer-scale": {"layer_scale": True},
    "window": {"window": 3},
    "parallel": {"parallel": True},
    "macaron": {"macaron": True},
    "softcap": {"softcap": 5.0, "rms": True},
    "sandwich": {"sandwich": True},
}
BUGS: dict[str, tuple[str, ...]] = {
    "rope": ("pairs-exchanged", "one-position-further", "keys-not-turned", "theta-1000", "mask-inverted"),
    "gqa": ("heads-repeated", "keys-not-turned", "scale-of-d-model", "mask-ignored", "bias-lost"),
    "geglu": ("gate-exchanged", "gelu-by-tanh", "gate-lost", "norm-eps", "mask-ignored"),
    "swiglu": ("gate-exchanged", "relu-for-silu", "norm-centred", "norm-eps", "bias-lost"),
    "qk-norm": ("norm-of-queries-lost", "norm-before-heads", "norm-eps", "scale-lost", "mask-inverted"),
    "alibi": ("slopes-reversed", "signed", "one-slope", "scale-lost", "mask-ignored"),
    "layer-scale": ("layer-scale-lost", "layer-scales-exchanged", "norm-eps", "residual-lost", "mask-ignored"),
    "window": ("one-wider", "one-sided", "window-lost", "scale-of-d-model", "mask-inverted"),
    "parallel": ("one-after-another", "norm-twice", "residual-twice", "gelu-by-tanh", "mask-ignored"),
    "macaron": ("whole-steps", "first-half-lost", "norm-eps", "gelu-by-tanh", "mask-inverted"),
    "softcap": ("softcap-lost", "softcap-after-mask", "softcap-6", "norm-centred", "bias-lost"),
    "sandwich": ("outer-norm-lost", "outer-norms-exchanged", "norm-eps", "scale-lost", "mask-ignored"),
}


@dataclass
class Choices:
    rope: bool = False
    shared: int = 1
    gate: str = ""
    rms: bool = False
    qk_norm: bool = False
    alibi: bool = False
    layer_scale: bool = False
    window: int = 0
    parallel: bool = False
    macaron: bool = False
    softcap: float = 0.0
    sandwich: bool = False


def norm(x: Tensor, gain: Tensor, *, rms: bool, eps: float) -> Tensor:
    centred = x if rms else x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt((centred * centred).mean(-1, keepdim=True) + eps) * gain


class Layer(nn.Module):
    def __init__(self, choices: Choices, bug: str) -> None:
        super().__init__()
        self.choices, self.bug, keys = choices, bug, D // choices.shared
        self.q, self.k, self.v, self.o = nn.Linear(D, D), nn.Linear(D, keys), nn.Linear(D, keys), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, F * (1 + bool(choices.gate))), nn.Linear(F, D)
        self.first, self.second = nn.Linear(D, F), nn.Linear(F, D)
        self.gains, self.scales = nn.Parameter(torch.ones(6, D)), nn.Parameter(torch.ones(2, D))
        self.heads = nn.Parameter(torch.ones(2, D // H))

    def normed(self, x: Tensor, number: int) -> Tensor:
        rms = self.choices.rms and self.bug != "norm-centred"
        return norm(x, self.gains[number], rms=rms, eps=1e-3 if self.bug == "norm-eps" else 1e-6)

    def turned(self, x: Tensor, *, keys: bool) -> Tensor:
        """Rotated in halves by position."""
        if not self.choices.rope or (keys and self.bug == "keys-not-turned"):
            return x
        half, S = x.shape[-1] // 2, x.shape[-2]
        theta = 1000.0 if self.bug == "theta-1000" else 10000.0
        rates = theta ** (-torch.arange(half, dtype=x.dtype) / half)
        places = torch.arange(S, dtype=x.dtype) + (0 if keys or self.bug != "one-position-further" else 1)
        angles = places[:, None] * rates
        cos, sin = angles.cos(), angles.sin()
        if self.bug == "pairs-exchanged":
            one, other = x[..., ::2], x[..., 1::2]
            return torch.stack([one * cos - other * sin, one * sin + other * cos], -1).flatten(-2)
        one, other = x[..., :half], x[..., half:]
        return torch.cat([one * cos - other * sin, one * sin + other * cos], -1)

    def split(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], x.shape[1], x.shape[2] // (D // H), D // H).transpose(1, 2)

    def several(self, x: Tensor) -> Tensor:
        """Keys or values, one of each for every head."""
        times = self.choices.shared
        if self.bug == "heads-repeated":
            return x.repeat(1, times, 1, 1)
        return x if times == 1 else x[:, :, None].expand(-1, -1, times, -1, -1).flatten(1, 2)

    def added(self, scores: Tensor) -> Tensor:
        """What distance adds to the scores."""
        S = scores.shape[-1]
        places = torch.arange(S)
        apart = places[None, :] - places[:, None]
        if self.choices.alibi:
            slopes = 2.0 ** (-torch.arange(1, H + 1, dtype=scores.dtype) * 8 / H)
            slopes = slopes.flip(0) if self.bug == "slopes-reversed" else slopes
            slopes = slopes[:1].expand(H) if self.bug == "one-slope" else slopes
            far = (apart if self.bug == "signed" else -apart.abs()).to(scores.dtype)
            scores = scores + slopes[:, None, None] * far
        if self.choices.window and self.bug != "window-lost":
            width = self.choices.window + (self.bug == "one-wider")
            beyond = (apart > width) | (apart < -width) if self.bug != "one-sided" else apart > width
            scores = scores.masked_fill(beyond, torch.finfo(scores.dtype).min)
        return scores

    def capped(self, scores: Tensor) -> Tensor:
        cap = 6.0 if self.bug == "softcap-6" else self.choices.softcap
        return scores if not cap or self.bug == "softcap-lost" else cap * torch.tanh(scores / cap)

    def attend(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.several(self.split(self.v(x)))
        if self.choices.qk_norm:
            if self.bug == "norm-before-heads":
                whole = norm(self.q(x), torch.ones(D, dtype=x.dtype), rms=True, eps=1e-6)
                q = self.split(whole) * self.heads[0]
            elif self.bug != "norm-of-queries-lost":
                q = norm(q, self.heads[0], rms=True, eps=1e-3 if self.bug == "norm-eps" else 1e-6)
            k = norm(k, self.heads[1], rms=True, eps=1e-3 if self.bug == "norm-eps" else 1e-6)
        q, k = self.turned(q, keys=False), self.several(self.turned(k, keys=True))
        size = {"scale-of-d-model": D, "scale-lost": 1}.get(self.bug, D // H)
        scores = q @ k.transpose(-1, -2) / size**0.5
        scores = scores if self.bug == "softcap-after-mask" else self.capped(scores)
        scores = self.added(scores)
        hidden = ~mask[:, None, None, :]
        hidden = {"mask-inverted": ~hidden, "mask-ignored": torch.zeros_like(hidden)}.get(self.bug, hidden)
        scores = scores.masked_fill(hidden, -10.0 if self.bug == "softcap-after-mask" else torch.finfo(x.dtype).min)
        scores = self.capped(scores) if self.bug == "softcap-after-mask" else scores
        context = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        return functional.linear(context, self.o.weight) if self.bug == "bias-lost" else self.o(context)

    def activated(self, x: Tensor, kind: str) -> Tensor:
        if kind == "silu":
            return functional.relu(x) if self.bug == "relu-for-silu" else functional.silu(x)
        return functional.gelu(x, approximate="tanh" if self.bug == "gelu-by-tanh" else "none")

    def feed(self, x: Tensor) -> Tensor:
        x = self.up(x)
        if not self.choices.gate:
            return self.down(self.activated(x, "gelu"))
        one, other = x.chunk(2, -1)
        one, other = (other, one) if self.bug == "gate-exchanged" else (one, other)
        made = self.activated(one, self.choices.gate)
        return self.down(made if self.bug == "gate-lost" else made * other)

    def outer(self, x: Tensor, number: int) -> Tensor:
        if not self.choices.sandwich or (self.bug == "outer-norm-lost" and number == 4):
            return x
        return self.normed(x, 9 - number if self.bug == "outer-norms-exchanged" else number)

    def scaled(self, x: Tensor, number: int) -> Tensor:
        if not self.choices.layer_scale or self.bug == "layer-scale-lost":
            return x
        return x * self.scales[1 - number if self.bug == "layer-scales-exchanged" else number]

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        if self.choices.parallel:
            h = self.normed(x, 0)
            h = self.normed(h, 0) if self.bug == "norm-twice" else h
            given = h + self.attend(h, mask)
            fed = self.feed(given if self.bug == "one-after-another" else h)
            return x * (2 if self.bug == "residual-twice" else 1) + self.attend(h, mask) + fed
        half = 1.0 if self.bug == "whole-steps" else 0.5
        if self.choices.macaron and self.bug != "first-half-lost":
            x = x + half * self.second(self.activated(self.first(self.normed(x, 2)), "gelu"))
        kept = x * 0 if self.bug == "residual-lost" else x
        x = kept + self.scaled(self.outer(self.attend(self.normed(x, 0), mask), 4), 0)
        step = self.scaled(self.outer(self.feed(self.normed(x, 1)), 5), 1)
        return x + (half * step if self.choices.macaron else step)


def made(named: str) -> Layer:
    """`LAYER`, `LAYER:BUG`, each with `@SEED`; parameters are the same with a bug and without."""
    named, _, seed = named.partition("@")
    name, _, bug = named.partition(":")
    layer, generator = Layer(Choices(**LAYERS[name]), bug), torch.Generator().manual_seed(int(seed or 0))  # type: ignore[arg-type]
    with torch.no_grad():
        for path, parameter in layer.named_parameters():
            drawn = torch.randn(parameter.shape, generator=generator)
            is_gain = path in ("gains", "scales", "heads")
            parameter.copy_(
                1 + 0.3 * drawn if is_gain else drawn * (0.2 if parameter.ndim == 1 else parameter.shape[-1] ** -0.5)
            )
    return layer.eval()
