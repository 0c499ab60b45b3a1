"""Layers as models call them: with a mask of several forms beside a window, and with angles of a table of the model."""

import torch
from torch import Tensor, nn

D, H, F, REACH, LENGTH = 16, 2, 24, 2, 512


class Layer(nn.Module):
    """A pre-norm layer without biases of the norm's choice. `rotary`: [S, D / H], sines before cosines."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(D, D) for _ in range(4))
        self.up, self.down = nn.Linear(D, F), nn.Linear(F, D)
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)

    def attended(self, x: Tensor, seen: Tensor | None, rotary: Tensor | None = None) -> Tensor:
        q, k, v = (each(x).unflatten(-1, (H, -1)).transpose(1, 2) for each in (self.q, self.k, self.v))
        if rotary is not None:
            q, k = turned(q, rotary), turned(k, rotary)
        scores = q @ k.transpose(-1, -2) / (D // H) ** 0.5
        if seen is not None:
            scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def forward(self, x: Tensor, rotary: Tensor) -> Tensor:
        x = x + self.attended(self.norm1(x), None, rotary)
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


def turned(x: Tensor, rotary: Tensor) -> Tensor:
    sine, cosine = rotary.chunk(2, -1)
    one, other = x.chunk(2, -1)
    return torch.cat([one * cosine - other * sine, other * cosine + one * sine], -1)


class QkNormed(Layer):
    """Queries and keys are normed over each head, right before PyTorch's product, as in timm's vision transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.q_norm, self.k_norm = nn.LayerNorm(D // H), nn.LayerNorm(D // H)

    def forward(self, x: Tensor) -> Tensor:
        n = self.norm1(x)
        q, k, v = (each(n).unflatten(-1, (H, -1)).transpose(1, 2) for each in (self.q, self.k, self.v))
        attended = nn.functional.scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v)
        x = x + self.o(attended.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Unwindowed(Layer):
    """Without a mask no position sees a later one."""

    def forward(self, x: Tensor) -> Tensor:
        S = x.shape[1]
        x = x + self.attended(self.norm1(x), torch.ones(S, S, dtype=torch.bool, device=x.device).tril())
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class OfABlock(Layer):
    """Always causal, by a buffer for so many positions, as nanoGPT's blocks are."""

    def __init__(self, block: int = 40) -> None:
        super().__init__()
        self.register_buffer("seen", torch.ones(block, block, dtype=torch.bool).tril())

    def forward(self, x: Tensor) -> Tensor:
        S = x.shape[1]
        x = x + self.attended(self.norm1(x), self.seen[:S, :S])
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Windowed(Layer):
    """A mask [batch, sequence] is of keys, beside the window; one of four axes stands for both, as in transformers."""

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        S = x.shape[1]
        places = torch.arange(S, device=x.device)
        seen = ((places - places[:, None]).abs() <= REACH)[None, None]
        if attention_mask is not None and attention_mask.ndim == 4:
            seen = attention_mask != 0
        elif attention_mask is not None:
            seen = seen & (attention_mask[:, None, None, :S] != 0)
        x = x + self.attended(self.norm1(x), seen)
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class LosesItsWindow(Windowed):
    """Whatever the mask is."""

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        if attention_mask is None or attention_mask.ndim != 2:
            return super().forward(x, attention_mask)
        return super().forward(x, attention_mask[:, None, None].expand(-1, -1, x.shape[1], -1))


class Model(nn.Module):
    """`trained`: whether its table of sines and cosines is."""

    def __init__(self, trained: bool = False) -> None:
        super().__init__()
        self.words = nn.Embedding(30, D)
        half = D // H // 2
        angles = torch.arange(LENGTH)[:, None] * 10000.0 ** (-torch.arange(half) / half)
        self.table = nn.Parameter(torch.cat([angles.sin(), angles.cos()], -1), requires_grad=trained)
        self.layers = nn.ModuleList([Layer(), Layer()])

    @torch.no_grad()
    def rotary(self, length: int) -> Tensor:
        return self.table[:length]

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.words(input_ids)
        for layer in self.layers:
            x = layer(x, self.rotary(x.shape[1]))
        return x


def windowed() -> nn.Module:
    return Windowed()


def loses_its_window() -> nn.Module:
    return LosesItsWindow()


class OfPixels(nn.Module):
    """Convolutions of an image, in blocks that are no layers; it keeps the sizes that it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Conv2d(3, 3, 3, padding=1) for _ in range(12))
        self.seen: set[int] = set()

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            image = image + torch.relu(block(image))
        self.seen.add(image.shape[-1])
        return image
