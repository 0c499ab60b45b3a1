"""Blocks as public repositories have them: of patches on a phone, of proteins, of language models written by hand."""

import torch
from cases_plain import Plain, PlainPost
from torch import Tensor


class OfPatches(PlainPost):
    """x [batch, patches, pixels, d_model]: a pixel attends to those of its own patch."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        batch, patches, pixels, width = x.shape
        return self.layer(x.reshape(batch * patches, pixels, width)).reshape(batch, patches, pixels, width)


class AlongTime(PlainPost):
    """x [batch, time, places, d_model]: a place attends to itself at other times."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        batch, time, places, width = x.shape
        rows = x.transpose(1, 2).reshape(batch * places, time, width)
        return self.layer(rows).reshape(batch, places, time, width).transpose(1, 2)


class ScoresAsWeights(Plain):
    """Retention without its decay."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        return torch.tril(q @ k.mT) @ v

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.layer(x)


class ScoresAsWeightsByEinsum(ScoresAsWeights):
    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        return torch.einsum("bhij,bhjd->bhid", torch.einsum("bhid,bhjd->bhij", q, k), v)


class HeadsAttendToEachOther(PlainPost):
    """Heads are cut, and not put before positions."""

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = (each(x).unflatten(-1, (self.H, -1)) for each in (self.q, self.k, self.v))
        return self.o((q @ k.mT / q.shape[-1] ** 0.5).softmax(-1).matmul(v).flatten(2))

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.layer(x)


class ManyHeadsAttendToEachOther(HeadsAttendToEachOther):
    H = 6


class CausalMaskThrownAway(PlainPost):
    """As of `masked_fill_` without its underscore."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("later", torch.ones(512, 512).triu(1).bool())

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.mT / q.shape[-1] ** 0.5
        scores.masked_fill(self.later[: q.shape[2], : q.shape[2]], -torch.inf)
        return scores.softmax(-1) @ v

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.layer(x)
