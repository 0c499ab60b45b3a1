"""Layers as repositories of many fields have them: how their masks go together, and where they are read."""

import torch
from cases_plain import Plain, PlainPost
from torch import Tensor, nn
from torch.nn import functional as F


class AddsBothMasks(Plain):
    """Its mask of padding is made numbers, to which the other is added: a bool is 0 or 1 there, and hides nothing."""

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None, attn_mask: Tensor | None = None) -> Tensor:
        merged = attn_mask
        if key_padding_mask is not None:
            padding = x.new_zeros(x.shape[0], 1, 1, x.shape[1]).masked_fill(key_padding_mask[:, None, None], -torch.inf)
            merged = padding if attn_mask is None else attn_mask + padding
        y = self.norm1(x)
        heads = F.scaled_dot_product_attention(*(self.split(each(y)) for each in (self.q, self.k, self.v)), merged)
        x = x + self.o(heads.transpose(1, 2).flatten(2))
        return x + self.ffn(self.norm2(x))


class _Attending(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)  # of the part
        return scores.softmax(-1) @ v


class CallsForward(Plain):
    """A part is called by its method, and not by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.attending = _Attending()

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        y = self.norm1(x)
        q, k, v = (self.split(each(y)) for each in (self.q, self.k, self.v))
        x = x + self.o(self.attending.forward(q, k, v, mask=mask).transpose(1, 2).flatten(2))
        return x + self.ffn(self.norm2(x))


class FillsNothingOfEachQuery(PlainPost):
    """What it fills is thrown away; its mask [batch, sequence, sequence] is repeated for the heads of all items."""

    def forward(self, x: Tensor, self_attn_mask: Tensor | None = None) -> Tensor:
        q, k, v = (self.split(each(x)).flatten(0, 1) for each in (self.q, self.k, self.v))
        ignore = None if self_attn_mask is None else self_attn_mask.repeat(self.H, 1, 1)
        scores = torch.bmm(q, k.transpose(1, 2)) / q.shape[-1] ** 0.5
        if ignore is not None:
            scores.masked_fill(ignore, -torch.inf)  # thrown away
        y = torch.bmm(scores.softmax(-1), v).unflatten(0, (-1, self.H)).transpose(1, 2).flatten(2)
        x = self.norm1(x + self.o(y))
        return self.norm2(x + self.ffn(x))


class HoldsNoNumbers(Plain):
    """A map of a feature that it was not made with: its parameters are empty."""

    def __init__(self) -> None:
        super().__init__()
        self.of_time = nn.Linear(0, 0)


class FillsWithNextToNothing(Plain):
    """It needs its mask, and fills with 1e-9 in the place of −1e9: under ones all keys weigh the same."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(ignore[:, None], 1e-9)
        return scores.softmax(-1) @ v

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.layer(x, mask)


class TimesDistances(Plain):
    """What it needs of each two positions of an item is multiplied to the scores, by a number of each head."""

    def __init__(self) -> None:
        super().__init__()
        self.of_distances = nn.Conv2d(1, self.H, 1)

    def forward(self, x: Tensor, dist: Tensor) -> Tensor:
        y = self.norm1(x)
        q, k, v = (self.split(each(y)) for each in (self.q, self.k, self.v))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 * self.of_distances(dist.unsqueeze(1))
        x = x + self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return x + self.ffn(self.norm2(x))


class SumsAttentionAlone(PlainPost):
    """Its second sum adds what attention gives, and not the first sum's norm."""

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        y = self.attend(x, ignore)
        return self.norm2(self.ffn(self.norm1(y + x)) + y)  # attention alone


class SumsAttentionAlonePre(Plain):
    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        y = self.attend(self.norm1(x), ignore)
        return self.ffn(self.norm2(y + x)) + y


class KeepsRowsAndNeedsScores(PlainPost):
    """It needs a mask of scores, and one of rows [batch, sequence, 1] for what its sub-layers give."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = (each.transpose(0, 1).flatten(0, 1) for each in (q, k, v))
        ignore = ignore.repeat(self.H, 1, 1)
        scores = torch.bmm(q, k.transpose(1, 2)) / q.shape[-1] ** 0.5
        return (
            torch.bmm(scores.masked_fill(ignore, -torch.inf).softmax(-1), v).unflatten(0, (self.H, -1)).transpose(0, 1)
        )

    def forward(self, x: Tensor, non_pad_mask: Tensor | None = None, slf_attn_mask: Tensor | None = None) -> Tensor:
        y = self.norm1(self.attend(x, slf_attn_mask) + x)
        y *= non_pad_mask
        return self.norm2(self.ffn(y) + y) * non_pad_mask
