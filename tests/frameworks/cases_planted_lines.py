"""Layers with one planted bug each: it is called by its own name, and at its own line."""

import torch
from cases_lines import _Network, _OfDeviations
from cases_mutants import Listed
from cases_planted import _Written
from torch import Tensor, nn
from torch.nn import functional as F


class _Apart(_Written):
    """`attended` is what attention gives of what it reads."""

    def attended(self, y: Tensor) -> Tensor:
        q, k, v = (self.split(each) for each in self.heads(y))
        return self.o(self.merged(self.shown(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1) @ v))

    def shown(self, scores: Tensor) -> Tensor:
        return scores


class HalfPostNorm(_Apart):
    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attended(self.norm1(x))
        return self.norm2(x + self.ffn(x))  # behind the sum


class _NormOfDeviations(_OfDeviations):
    def forward(self, x: Tensor) -> Tensor:
        return self.a_2 * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6) + self.b_2


class FirstDeviationTwice(_Apart):
    """Its norms divide by torch.std, and the first serves both places. It is wide: numbers alone do not tell."""

    D, HIDDEN = 96, 160

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = _NormOfDeviations(self.D), _NormOfDeviations(self.D)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attended(self.norm1(x))
        return x + self.ffn(self.norm1(x))  # by the first one


class QueryOfANorm(_Apart):
    """A post-norm layer whose queries alone are of a norm of x."""

    def heads(self, y: Tensor) -> tuple[Tensor, ...]:
        q = self.q(self.norm1(y))  # of queries alone
        k = self.k(y)
        v = self.v(y)
        return q, k, v

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x + self.attended(x))
        return self.norm2(x + self.ffn(x))


class KeepsWhatTurns(_Apart):
    """Its angles are kept from its first call on. It is refused for what is no fault of theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.turned, self.known = None, 0

    def forward(self, x: Tensor) -> Tensor:
        if self.known != x.shape[1]:
            rates = 10000.0 ** (-torch.arange(0, self.D // self.H, 2) / (self.D // self.H))
            angles = torch.outer(torch.arange(x.shape[1]), rates).repeat(1, 2).to(x.dtype)
            self.known, self.turned = x.shape[1], torch.stack((angles.cos(), angles.sin()))
        x = x + self.attended(self.norm1(x))
        return self.ffn(self.norm2(x))

    def split(self, x: Tensor) -> Tensor:
        x = super().split(x)
        one, other = x.chunk(2, -1)
        return x * self.turned[0] + torch.cat((-other, one), -1) * self.turned[1]  # type: ignore[index]


class _ActivatedTwice(_Network):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.down(F.relu(self.up(x))))  # once more


class ActivatesItsLastMap(Listed):
    def __init__(self) -> None:
        super().__init__()
        self.network = _ActivatedTwice(16, 48)
        del self.up, self.down

    def forward(self, x: Tensor) -> Tensor:
        x = self.sublayer[0](x, self.attend)
        return self.sublayer[1](x, self.network)  # type: ignore[no-any-return]


class SeesLaterKeysAlone(_Apart):
    def shown(self, scores: Tensor) -> Tensor:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        return scores.masked_fill(seen, float("-inf"))  # the other way round

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attended(self.norm1(x))
        return x + self.ffn(self.norm2(x))


class SkipsANormOfItsOwnName(_Apart):
    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attended(self.norm1(x))
        normed = self.norm2(x)
        return normed + self.ffn(normed)  # in the place of x


class SkipsWhatIsNormed(_Apart):
    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attended(self.norm1(x))
        x = self.norm2(x)  # and its name
        return x + self.ffn(x)


class NoNormAtItsEnd(_Apart):
    """A post-norm layer, what it gives is set to 0 where a position is none."""

    def forward(self, x: Tensor, present: Tensor | None = None) -> Tensor:
        x = self.norm1(x + self.attended(x))
        x = self.added(x, self.ffn(x))
        return x * (torch.ones_like(x[..., :1]) * 0.5 if present is None else present)

    def added(self, x: Tensor, made: Tensor) -> Tensor:
        return x + made  # and no norm


class GroupedMaps(nn.Module):
    """Its maps are convolutions of kernel 1 of two groups of channels; x is [batch, d_model, sequence]."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Conv1d(24, 24, 1, groups=2) for _ in range(4))
        self.up, self.down = nn.Conv1d(24, 40, 1, groups=2), nn.Conv1d(40, 24, 1, groups=2)
        self.norm1, self.norm2 = nn.LayerNorm(24), nn.LayerNorm(24)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (each(x).unflatten(1, (3, 8)) for each in (self.q, self.k, self.v))  # of two groups
        weights = (q.transpose(-1, -2) @ k / 8**0.5).softmax(-1)
        x = x + self.o((weights @ v.transpose(-1, -2)).transpose(-1, -2).flatten(1, 2))
        x = self.norm1(x.transpose(1, 2)).transpose(1, 2)
        x = x + self.down(F.gelu(self.up(x)))
        return self.norm2(x.transpose(1, 2)).transpose(1, 2)  # type: ignore[no-any-return]


def _decorated(method):  # type: ignore[no-untyped-def]
    from functools import wraps

    @wraps(method)
    def wrapped(self, *given):  # type: ignore[no-untyped-def]
        return method(self, *given)

    return wrapped


class KeepsABias(_Apart):
    """Fills what it keeps in a call, and empties it elsewhere, in a function that is wrapped."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[int, Tensor] = {}

    @_decorated
    def train(self, mode: bool = True):  # type: ignore[no-untyped-def]
        self.kept = {}
        return super().train(mode)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] not in self.kept:
            self.kept[x.shape[1]] = torch.zeros(())  # for later calls
        x = x + self.attended(self.norm1(x)) + self.kept[x.shape[1]]
        return x + self.ffn(self.norm2(x))


class BiasedByPairs(_Apart):
    """`pairs` [batch, sequence, sequence, d_model] bias its scores; what it gives of its attention is no layer's."""

    def __init__(self) -> None:
        super().__init__()
        self.bias_of = nn.Linear(self.D, self.H)

    def forward(self, x: Tensor, pairs: Tensor | None = None) -> Tensor:
        q, k, v = (self.split(each) for each in self.heads(self.norm1(x)))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if pairs is not None:
            scores = scores + self.bias_of(pairs).permute(0, 3, 1, 2)
        x = self.o(self.merged(scores.softmax(-1) @ v))
        return x + self.ffn(self.norm2(x))


class _LooksAtAnother(_Apart):
    def forward(self, x: Tensor, encoder_hidden_states: Tensor) -> Tensor:
        y = self.norm1(x)
        q, k, v = (self.split(each) for each in (self.q(y), *self.heads(encoder_hidden_states)[1:]))
        x = x + self.o(self.merged((q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1) @ v))
        return x + self.ffn(self.norm2(x))


class OfTwoTowers(nn.Module):
    """A model from ids whose last layer attends to what another tower gives."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(40, _Apart.D)
        self.one, self.other, self.both = _Written(), _Written(), _LooksAtAnother()

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        return self.both(self.one(x), self.other(x))  # type: ignore[no-any-return]
