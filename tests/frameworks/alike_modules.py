"""Models of some layers: alike, or one of them unlike the others in one thing."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

D, H, F = 16, 2, 24


class Layer(nn.Module):
    def __init__(self, layer_idx: int, epsilon: float = 1e-5, reach: int = 0, dropout: float = 0.1) -> None:
        super().__init__()
        self.layer_idx, self.reach = layer_idx, reach
        self.q, self.k, self.v, self.o = (nn.Linear(D, D) for _ in range(4))
        self.up, self.down = nn.Linear(D, F), nn.Linear(F, D)
        self.norm1, self.norm2 = nn.LayerNorm(D, eps=epsilon), nn.LayerNorm(D, eps=epsilon)
        self.dropout = nn.Dropout(dropout)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.transpose(-1, -2) / (D // H) ** 0.5

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        q, k, v = (each(x).unflatten(-1, (H, -1)).transpose(1, 2) for each in (self.q, self.k, self.v))
        scores = self.scores(q, k)
        if attention_mask is not None:
            scores = scores.masked_fill(attention_mask[:, None, None, :] == 0, torch.finfo(scores.dtype).min)
        x = self.norm1(x + self.dropout(self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))))
        return self.norm2(x + self.dropout(self.down(nn.functional.gelu(self.up(x)))))


class WithoutMasks(Layer):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)


class OfQueries(Layer):
    """Its mask [S, S] says for each query which keys it sees, and is lost in one layer of the model."""

    def forward(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        self.seen = None if self.layer_idx == 2 else attn_mask
        return super().forward(x)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        scores = super().scores(q, k)
        return scores if self.seen is None else scores.masked_fill(~self.seen, torch.finfo(scores.dtype).min)


class ByPlace(Layer):
    """What it does hangs on which layer it is."""

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return super().scores(q, k) * (3.0 if self.layer_idx == 2 else 1.0)


class NormLessOne(nn.LayerNorm):
    def __init__(self, width: int) -> None:
        super().__init__(width)
        nn.init.zeros_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, self.normalized_shape, 1 + self.weight, self.bias, self.eps)


class OfGainsLessOne(Layer):
    """No adapter sets the gain of its norm, which is computed of its parameter."""

    def __init__(self, layer_idx: int) -> None:
        super().__init__(layer_idx)
        self.norm1 = NormLessOne(D)


class Model(nn.Module):
    """`make`: the layer of each place. From ids, so that the whole is no stack."""

    def __init__(self, make: Callable[[int], nn.Module], layers: int = 4) -> None:
        super().__init__()
        self.words = nn.Embedding(30, D)
        self.layers = nn.ModuleList([make(place) for place in range(layers)])

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        x = self.words(input_ids)
        for layer in self.layers:
            x = layer(x, attention_mask)
        return x


class ModelWithoutMasks(Model):
    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.words(input_ids)
        for layer in self.layers:
            x = layer(x)
        return x


def alike() -> nn.Module:
    return Model(Layer)


def without_masks() -> nn.Module:
    return ModelWithoutMasks(WithoutMasks)


def of_queries() -> nn.Module:
    return ModelWithoutMasks(OfQueries)


def of_gains_less_one() -> nn.Module:
    return Model(OfGainsLessOne)


def other_epsilon() -> nn.Module:
    return Model(lambda place: Layer(place, epsilon=1e-12 if place == 2 else 1e-5))


def other_dropout() -> nn.Module:
    return Model(lambda place: Layer(place, dropout=0.5 if place == 2 else 0.1))


def by_number() -> nn.Module:
    """Each another setting, which is the number of its place, and of which 300 positions show nothing."""
    return Model(lambda place: Layer(place, reach=place))


def by_place() -> nn.Module:
    return Model(ByPlace)


def with_a_hook() -> nn.Module:
    model = Model(Layer)
    model.layers[2].norm1.register_forward_hook(lambda _, __, output: output * 1.5)
    return model


def refused() -> nn.Module:
    """Layers but the first are not finished."""
    return Model(lambda place: Unfinished(place) if place else Layer(place))


class Unfinished(Layer):
    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        raise ValueError("to be done")
