"""Layers that take their masks otherwise than one by one, and as long as x."""

from dataclasses import dataclass
from typing import Any

import torch
from cases_plain import Plain, PlainPost
from torch import Tensor
from torch.nn import functional as F


class _OfTwoMasks(Plain):
    def bias_of(self, queries: Tensor, keys: Tensor) -> Tensor:
        return torch.where(queries[:, None, :, None] & keys[:, None, None, :], 0.0, -1e9)

    def attended(self, x: Tensor, bias: Tensor | None) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        weights = (scores if bias is None else scores + bias.to(x.dtype)).softmax(-1)
        return self.o((weights @ v).transpose(1, 2).flatten(2))


class MaskOfQueriesNeeded(_OfTwoMasks):
    """Keys are hidden beside a mask of queries alone, as in LoFTR, where one sequence attends to another."""

    def forward(self, x: Tensor, x_mask: Tensor | None = None, source_mask: Tensor | None = None) -> Tensor:
        bias = None if source_mask is None else self.bias_of(x_mask.bool(), source_mask.bool())
        x = x + self.attended(self.norm1(x), bias)
        return x + self.ffn(self.norm2(x))


class BothMasksOrNone(_OfTwoMasks):
    """The same, and either alone does nothing."""

    def forward(self, x: Tensor, query_mask: Tensor | None = None, key_mask: Tensor | None = None) -> Tensor:
        whole = query_mask is not None and key_mask is not None
        bias = self.bias_of(query_mask.bool(), key_mask.bool()) if whole else None
        x = x + self.attended(self.norm1(x), bias)
        return x + self.ffn(self.norm2(x))


class MaskOfPatches(PlainPost):
    """Its mask is of the patches behind a class token, which is hidden from none, as in the first ports of ViT."""

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        if ignore is None:
            return None
        shown = F.pad(ignore, (1, 0), value=True)
        assert shown.shape[-1] == n, "mask has incorrect dimensions"
        return super().bias(n, ~shown)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.layer(x, mask)


class MaskOfPatchesForOneItem(_OfTwoMasks):
    """The same; what hides has no axis of heads, and is broadcast for one item alone, as in ports of SETR and BIT."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        bias = None
        if mask is not None:
            shown = F.pad(mask, (1, 0), value=True)
            assert shown.shape[-1] == x.shape[1], "mask has incorrect dimensions"
            bias = torch.where(shown[:, None, :] * shown[:, :, None], 0.0, torch.finfo(x.dtype).min)
        x = x + self.attended(self.norm1(x), bias)
        return x + self.ffn(self.norm2(x))


class CastBesideAMask(Plain):
    """Its scores are cast to float32 where there is a mask, and its values stay as they are."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if ignore is not None:
            scores = scores.float().masked_fill(ignore[:, None, None, :], -1e9)
        return scores.softmax(-1) @ v


class ThrownAwayBatchLast(Plain):
    """Its mask is [sequence, sequence, batch], and what is filled by it is thrown away."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if ignore is not None:
            assert ignore.shape == (q.shape[2], k.shape[2], q.shape[0])
            scores.masked_fill(ignore.permute(2, 0, 1).unsqueeze(1) == 0, -torch.inf)  # here
        return scores.softmax(-1) @ v

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.layer(x, mask)


class ViewsWhatIsTransposed(Plain):
    """Its heads are put together by a view, which no mask [batch, sequence] lets it come to. One of more axes makes
    scores of more, and these can be viewed so."""

    def attended(self, x: Tensor, keys: Tensor) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        weights = scores.masked_fill(keys.unsqueeze(1).unsqueeze(2) == 0, -torch.inf).softmax(-1)
        return self.o((weights @ v).transpose(1, 2).view(x.shape[0], x.shape[1], -1))

    def forward(self, x: Tensor, pad_mask: Tensor) -> Tensor:  # type: ignore[override]
        x = x + self.attended(self.norm1(x), pad_mask)
        return x + self.ffn(self.norm2(x))


class MaskOnCuda(PlainPost):
    """Where a mask is given, it makes another beside it on the GPU."""

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        return None if ignore is None else super().bias(n, ignore | torch.zeros(n, dtype=torch.bool).cuda())


@dataclass
class Hidden:
    keys: Tensor | None


class MaskOfAClass(PlainPost):
    """Its mask is an object that holds arrays, and says so in its annotation alone."""

    def forward(self, x: Tensor, mask: Hidden | None = None) -> Tensor:  # type: ignore[override]
        return self.layer(x, None if mask is None else mask.keys)


class RaisesWhatItAdds(Plain):
    """A mask that is true where a key is attended to, by a number of the wrong sign."""

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        return None if ignore is None else (1.0 - ignore[:, None, None, :].float()) * 1e4


class RaisesWhatItFills(PlainPost):
    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if ignore is not None:
            scores = scores.masked_fill(ignore[:, None, None, :].bool(), 1e9)
        return scores.softmax(-1) @ v


class AddsNumbersOfTwoPositions(PlainPost):
    """As LayoutLMv3's: numbers by distance, of words and on the page, which it needs and which are added to scores."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + (self._rel + self._page) / q.shape[-1] ** 0.5
        return (scores if ignore is None else scores + ignore).softmax(-1) @ v

    def forward(
        self, x: Tensor, attention_mask: Tensor | None = None, rel_pos: Any = None, rel_2d_pos: Any = None
    ) -> Tensor:
        self._rel, self._page = rel_pos, rel_2d_pos
        return self.layer(x, attention_mask)


class ComparesItsMask(PlainPost):
    """It is called with a mask always, 1 = attend, though that is None by default: None is equal to nothing."""

    def forward(self, x: Tensor, attention_mask: Any = None) -> Tensor:
        return self.layer(x, (attention_mask == 0)[:, :])
