"""A key and a value of each head beside those of the positions, in the ways that people write them, and mistakes."""

import torch
from cases_plain import Plain, PlainPost
from torch import Tensor, nn
from torch.nn import functional as F


class AddsBiasKV(Plain):
    def __init__(self) -> None:
        super().__init__()
        del self.q, self.k, self.v, self.o
        self.attention = nn.MultiheadAttention(16, 2, add_bias_kv=True, batch_first=True)

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        return self.attention(x, x, x, key_padding_mask=ignore, need_weights=False)[0]


class AddsZeros(AddsBiasKV):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, add_zero_attn=True, batch_first=True)


class AddsBoth(AddsBiasKV):
    """Two of them, which no layer has."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, add_bias_kv=True, add_zero_attn=True, batch_first=True)


class KeyByHand(Plain):
    """[1, 1, D] each, before heads are split; the mask is filled up with what hides nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.bias_k, self.bias_v = (nn.Parameter(torch.randn(1, self.MORE, self.D)) for _ in range(2))

    MORE = 1

    def beside(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        own = (each.expand(len(k), -1, -1) for each in (self.bias_k, self.bias_v))
        return tuple(torch.cat(pair, 1) for pair in zip((k, v), own, strict=True))

    def filled(self, ignore: Tensor) -> Tensor:
        return F.pad(ignore, (0, self.MORE), value=False)

    def merge(self, context: Tensor) -> Tensor:
        return context.transpose(1, 2).flatten(2)

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        k, v = self.beside(self.k(x), self.v(x))
        q, k, v = (self.split(each) for each in (self.q(x), k, v))
        return self.o(self.merge(self.core(q, k, v, None if ignore is None else self.filled(ignore))))


class KeyByHandPost(KeyByHand, PlainPost):
    pass


class KeyOfGroupedHeads(KeyByHand):
    """One head of keys for both of queries; the key beside those of the positions is of that head."""

    def make_k(self) -> nn.Module:
        return nn.Linear(self.D, self.D // self.H)

    def __init__(self) -> None:
        super().__init__()
        self.bias_k, self.bias_v = (nn.Parameter(torch.randn(1, 1, self.D // self.H)) for _ in range(2))


class NullKeyFirst(Plain):
    """[2, H, d], before those of the positions."""

    def __init__(self) -> None:
        super().__init__()
        self.null = nn.Parameter(torch.randn(2, self.H, self.D // self.H))

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        own = self.null[:, None, :, None].expand(-1, len(k), -1, -1, -1)
        k, v = torch.cat((own[0], k), 2), torch.cat((own[1], v), 2)
        return super().core(q, k, v, None if ignore is None else F.pad(ignore, (1, 0), value=False))


class KeyWithCausalMask(KeyByHand):
    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        seen = F.pad(torch.ones(2 * (q.shape[2],), dtype=torch.bool).tril(), (0, 1), value=True)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class StackWithKeys(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers, self.norm = nn.ModuleList(KeyByHand() for _ in range(2)), nn.LayerNorm(16)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            x = layer(x, padding)
        return self.norm(x)


# ------------------------------------------------------------------------------------- mistakes


class KeyThatMasksHide(KeyByHand):
    def filled(self, ignore: Tensor) -> Tensor:
        return F.pad(ignore, (0, 1), value=True)


class MaskFilledInFront(KeyByHand):
    def filled(self, ignore: Tensor) -> Tensor:
        return F.pad(ignore, (1, 0), value=False)


class KeyAndValueExchanged(KeyByHand):
    def beside(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        v, k = super().beside(v, k)
        return k, v


class KeyFirstAndValueLast(KeyByHand):
    def beside(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        own = self.bias_k.expand(len(k), -1, -1)
        return torch.cat((own, k), 1), super().beside(k, v)[1]


class TwoKeys(KeyByHand):
    MORE = 2


class MergedAsItLies(KeyByHand):
    def merge(self, context: Tensor) -> Tensor:
        return context.reshape(len(context), -1, self.D)  # as it lies


class SkipsNothing(KeyByHand):
    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = self.attend(self.norm1(x), ignore)  # no skip
        return x + self.ffn(self.norm2(x))


class FusedPathLosesIt(nn.TransformerEncoderLayer):
    """PyTorch's fused path asks for no bias_k, and attends without it; its own code has it, and gives the gradients."""

    def __init__(self) -> None:
        super().__init__(16, 2, 24, dropout=0.0, batch_first=True)
        self.self_attn = nn.MultiheadAttention(16, 2, dropout=0.0, batch_first=True, add_bias_kv=True)


class KeysAreMadeAndNotRead(AddsBiasKV):
    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        own = self.attention
        q, k, v = (self.split(each) for each in F.linear(x, own.in_proj_weight, own.in_proj_bias).chunk(3, -1))
        return own.out_proj(self.core(q, k, v, ignore).transpose(1, 2).flatten(2))
