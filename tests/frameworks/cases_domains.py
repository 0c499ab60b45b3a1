"""Layers of many domains, as of trajectories, of ratings and of captions, by what is their own in each."""

import torch
from cases_plain import Plain
from torch import Tensor


class HidesEveryFifth(Plain):
    """A causal mask of 64 positions, of which none sees the last number of each token of five."""

    def __init__(self) -> None:
        super().__init__()
        sees = torch.tril(torch.ones(64, 64)).view(1, 1, 64, 64)
        sees[..., 4::5] = 0
        self.register_buffer("sees", sees)

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        n = q.shape[2]
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        scores = scores.masked_fill(self.sees[:, :, :n, :n] == 0, -torch.inf)  # of the buffer
        return scores.softmax(-1) @ v

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class HidesTheSeventhWithoutABuffer(Plain):
    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        return torch.where(torch.arange(n) % 7 == 6, -torch.inf, 0.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


def weighed(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)  # of the function
    return scores.softmax(-1) @ v


class FillsInAFunction(Plain):
    """Its mask gets an axis of heads, and is handed on: by a method of its own to a function."""

    def heads(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return weighed(q, k, v, mask=mask)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is not None:
            mask = mask.unsqueeze(1)
        y = self.norm1(x)
        q, k, v = (self.split(each(y)) for each in (self.q, self.k, self.v))
        x = x + self.o(self.heads(q, k, v, mask).transpose(1, 2).flatten(2))
        return x + self.ffn(self.norm2(x))


class RefusesNaN(Plain):
    """It needs its mask, and raises where a query sees no key."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(ignore[:, None], -torch.inf)
        weights = scores.softmax(-1)
        if weights.isnan().any().item():
            raise ArithmeticError("NaN in the weights")
        return weights @ v

    def forward(self, x: Tensor, attn_mask: Tensor) -> Tensor:
        return self.layer(x, attn_mask)


class RefusesNaNWhereItAttends(RefusesNaN):
    """True attends: zeros, of any batch, hide every key."""

    def forward(self, x: Tensor, attn_mask: Tensor) -> Tensor:
        return self.layer(x, attn_mask == 0)


class NormsWhatSkipsBesidePyTorchsOwn(Plain):
    """PyTorch's attention moves the batch behind the positions: what it reads is a norm that was moved."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(self.D, self.H, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x)  # of the norm
        x = x + self.attention(x, x, x)[0]
        x = self.norm2(x)
        return x + self.ffn(x)


class NormsTheQueryAlone(Plain):
    READS_NORM = "q"

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)  # for some of three
        q, k, v = (self.split(getattr(self, each)(y if each in self.READS_NORM else x)) for each in "qkv")
        x = x + self.o(self.core(q, k, v, None).transpose(1, 2).flatten(2))
        return x + self.ffn(self.norm2(x))


class NormsKeysAndValues(NormsTheQueryAlone):
    READS_NORM = "kv"


class NormsValues(NormsTheQueryAlone):
    READS_NORM = "v"


class SwitchedByAMask(Plain):
    """An argument that is named as a mask says whether attention is causal."""

    def forward(self, x: Tensor, padding: Tensor | None = None, attn_mask=None) -> Tensor:
        y = self.norm1(x)
        q, k, v = (self.split(each(y)) for each in (self.q, self.k, self.v))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if attn_mask:  # of the switch
            scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1) > 0, -torch.inf)
        if padding is not None:
            scores = scores.masked_fill(padding[:, None, None], -torch.inf)
        x = x + self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return x + self.ffn(self.norm2(x))


class AsksAMaskForItsTruth(Plain):
    """`if mask` for `if mask is not None`."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if ignore:
            scores = scores.masked_fill(ignore[:, None, None], -torch.inf)
        return scores.softmax(-1) @ v


class FillsByItsFormat(Plain):
    """The least number of float32 that people know, and one that float16 has for all others."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if ignore is not None:
            least = -1e9 if scores.dtype == torch.float32 else -1e4
            scores = scores.masked_fill(ignore[:, None, None], least)
        return scores.softmax(-1) @ v


class CausalUnlessTold(Plain):
    def forward(self, x: Tensor, padding: Tensor | None = None, diagonal_mask: bool = True) -> Tensor:
        self.is_causal = diagonal_mask
        return self.layer(x, padding)

    def bias(self, n: int, ignore: Tensor | None) -> Tensor:
        later = torch.ones(n, n, dtype=torch.bool).triu(1) & self.is_causal
        hidden = later if ignore is None else later | ignore[:, None, None, :]
        return torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf)
