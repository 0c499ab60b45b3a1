"""Layers of other people's models: drawn too large, with a `repr` that raises, or with x in more axes than three."""

import torch
from cases_plain import Plain, PlainPost
from torch import Tensor, nn


class _SeesNoLater(Plain):
    """Nobody sees a later position, whatever is given."""

    D, H, HIDDEN = 64, 4, 96

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        later = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).triu(1)
        scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(later, -torch.inf)
        return scores.softmax(-1) @ v

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.layer(x)


class DrawnTooLarge(_SeesNoLater):
    """Its matrices are drawn of size 1, so that its softmax gives one key everything, mostly a position's own."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        for each in self.parameters():
            if each.ndim > 1:
                nn.init.normal_(each, generator=generator)
        with torch.no_grad():
            self.q.weight.copy_(self.k.weight)


class NamesWhatItHasNot(Plain):
    """Its `repr` raises, which nobody saw who did not print it."""

    def extra_repr(self) -> str:
        return f"heads={self.heads}"


class OfParts(PlainPost):
    """x is [batch, frames, joints, features]: the features of all joints are the layer's. One norm stands twice."""

    def __init__(self) -> None:
        super().__init__()
        self.norm2 = self.norm1

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.layer(x.flatten(-2)).reshape(x.shape)


class _Masked(nn.Module):
    def forward(self, scores: Tensor, ignore: Tensor | None) -> Tensor:
        if ignore is not None:
            scores = scores.masked_fill(ignore.hidden(), -torch.inf)  # of the mask
        return scores.softmax(-1)


class HandsItOnInALoop(Plain):
    """The parts that are handed the mask are called in a loop, and name what no tensor has."""

    def __init__(self) -> None:
        super().__init__()
        self.softmaxes = nn.ModuleList([_Masked()])

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        weights = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        for each in self.softmaxes:
            weights = each(weights, ignore)
        return weights @ v


class DividesByItsBatch(Plain):
    """The size that its scores are divided by the root of is that of the first axis, and not of the last."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.transpose(-1, -2) / q.shape[0] ** 0.5  # of the batch
        return scores.softmax(-1) @ v

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.layer(x)


class NormsItsKeysApart(Plain):
    """Keys and values are of a norm of their own, and queries of another."""

    def __init__(self) -> None:
        super().__init__()
        self.norm3 = self.norm()

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        kept = self.norm3(x)
        k, v = self.split(self.k(kept)), self.split(self.v(kept))
        q = self.split(self.q(self.norm1(x)))  # of two norms
        x = x + self.o(self.core(q, k, v, ignore).transpose(1, 2).flatten(2))
        return x + self.ffn(self.norm2(x))


class AddsItsQueriesToItsKeys(Plain):
    """Additive attention: a score is what one vector makes of the tanh of a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.randn(self.D // self.H))

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = (q[..., None, :] + k[..., None, :, :]).tanh() @ self.vector
        weights = (scores - scores.amax(-1, keepdim=True)).exp()
        return weights / weights.sum(-1, keepdim=True) @ v  # of no product

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.layer(x)
