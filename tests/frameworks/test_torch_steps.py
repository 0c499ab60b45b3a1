"""What a PyTorch layer is seen to do that no layer of the specification does, and which parts of a model are layers."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from encoder_conformance.readers.module_target.frameworks.torch_steps import beyond
from encoder_conformance.readers.module_target.frameworks.torch_sums import layers_in
from encoder_conformance.readers.onnx_file.tracing.unsupported import SENTENCES

D, H, S = 16, 2, 12


class Layer(nn.Module):
    """A pre-norm layer. `mixed`: what stands in place of attention's product of scores and values."""

    def __init__(self, mixed: Callable[["Layer", Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.norm1, self.norm2, self.batch = nn.LayerNorm(D), nn.LayerNorm(D), nn.BatchNorm1d(D)
        self.up, self.down = nn.Linear(D, 2 * D), nn.Linear(2 * D, D)
        self.wide, self.single = nn.Conv1d(D, D, 3, padding=1), nn.Conv1d(D, D, 1)
        self.far, self.gate = nn.Embedding(2 * S, D // H), nn.Parameter(torch.ones(1))
        self.mixed = mixed

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (each.unflatten(-1, (H, -1)).transpose(1, 2) for each in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(self.mixed(self, q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


def plain(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return ((q @ k.transpose(-1, -2)) / 4).softmax(-1) @ v


def fused(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return nn.functional.scaled_dot_product_attention(q, k, v)


def fourier(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.fft.fft2(v).real


def by_rows(layer: Layer, v: Tensor, of: nn.Module) -> Tensor:
    """A map of [B, D, S], by heads again."""
    return of(v.transpose(2, 3).flatten(1, 2)).unflatten(1, (H, -1)).transpose(2, 3)


def relative(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    apart = torch.arange(S) - torch.arange(S)[:, None] + S
    more = torch.einsum("bhqd,qkd->bhqk", q, layer.far(apart))
    return (q @ k.transpose(-1, -2) + more).softmax(-1) @ v


def blocks(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    parts = (each.unflatten(2, (-1, 4)) for each in (q, k, v))
    return fused(layer, *parts).flatten(2, 3)


def landmarks(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    few = k.unflatten(2, (4, -1)).mean(3)
    return (q @ few.transpose(-1, -2)).softmax(-1) @ ((few @ k.transpose(-1, -2)).softmax(-1) @ v)


def biased(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    by_query = q.sum(-1, keepdim=True).sigmoid() * torch.ones(S, S)
    return (q @ k.transpose(-1, -2) + by_query).softmax(-1) @ v


def biased_and_fused(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    by_query = q.sum(-1, keepdim=True).sigmoid() * torch.ones(S, S)
    return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=by_query)


def once_more(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return v + by_rows(layer, plain(layer, q, k, v), layer.single)


def of_some_positions(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    most = (q @ k.transpose(-1, -2)).amax(-1).topk(4).indices[..., None].expand(-1, -1, -1, D // H)
    return v.scatter(2, most, plain(layer, q.gather(2, most), k, v))


def of_some_experts(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    by_expert = (q @ layer.up.weight[:8, : D // H].t()).topk(2).values
    return plain(layer, q, k, v) * by_expert.sum(-1, keepdim=True)


def additive(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q[..., None, :] + k[..., None, :, :]).tanh().sum(-1)
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    return weights / weights.sum(-1, keepdim=True) @ v


def unweighed(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return q @ k.transpose(-1, -2) @ v


def by_heads(layer: Layer, q: Tensor, k: Tensor, v: Tensor, of: Any = plain) -> Tensor:
    return torch.cat([of(layer, *(each[:, h, None] for each in (q, k, v))) for h in range(H)], 1)


def in_branches(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return sum((plain(layer, each, k, v) for each in (q, v)), torch.zeros(()))  # type: ignore[return-value]


def gated(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return plain(layer, q, k, v) * layer.gate.tanh()


@pytest.mark.parametrize(
    ("mixed", "found"),
    [
        (plain, ()),
        (fused, ()),
        (lambda layer, q, k, v: plain(layer, q, k, by_rows(layer, v, layer.single)), ()),
        (lambda layer, q, k, v: plain(layer, q, k, by_rows(layer, v, layer.wide)), ("convolution",)),
        (lambda layer, q, k, v: plain(layer, q, k, by_rows(layer, v, layer.batch)), ("batch",)),
        (fourier, ("fourier",)),
        (relative, ("relative", "bias_of_x")),
        (blocks, ("blocks",)),
        (landmarks, ("products", "blocks")),
        (gated, ("one_gain",)),
        (unweighed, ("no_softmax",)),
        (additive, ("additive",)),
        (by_heads, ()),
        (partial(by_heads, of=fused), ()),
        (partial(by_heads, of=unweighed), ("no_softmax",)),
        (in_branches, ("products",)),
        (partial(by_heads, of=landmarks), ("products", "blocks")),
        (biased, ("bias_of_x",)),
        (biased_and_fused, ("bias_of_x",)),
        (once_more, ("sums",)),
        (of_some_positions, ("positions", "products")),
        (of_some_experts, ("experts",)),
    ],
)
def test_what_no_layer_of_the_specification_has_is_seen(mixed: Any, found: tuple[str, ...]) -> None:
    layer = Layer(mixed).eval()
    assert tuple(beyond(layer, layer, torch.randn(3, S, D), "BSD")) == found
    assert all(SENTENCES[each][0] for each in found)  # type: ignore[index]


def test_two_layers_have_no_more_products_and_sums_than_layers_have() -> None:
    two = nn.Sequential(Layer(plain), Layer(plain)).eval()
    assert beyond(two, two, torch.randn(3, S, D), "BSD") == {}
    two[1].mixed = once_more
    assert list(beyond(two, two, torch.randn(3, S, D), "BSD")) == ["sums"]


def test_each_is_said_with_its_own_line() -> None:
    def two(layer: Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return fourier(layer, relative(layer, q, k, v), k, v)

    layer = Layer(two).eval()
    seen = beyond(layer, layer, torch.randn(3, S, D), "BSD")
    assert seen["fourier"].endswith(": return torch.fft.fft2(v).real")
    assert seen["relative"].endswith(': more = torch.einsum("bhqd,qkd->bhqk", q, layer.far(apart))')
    assert all(line.startswith("test_torch_steps.py:") for line in seen.values())


class Model(nn.Module):
    """Layers, and a head that attends with one query and gives one position."""

    def __init__(self, mixed: Any) -> None:
        super().__init__()
        self.layers, self.query = nn.ModuleList([Layer(mixed), Layer(mixed)]), nn.Parameter(torch.randn(1, 1, D))
        self.head = Pooling()

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Pooling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.map, self.norm = nn.Parameter(torch.randn(1, 1, D)), nn.Linear(D, D), nn.LayerNorm(D)

    def forward(self, x: Tensor) -> Tensor:
        y = (self.query @ x.transpose(1, 2)).softmax(-1) @ x
        y = y + self.map(y)
        return (y + self.map(self.norm(y)))[:, 0]


@pytest.mark.parametrize("mixed", [plain, fourier])
def test_layers_are_found_and_a_pooling_head_is_none(mixed: Any) -> None:
    model = Model(mixed).eval()
    x = torch.randn(2, S, D)
    assert layers_in(model, partial(model, x)) == ["layers.0", "layers.1"]
    assert layers_in(model.head, partial(model.head, x)) == []
    assert layers_in(model.layers[0], partial(model.layers[0], x)) == [""]
