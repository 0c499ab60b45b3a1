"""Modules that no layer of the specification is: attention and a gated network side by side, which nothing skips."""

import torch
from torch import nn
from torch.nn import functional as F


class Parallel(nn.Module):
    gate = staticmethod(F.silu)

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.qkv, self.o = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.up, self.down = nn.Linear(16, 64), nn.Linear(32, 16)

    def forward(self, x, attention_mask=None):
        h = self.norm(x)
        q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in self.qkv(h).chunk(3, -1))
        a, b = self.up(h).chunk(2, -1)
        return self.o(self.attend(q, k, v, attention_mask).transpose(1, 2).flatten(2)) + self.down(self.gate(a) * b)

    def attend(self, q, k, v, mask):
        s = q @ k.transpose(-1, -2) / 8**0.5
        if mask is not None:
            s = s.masked_fill(mask[:, None, None] == 0, torch.finfo(s.dtype).min)
        return s.softmax(-1) @ v


class Port(Parallel):
    """The same by PyTorch's own attention, with an added mask, which is NaN in float64: bool · number is float32."""

    def attend(self, q, k, v, mask):
        added = None if mask is None else (mask[:, None, None] == 0) * torch.finfo(q.dtype).min
        return F.scaled_dot_product_attention(q, k, v, attn_mask=added)


class Gelu(Port):
    gate = staticmethod(F.gelu)


class Undefined(Parallel):
    """NaN for an item of padding alone, which the others give numbers for."""

    def attend(self, q, k, v, mask):
        s = q @ k.transpose(-1, -2) / 8**0.5
        return (s if mask is None else s.masked_fill(mask[:, None, None] == 0, -torch.inf)).softmax(-1) @ v


class Causal(Port):
    """Without a mask alone."""

    def attend(self, q, k, v, mask):
        plain = super().attend(q, k, v, mask)
        return plain if mask is not None else F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Turned(Port):
    """attention_mask hides where it is true."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, None if mask is None else 1 - mask.long())


class Noisy(Port):
    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, mask) + 1e-3 * torch.randn(8)


class Short(Port):
    """Takes at most 16 positions."""

    def attend(self, q, k, v, mask):
        if q.shape[-2] > 16:
            raise ValueError("16 positions at most")
        return super().attend(q, k, v, mask)


class Local(Port):
    """Sees 100 positions to either side."""

    def attend(self, q, k, v, mask):
        apart = torch.arange(q.shape[-2])[:, None] - torch.arange(q.shape[-2])
        beyond = (apart.abs() > 100) * -1e30
        hidden = 0 if mask is None else (mask[:, None, None] == 0) * torch.finfo(q.dtype).min
        return F.scaled_dot_product_attention(q, k, v, attn_mask=(beyond + hidden).to(q.dtype))
