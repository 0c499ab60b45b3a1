"""Layers as people write them, of several classes, each with one line that is wrong: that line is named."""

from collections.abc import Callable

import torch
from cases_mutants import Listed
from cases_planted import _Written
from torch import Tensor, nn
from torch.nn import functional as F


class _Network(nn.Module):
    def __init__(self, d: int, hidden: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(d, hidden), nn.Linear(hidden, d)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.relu(self.up(x)))  # type: ignore[no-any-return]


class _LayerNorm(nn.Module):
    """A norm in another's clothes."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)  # type: ignore[no-any-return]


class SkipsNothingBeforeANorm(_Written):
    """A post-norm layer, whose network is a class of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.network = _Network(self.D, self.HIDDEN)
        self.norm1, self.norm2 = _LayerNorm(self.D), _LayerNorm(self.D)
        del self.up, self.down

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self.split(each) for each in self.heads(x))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        x = self.norm1(x + self.o(self.merged(scores.softmax(-1) @ v)))
        made = self.network(x)
        return self.norm2(made)  # without a skip


class _Branch(nn.Module):
    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor, branch: Callable[[Tensor], Tensor]) -> Tensor:
        return branch(self.norm(x))  # that adds nothing


class SkipsNothingBehindItsNetwork(Listed):
    """A pre-norm layer; its second branch stands by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.sublayer[1] = _Branch(nn.LayerNorm(16))
        self.network = _Network(16, 48)
        del self.up, self.down

    def forward(self, x: Tensor) -> Tensor:
        x = self.sublayer[0](x, self.attend)
        return self.sublayer[1](x, self.network)  # type: ignore[no-any-return]


class SeesNothingAtTheEnd(_Written):
    """Its last query sees no key: whatever is compared with what it gives is no number."""

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x), None)
        return x + self.ffn(self.norm2(x))

    def __init__(self) -> None:
        super().__init__()
        self.attention = _SeesLaterAlone(self.D, self.H)
        del self.q, self.k, self.v, self.o


class _SeesLaterAlone(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))

    def forward(self, x: Tensor, before: Tensor | None = None) -> Tensor:
        q, k, v = (each(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in (self.q, self.k, self.v))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        shown = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril() == 0
        weights = scores.masked_fill(~shown, -torch.inf).softmax(-1)  # the later alone
        return self.o((weights @ v).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class SoftmaxOverQueriesBesideAMask(_Written):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (self.split(each) for each in self.heads(self.norm1(x)))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask[:, None] == 0, -1e9)
        weights = scores.softmax(-2)  # over the queries
        x = x + self.o(self.merged(weights @ v))
        return x + self.ffn(self.norm2(x))


class _Gained(nn.Module):
    """The names of its gain and its shift say nothing of them."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.mean_hat, self.std_hat = nn.Parameter(torch.zeros(d)), nn.Parameter(torch.ones(d))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.std_hat, self.mean_hat)


class FirstConnectionTwice(Listed):
    def __init__(self) -> None:
        super().__init__()
        del self.sublayer
        self.attn_connection, self.ff_connection = _Connection(16), _Connection(16)

    def forward(self, x: Tensor) -> Tensor:
        x = self.attn_connection(x, self.attend)
        return self.attn_connection(x, lambda x: self.down(torch.relu(self.up(x))))  # type: ignore[no-any-return]


class _Connection(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.layer_norm = _Gained(d)

    def forward(self, x: Tensor, branch: Callable[[Tensor], Tensor]) -> Tensor:
        return x + branch(self.layer_norm(x))


class UnscaledBesideNormsOfItsOwn(_Written):
    """Its norms divide by torch.std, as the Annotated Transformer's do, which is known; that nothing divides its
    scores is not."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = _OfDeviations(self.D), _OfDeviations(self.D)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self.split(each) for each in self.heads(self.norm1(x)))
        scores = q @ k.transpose(-1, -2)  # undivided
        x = x + self.o(self.merged(scores.softmax(-1) @ v))
        return x + self.ffn(self.norm2(x))


class _OfDeviations(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.a_2, self.b_2 = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))

    def forward(self, x: Tensor) -> Tensor:
        return self.a_2 * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6) + self.b_2


class _OwnLinear(nn.Module):
    """A map that is written out."""

    def __init__(self, d: int, out: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(out, d) / d**0.5), nn.Parameter(torch.zeros(out))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T + self.bias


class QueryByAMapOfItsOwnClass(_Written):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (_OwnLinear(self.D, self.D) for _ in range(4))

    def heads(self, y: Tensor) -> tuple[Tensor, ...]:
        q = self.k(y)  # by the map of keys
        k = self.k(y)
        v = self.v(y)
        return q, k, v


class NoNormBeforeItsNetwork(_Written):
    def __init__(self) -> None:
        super().__init__()
        self.network = _Network(self.D, self.HIDDEN)
        del self.up, self.down, self.norm2

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self.split(each) for each in self.heads(self.norm1(x)))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        x = x + self.o(self.merged(scores.softmax(-1) @ v))
        return x + self.network(x)  # of what is not normed


class NoLastBias(_Written):
    """Its padding, which everybody knows the other way round, stands before what it lacks."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Linear(self.HIDDEN, self.D, bias=False)

    def ffn(self, x: Tensor) -> Tensor:
        x = F.gelu(self.up(x))
        return self.down(x)  # type: ignore[no-any-return]  # without a bias

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        return super().forward(x, key_padding_mask)


class ShownInTheWrongPlace(_Written):
    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        if key_padding_mask is not None:
            if key_padding_mask.dtype != torch.bool:
                raise TypeError("of truths alone")
            key_padding_mask = key_padding_mask[:, None, None, :]
        q, k, v = (self.split(each) for each in self.heads(self.norm1(x)))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if key_padding_mask is not None:
            scores = scores.masked_fill(~key_padding_mask, float("-inf"))  # the other way round
        x = x + self.o(self.merged(scores.softmax(-1) @ v))
        return x + self.ffn(self.norm2(x))


class MergedAcrossItems(_Written):
    """Sequence first; x is [sequence, batch, d_model], and its heads [batch * heads, sequence, d]."""

    def forward(self, x: Tensor) -> Tensor:
        length, batch, d = x.shape
        rows = (each.reshape(length, batch * self.H, -1).transpose(0, 1) for each in self.heads(self.norm1(x)))
        q, k, v = rows
        weights = (torch.bmm(q, k.transpose(1, 2)) / q.shape[-1] ** 0.5).softmax(-1)
        x = x + self.o(torch.bmm(weights, v).contiguous().view(length, batch, d))  # of the items
        return x + self.ffn(self.norm2(x))
