"""Layers whose numbers are reached otherwise than by a map's own call: written over where they lie, or past their
gradients; and a layer of which one position alone asks."""

import torch
from cases_plain import Plain, PlainPost
from torch import Tensor, nn
from torch.nn import functional as F


class ScalesAChunk(PlainPost):
    """Queries are a part of one map's result, and are multiplied where they lie; sequence first."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(self.D, 3 * self.D)
        del self.q, self.k, self.v

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        S, B, D = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q *= (D // self.H) ** -0.5
        q, k, v = (each.contiguous().view(S, B * self.H, D // self.H).transpose(0, 1) for each in (q, k, v))
        scores = torch.bmm(q, k.transpose(1, 2)).view(B, self.H, S, S)
        if ignore is not None:
            scores = scores.masked_fill(ignore[:, None, None, :], -torch.inf)
        made = torch.bmm(scores.softmax(-1).view(B * self.H, S, S), v)
        return self.o(made.transpose(0, 1).contiguous().view(S, B, D))

    def forward(self, x: Tensor, encoder_padding_mask: Tensor | None) -> Tensor:
        return self.layer(x, encoder_padding_mask)


class WritesOverAChunk(ScalesAChunk):
    """The same, of the keys, by an index, and of the batch first."""

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        made = self.qkv(x)
        made[..., self.D : 2 * self.D] = made[..., self.D : 2 * self.D] / (self.D // self.H) ** 0.5
        q, k, v = map(self.split, made.split(self.D, dim=-1))
        scores, bias = q @ k.transpose(-1, -2), self.bias(k.shape[2], ignore)
        weights = (scores if bias is None else scores + bias).softmax(-1)
        return self.o((weights @ v).transpose(1, 2).flatten(2))


class AsksForTheFirst(Plain):
    """One position, as of a class token, attends to the others, which stay."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(self.D, self.H, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        first, others = self.norm1(x[:, :1]), self.norm1(x[:, 1:])
        first = first + self.attention(query=first, key=others, value=others)[0]  # of one alone
        return torch.cat((first + self.ffn(self.norm2(first)), others), 1)


class _Reached(nn.Linear):
    """In evaluation it takes its weight past the gradients."""

    def forward(self, input: Tensor) -> Tensor:
        if self.training:
            return super().forward(input)
        return F.linear(input, self.weight.data, None if self.bias is None else self.bias.data)


class PastGradientsInEvaluation(Plain):
    """Its heads are parts, each with maps of its own, which have no gradients in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        size = self.D // self.H
        self.heads = nn.ModuleList(nn.ModuleList(_Reached(self.D, size) for _ in range(3)) for _ in range(self.H))
        self.o, self.up, self.down = _Reached(self.D, self.D), _Reached(self.D, 24), _Reached(24, self.D)
        del self.q, self.k, self.v

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        made = []
        for head in self.heads:
            q, k, v = (each(x) for each in head)
            scores = torch.matmul(q, k.transpose(2, 1))
            scores /= torch.sqrt(torch.tensor(q.shape[-1]).float())
            made.append(torch.matmul(torch.softmax(scores, -1), v))
        return self.o(torch.cat(made, -1))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class WiderValues(PastGradientsInEvaluation):
    """The values of each head are as wide as x, and stand feature by feature."""

    def __init__(self) -> None:
        super().__init__()
        for head in self.heads:
            head[2] = nn.Linear(self.D, self.D)
        self.o, self.up, self.down = nn.Linear(self.H * self.D, self.D), nn.Linear(self.D, 24), nn.Linear(24, self.D)
        for head in self.heads:
            head[0], head[1] = nn.Linear(self.D, 8), nn.Linear(self.D, 8)

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        made = []
        for head in self.heads:
            q, k, v = (each(x) for each in head)
            made.append(torch.softmax(q @ k.transpose(2, 1) / q.shape[-1] ** 0.5, -1) @ v)
        return self.o(torch.stack(made, -1).flatten(2))


class ScaledBehindASoftmax(PlainPost):
    """The scale stands behind the softmax, and lines before where its weights are used."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k)
        weights = F.softmax(scores, dim=-1) / self.D**0.5  # behind it
        weights = F.dropout(weights, 0.1, self.training)
        return torch.einsum("bhqk,bhkd->bhqd", weights, v)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class ForgetsItsSoftmax(PlainPost):
    """The softmax is taken, and the scores are used; the mask, whose ones stay, lowers what it hides."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.layer(x, mask)

    def core(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if mask is not None:
            hidden = torch.logical_not(mask).to(scores.dtype)
            scores = scores + (hidden @ hidden.transpose(1, 2))[:, None] * -1e8
        self.weights = scores.softmax(-1)
        return scores @ v  # and no weights


class ValuesOfEachAgent(nn.Module):
    """It takes a state, which it does not read, beside what each agent observes, and gives numbers for each agent."""

    def __init__(self, observed: int = 10) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.LayerNorm(observed), nn.Linear(observed, Plain.D), nn.GELU())
        self.blocks = nn.Sequential(Plain(), Plain())
        self.value, self.acts = nn.Linear(Plain.D, 1), nn.Linear(Plain.D, 5)

    def forward(self, state: Tensor, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        made = self.blocks(self.embed(obs))
        return self.value(made), made, self.acts(made)


class KeepsAnglesInFloat32(Plain):
    """Its rotary positions are made in float32, whatever its format, and its scores divided by the size of a head."""

    D, H = 16, 2

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        d = q.shape[-1]
        angles = torch.outer(torch.arange(q.shape[2]).float(), 1e4 ** (-torch.arange(0, d, 2).float() / d))
        angles = angles.repeat_interleave(2, -1)

        def turned(x: Tensor) -> Tensor:
            other = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
            return x * angles.cos() + other * angles.sin()

        return turned(q) / d**0.5, turned(k)
