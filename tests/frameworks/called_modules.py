"""Right layers that are called otherwise than with x [batch, sequence, d_model] and a mask, in PyTorch."""

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_D = 16


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(_D), nn.LayerNorm(_D)
        self.w_qs, self.w_ks, self.w_vs, self.fc = (nn.Linear(_D, _D) for _ in range(4))
        self.up, self.down = nn.Linear(_D, 24), nn.Linear(24, _D)

    def heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (2, -1)).transpose(1, 2)

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = (self.heads(each(x)) for each in (self.w_qs, self.w_ks, self.w_vs))
        s = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if ignore is not None:
            s = s.masked_fill(self.hidden(ignore), -torch.inf)
        return self.fc((s.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def hidden(self, ignore: Tensor) -> Tensor:
        return ignore[:, None, None, :]

    def ffn(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = x + self.attend(self.norm1(x), ignore)
        return x + self.ffn(self.norm2(x))

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return self.layer(x, padding)


class Packed(Plain):
    def forward(self, x: Tensor, cu_seqlens: Tensor, max_seqlen: int) -> Tensor:
        ends = cu_seqlens.tolist()
        return torch.cat([self.layer(x[a:b][None])[0] for a, b in itertools.pairwise(ends)])


class Lengths(Plain):
    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        return self.layer(x, torch.arange(x.shape[1])[None] >= lengths[:, None])


class LengthsAsParts(Plain):
    """1.0 is the longest, as SpeechBrain has it: of a number of positions it makes that all are there."""

    def forward(self, x: Tensor, wav_lens: Tensor) -> Tensor:
        return self.layer(x, torch.arange(x.shape[1])[None] >= (wav_lens[:, None] * x.shape[1]).round())


class MapOfRows(Plain):
    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        return self.layer(x.flatten(2).transpose(1, 2)).transpose(1, 2).reshape(batch, channels, height, width)


class ChannelsFirst(Plain):
    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return self.layer(x.transpose(1, 2), padding).transpose(1, 2)


class OfMapping(Plain):
    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"hidden": self.layer(batch["hidden"], batch.get("padding_mask"))}


class OfTuple(Plain):
    def forward(self, inputs: tuple[Tensor, Tensor | None]) -> Tensor:
        x, ignore = inputs
        return self.layer(x, ignore)


class Thrice(Plain):
    def forward(self, value: Tensor, key: Tensor, query: Tensor, mask: Tensor | None) -> Tensor:
        assert value is key is query
        return self.layer(value, mask)


class AsksOfItsMask(Plain):
    """Its mask has a default that it cannot do with, as in transformers' MraLayer."""

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.layer(x, attention_mask[:, 0, 0] < 0 if attention_mask.ndim == 4 else attention_mask == 0)


class NeedsMask(Plain):
    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        return self.layer(x, attention_mask[:, 0, 0] == 0)


class MaskFirst(Plain):
    def forward(self, mask: Tensor, hidden_states: Tensor) -> Tensor:
        return self.layer(hidden_states, ~mask)


class OfOneRow(Plain):
    """Its mask is [batch, 1, sequence], 1 = attend; of [batch, sequence, sequence] it reads the first query's."""

    def forward(self, x: Tensor, x_mask: Tensor | None = None) -> Tensor:
        return self.layer(x, None if x_mask is None else x_mask[:, 0] == 0)


class OfOneHead(Plain):
    """Its mask is [batch, 1, sequence, sequence]; of one for each head it reads the first's."""

    def hidden(self, ignore: Tensor) -> Tensor:
        return ignore[:, :1]

    def forward(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        return self.layer(x, None if attn_mask is None else attn_mask == 0)


class OfEachHead(OfOneHead):
    def hidden(self, ignore: Tensor) -> Tensor:
        return ignore


class ByEights(Plain):
    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] % 8:
            raise ValueError("the sequence is a multiple of 8")
        return self.layer(x)


class Lazy(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.w_qs = nn.LazyLinear(_D)


class OfAKind(Plain):
    """Nothing that is tried says what `kind` is."""

    def forward(self, x: Tensor, kind: str) -> Tensor:
        if kind != "encoder":
            raise ValueError(f"no kind {type(kind).__name__}")
        return self.layer(x)


class LazyOfAKind(Lazy):
    """Its weights are made at a call that needs a kind, too."""

    def forward(self, x: Tensor, kind: str) -> Tensor:
        if kind != "encoder":
            raise ValueError(f"no kind {type(kind).__name__}")
        return self.layer(x)


class Decoder(Plain):
    def forward(self, x: Tensor, enc_output: Tensor) -> Tensor:
        return self.layer(x + enc_output.mean())


class Pointwise(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Conv1d(_D, 24, 1), nn.Conv1d(24, _D, 1)
        self.kernel_size = 1  # of no tuple, as a part of somebody's own has it

    def ffn(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x.transpose(1, 2)))).transpose(1, 2)


class OfAFunction(Plain):
    """Its feed-forward network is a function of its own parts, as in minGPT."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = nn.ModuleDict({"up": nn.Linear(_D, 24), "drop": nn.Dropout(0.1), "down": nn.Linear(24, _D)})
        del self.up, self.down
        m = self.mlp
        self.ffn = lambda x: m["drop"](m["down"](F.gelu(m["up"](x))))


class KeyBiasOfZeros(Plain):
    """The bias of its keys is a buffer of zeros, in one product with those of queries and values, as in timm's BEiT."""

    def __init__(self) -> None:
        super().__init__()
        del self.w_qs, self.w_ks, self.w_vs
        self.qkv = nn.Linear(_D, 3 * _D, bias=False)
        self.q_bias, self.v_bias = nn.Parameter(torch.zeros(_D)), nn.Parameter(torch.zeros(_D))
        self.register_buffer("k_bias", torch.zeros(_D), persistent=False)

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        bias = torch.cat([self.q_bias, self.k_bias, self.v_bias])
        q, k, v = (self.heads(each) for each in F.linear(x, self.qkv.weight, bias).chunk(3, -1))
        s = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        return self.fc((s.softmax(-1) @ v).transpose(1, 2).flatten(2))


class AnyMaskIsCausal(Plain):
    """Whatever its mask holds, as in Whisper where PyTorch has a scaled product."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        S = x.shape[1]
        return self.layer(x, None if mask is None else torch.ones(S, S, dtype=torch.bool).triu(1))

    def hidden(self, ignore: Tensor) -> Tensor:
        return ignore


class OfASlice(Plain):
    """It takes as many rows and columns of its mask as there are positions, as Whisper does of one [queries, keys]."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.layer(x, None if mask is None else mask[: x.shape[1], : x.shape[1]])

    def hidden(self, ignore: Tensor) -> Tensor:
        return ignore != 0


class _Adapted(nn.Module):
    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base, self.a, self.b = base, nn.Parameter(torch.randn(2, _D)), nn.Parameter(torch.randn(_D, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + x @ self.a.T @ self.b.T


class Lora(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.w_qs = _Adapted(self.w_qs)


class WeightNormed(Plain):
    def __init__(self) -> None:
        super().__init__()
        nn.utils.parametrizations.weight_norm(self.w_qs)


class Exchanged(Plain):
    """Query's work is done by w_ks."""

    def __init__(self) -> None:
        super().__init__()
        self.w_qs.weight.data, self.w_ks.weight.data = self.w_ks.weight.data, self.w_qs.weight.data

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = (self.heads(each(x)) for each in (self.w_ks, self.w_qs, self.w_vs))
        s = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if ignore is not None:
            s = s.masked_fill(ignore[:, None, None, :], -torch.inf)
        return self.fc((s.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Filled(Plain):
    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = (self.heads(each(x)) for each in (self.w_qs, self.w_ks, self.w_vs))
        s = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if ignore is not None:
            s = s.masked_fill(ignore[:, None, None, :], -1e9)
        return self.fc((s.softmax(-1) @ v).transpose(1, 2).flatten(2))


class OfAPlan(Plain):
    """Needs seven numbers of each position."""

    def forward(self, x: Tensor, plan: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        if plan.shape[-1] != 7:
            raise ValueError(f"a plan has 7 numbers, not {plan.shape[-1]}")
        return super().forward(x + 0 * plan.sum(-1, keepdim=True), padding_mask)
