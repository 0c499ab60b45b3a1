"""How today's layers are called: each way alone, and two other ways to do it. What they compute is `Plain`."""

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from cases_attention import Rope
from cases_plain import Plain, PlainPost
from torch import Tensor, nn

# ------------------------------------------------------------------------------- axes


class ChannelsFirst(Plain):
    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return self.layer(x.transpose(1, 2), padding).transpose(1, 2)


class ChannelsFirstPost(PlainPost):
    """[batch, d_model, sequence], with a mask [batch, 1, sequence], 1 = attend, as encoders of speech have it."""

    def forward(self, x: Tensor, x_mask: Tensor) -> Tensor:
        return self.layer(x.permute(0, 2, 1), x_mask[:, 0] == 0).permute(0, 2, 1)


class OneMaskOrAnother(Plain):
    """A mask of attention, true = attend, is made of that of padding where none is given, which is ignored else."""

    def forward(self, x: Tensor, padding_mask: Tensor | None = None, attention_mask: Tensor | None = None) -> Tensor:
        if attention_mask is None and padding_mask is not None:
            attention_mask = padding_mask[:, None, None, :]
        self._shut = None if attention_mask is None else ~attention_mask.bool()
        return self.layer(x, None)

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        return None if self._shut is None else torch.zeros(()).masked_fill(self._shut, -torch.inf)


class _Conv(nn.Conv1d):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


class ChannelsFirstByConvolutions(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (_Conv(16, 16, 1) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.mT).mT


class SequenceFirst(Plain):
    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return self.layer(x.transpose(0, 1), padding).transpose(0, 1)


def sequence_first_of_pytorch() -> nn.Module:
    return nn.TransformerEncoderLayer(24, 3, 40, dropout=0.0, activation="gelu", norm_first=True)


class SequenceFirstByEinsum(PlainPost):
    """It never turns its axes."""

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = (each(x).unflatten(-1, (3, 8)) for each in (self.q, self.k, self.v))
        scores = torch.einsum("qbhd,kbhd->bhqk", q, k) / 8**0.5
        if ignore is not None:
            scores = scores.masked_fill(ignore[:, None, None, :], torch.finfo(x.dtype).min)
        return self.o(torch.einsum("bhqk,kbhd->qbhd", scores.softmax(-1), v).flatten(2))


class Map2D(Plain):
    """[batch, height, width, d_model]"""

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.flatten(1, 2)).unflatten(1, x.shape[1:3])


class Map2DChannelsFirst(PlainPost):
    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.flatten(2).mT).mT.unflatten(2, x.shape[2:])


class Map3D(Plain):
    """[batch, frames, height, width, d_model]"""

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.flatten(1, 3)).reshape(x.shape)


# ------------------------------------------------------------------------------- what comes back


class TupleOut(Plain):
    def forward(self, x: Tensor, padding: Tensor | None = None) -> Any:
        return self.layer(x, padding), None, {"cache": None}


class TupleOutLast(PlainPost):
    """Its output is the last of three, behind numbers of another shape."""

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Any:
        return x.new_zeros(()), x.mean((1, 2)), self.layer(x, padding)


class ListOut(Plain):
    def forward(self, x: Tensor, padding: Tensor | None = None) -> Any:
        return [self.layer(x, padding)]


@dataclass
class Output:
    last_hidden_state: Tensor


class DataclassOut(Plain):
    def forward(self, x: Tensor, padding: Tensor | None = None) -> Any:
        return Output(self.layer(x, padding))


class Named(NamedTuple):
    loss: Tensor | None
    hidden: Tensor


class NamedTupleOut(PlainPost):
    def forward(self, x: Tensor, padding: Tensor | None = None) -> Any:
        return Named(None, self.layer(x, padding))


class MappingOut(Plain):
    def forward(self, x: Tensor, padding: Tensor | None = None) -> Any:
        return {"attentions": None, "hidden_states": self.layer(x, padding)}


# ------------------------------------------------------------------------------- rows and lengths


class Packed(Plain):
    """Rows of all items in one axis, with cumulative lengths."""

    def forward(self, x: Tensor, cu_seqlens: Tensor) -> Tensor:
        ends = cu_seqlens.tolist()
        return torch.cat([self.layer(x[a:b][None])[0] for a, b in itertools.pairwise(ends)])


class PackedInABatch(PlainPost):
    """It pads by itself, by the greatest length, which it is told."""

    def forward(self, hidden: Tensor, cu_seqlens: Tensor, max_seqlen: int) -> Tensor:
        ends = cu_seqlens.long()
        lengths = ends.diff()
        place = torch.arange(max_seqlen)[None] < lengths[:, None]
        x = hidden.new_zeros(len(lengths), max_seqlen, hidden.shape[-1])
        x[place] = hidden
        return self.layer(x, ~place)[place]


class PackedByNumbers(Plain):
    """Each row has the number of its item; rows see those of their own item."""

    def forward(self, x: Tensor, segment_ids: Tensor) -> Tensor:
        apart = segment_ids[:, None] != segment_ids
        return self.layer(x[None], apart[None])[0]

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        assert ignore is not None
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        return scores.masked_fill(ignore[:, None], -torch.inf).softmax(-1) @ v


class PackedBySearch(Plain):
    """The item of a row is sought among the cumulative lengths, by an operator that no exporter has."""

    def forward(self, x: Tensor, cu_seqlens: Tensor) -> Tensor:
        item = torch.searchsorted(cu_seqlens, torch.arange(len(x), dtype=cu_seqlens.dtype), right=True)
        return self.layer(x[None], item[:, None] != item)[0]

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        assert ignore is not None
        return torch.where(ignore, -torch.inf, 0.0)


class Lengths(Plain):
    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        return self.layer(x, torch.arange(x.shape[1])[None] >= lengths[:, None])


class LengthsOfSequenceFirst(PlainPost):
    """x is [sequence, batch, d_model], and lengths are those of the items."""

    def forward(self, src: Tensor, src_lengths: Tensor) -> tuple[Tensor, Tensor]:
        x = src.transpose(0, 1)
        return self.layer(x, torch.arange(x.shape[1]) >= src_lengths[:, None]).transpose(0, 1), src_lengths


class ValidOfSequenceFirst(PlainPost):
    """The same by a name that does not say so; ones are lengths, too, and leave the first position alone."""

    def forward(self, src: Tensor, valid: Tensor) -> Tensor:
        return LengthsOfSequenceFirst.forward(self, src, valid)[0]  # type: ignore[arg-type]


class LengthsIfAny(PlainPost):
    """By name alone, and none where it is not told."""

    def forward(self, x: Tensor, *, src_lengths: Tensor | None = None) -> Tensor:
        return self.layer(x, None if src_lengths is None else torch.arange(x.shape[1]) >= src_lengths[:, None])


class LazyOfLengths(nn.Module):
    """Makes its matrices at the first call, which needs lengths or None; scores are written over where they hide."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.LazyLinear(16) for _ in range(4))
        self.up, self.down = nn.LazyLinear(24), nn.LazyLinear(16)
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)

    def forward(self, x: Tensor, valid_lens: Tensor | None) -> Tensor:
        q, k, v = (each(x).unflatten(-1, (2, 8)).transpose(1, 2) for each in (self.q, self.k, self.v))
        scores = (q @ k.transpose(-1, -2) / 8**0.5).flatten(1, 2)
        if valid_lens is not None:
            scores[(torch.arange(x.shape[1]) >= valid_lens[:, None])[:, None].expand_as(scores)] = -1e6
        context = scores.unflatten(1, (2, -1)).softmax(-1) @ v
        x = self.norm1(x + self.o(context.transpose(1, 2).flatten(2)))
        return self.norm2(x + self.down(torch.relu(self.up(x))))


class LengthsAsParts(Plain):
    """As parts of the longest, 1.0, as SpeechBrain has them."""

    def forward(self, x: Tensor, wav_lens: Tensor) -> Tensor:
        return self.layer(x, torch.arange(x.shape[1])[None] >= (wav_lens[:, None] * x.shape[1]).round())


# ------------------------------------------------------------------------------- positions


class NeedsPositions(Plain):
    def forward(self, x: Tensor, *, positions: Tensor, padding: Tensor | None = None) -> Tensor:
        return self.layer(x + torch.sin(positions[..., None].to(x.dtype)), padding)


class PositionsAddedToQueries(PlainPost):
    """As DETR has them: features of positions, to what query and key are made of."""

    def forward(self, src: Tensor, pos: Tensor, padding: Tensor | None = None) -> Tensor:
        self.at = pos
        return self.layer(src, padding)

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = self.split(self.q(x + self.at)), self.split(self.k(x + self.at)), self.split(self.v(x))
        return self.o(self.core(q, k, v, ignore).transpose(1, 2).flatten(2))


class PositionsCalledQueries(PositionsAddedToQueries):
    """Their name says something else than what is done with them, as in DAB-DETR."""

    def forward(self, src: Tensor, object_queries: Tensor, padding: Tensor | None = None) -> Tensor:
        return super().forward(src, object_queries, padding)


class PositionsAddedBehindTheNorm(Plain):
    attend = PositionsAddedToQueries.attend

    def forward(self, src: Tensor, query_pos: Tensor, padding: Tensor | None = None) -> Tensor:
        self.at = query_pos
        return self.layer(src, padding)


class PositionsOfAnOddNetwork(PositionsCalledQueries):
    """No layer, for another reason than what stands beside x."""

    def ffn(self, x: Tensor) -> Tensor:
        return self.down(torch.tanh(self.up(x)))


class FramesOfVideos(Plain):
    """Its items are the frames of videos, of which each looks at the others' first positions."""

    def forward(self, x: Tensor) -> Tensor:
        first = x[:, 0].view(len(x) // 4, 4, -1)
        return self.layer(x + self.layer(first).view(len(x), 1, -1))


class LooksAtAnImage(PlainPost):
    """Another sequence, by a name that does not say so."""

    def forward(self, x: Tensor, visual: Tensor) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(visual)), self.split(self.v(visual))
        x = self.norm1(x + self.o(self.core(q, k, v, None).transpose(1, 2).flatten(2)))
        return self.norm2(x + self.ffn(x))


class CosinesAndSinesGiven(Rope):
    def forward(self, x: Tensor, position_embeddings: tuple[Tensor, Tensor], padding: Tensor | None = None) -> Tensor:
        self.given = position_embeddings
        return self.layer(x, padding)

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = (each[:, None].to(q.dtype) for each in self.given)

        def turned(t: Tensor) -> Tensor:
            first, second = t.chunk(2, -1)
            return t * cos + torch.cat((-second, first), -1) * sin

        return turned(q), turned(k)


class MaskAmongOthers(Plain):
    """What it needs stands in no signature."""

    def forward(self, x: Tensor, **given: Tensor) -> Tensor:  # type: ignore[override]
        return self.layer(x, ~given["mask"])


class OneSegment(Plain):
    """Several sequences in a row: a position sees those of its own."""

    def bias(self, n: int, ignore: Tensor | None) -> Tensor:
        return self.apart

    def forward(self, x: Tensor, segment_ids: Tensor) -> Tensor:  # type: ignore[override]
        self.apart = torch.where(segment_ids[:, None, :, None] == segment_ids[:, None, None], 0.0, -torch.inf)
        return self.layer(x)


class TurnsGiven(Rope):
    """Complex numbers of each position, as LLaMA's layers are given them."""

    def forward(self, x: Tensor, freqs_cis: Tensor) -> Tensor:
        self.turns = freqs_cis[None, None]
        return self.layer(x)

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        def turned(t: Tensor) -> Tensor:
            pairs = torch.view_as_complex(t.unflatten(-1, (-1, 2)).contiguous())
            return torch.view_as_real(pairs * self.turns).flatten(-2)

        return turned(q), turned(k)


class TurnsOfAPositionEmbedding(TurnsGiven):
    """By a name that cosines and sines have; it does not do with its default."""

    def forward(self, x: Tensor, position_embeddings: Tensor | None = None) -> Tensor:  # type: ignore[override]
        return super().forward(x, position_embeddings.to(x.device))


class LengthsInAList(Plain):
    """Of which it makes a tensor."""

    def forward(self, x: Tensor, src_len: list[int]) -> Tensor:  # type: ignore[override]
        return self.layer(x, torch.arange(x.shape[1]) >= torch.as_tensor(src_len)[:, None])


class FirstOfTwo(Plain):
    """A layer of a Sequential that hands x and a mask of padding from layer to layer."""

    def forward(self, inputs: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        x, mask = inputs
        return self.layer(x, mask == 0), mask


class FirstOfTwoOrMore(Plain):
    """The same, which hands on whatever else there is."""

    def forward(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:  # type: ignore[override]
        x, mask, *others = inputs
        return self.layer(x, mask == 0), mask, *others


class FirstOfAny(PlainPost):
    def forward(self, inputs: tuple[Tensor, ...]) -> Tensor:  # type: ignore[override]
        x, *masks = inputs
        return self.layer(x, masks[0] == 0 if masks else None)


class OfAGraph(Plain):
    """Which nodes are neighbours, 1 or 0 for each two: a mask of no such name."""

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        assert ignore is not None
        return torch.where(ignore.bool(), 0.0, -torch.inf)[:, None]

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:  # type: ignore[override]
        return self.layer(x, adj)


class FartherIsLess(Plain):
    """How far each two are from each other, which is taken off their score."""

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        assert ignore is not None
        return -ignore[:, None]

    def forward(self, x: Tensor, distances: Tensor) -> Tensor:  # type: ignore[override]
        return self.layer(x, distances)


class MasksInAList(Plain):
    """As of several levels, each with its own."""

    def forward(self, x: Tensor, attn_masks: list[Tensor] | None = None) -> Tensor:  # type: ignore[override]
        return self.layer(x, None if attn_masks is None else attn_masks[0] == 0)


class MasksOfEachQueryInAList(Plain):
    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        return None if ignore is None else torch.where(ignore, -torch.inf, 0.0)[:, None]

    def forward(self, x: Tensor, adjacency_masks: list[Tensor]) -> Tensor:  # type: ignore[override]
        return self.layer(x, adjacency_masks[0] == 0)


class _State(NamedTuple):
    x: Tensor
    mask: Tensor | None = None
    step: int = 0


class StateInAndOut(Plain):
    def forward(self, state: _State) -> _State:  # type: ignore[override]
        mask = None if state.mask is None else state.mask == 0
        return state._replace(x=self.layer(state.x, mask))


class TurnsOfOneSequence(TurnsGiven):
    """One sequence, with no axis of a batch."""

    def forward(self, x: Tensor, freqs_cis: Tensor) -> Tensor:
        _positions, _width = x.shape
        return super().forward(x[None], freqs_cis)[0]


class AnglesOfSequenceFirst(Rope):
    """Megatron's order of axes: given x [batch, sequence, d_model], it would turn items by the angles of positions."""

    def forward(self, hidden_states: Tensor, padding: Tensor | None = None, rotary_pos_emb=None) -> Tensor:  # type: ignore[no-untyped-def,override]
        self.angles = rotary_pos_emb.permute(1, 2, 0, 3)
        return self.layer(hidden_states.transpose(0, 1), padding).transpose(0, 1)

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        def turned(t: Tensor) -> Tensor:
            first, second = t.chunk(2, -1)
            return t * self.angles.cos() + torch.cat((-second, first), -1) * self.angles.sin()

        return turned(q), turned(k)


class AnglesOfRows(CosinesAndSinesGiven):
    """Rows of all items, with angles of each row, as vision towers have them."""

    def forward(self, hidden_states: Tensor, cu_seqlens: Tensor, rotary_pos_emb: Tensor) -> Tensor:
        angles = torch.cat((rotary_pos_emb, rotary_pos_emb), -1)[None]
        self.given = angles.cos(), angles.sin()
        self.apart = torch.bucketize(torch.arange(len(hidden_states)), cu_seqlens[1:].long(), right=True)
        return self.layer(hidden_states[None])[0]

    def bias(self, n: int, ignore: Tensor | None) -> Tensor:
        return torch.where(self.apart[:, None] != self.apart, -torch.inf, 0.0)


class GoesFurther(Plain):
    """Of what it needs an attribute is asked for that no guess has, after all that it makes of x."""

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        y = self.layer(x + positions[..., None].to(x.dtype))
        return y + positions.offset_of_the_first


# ------------------------------------------------------------------------------- whole models


class TokenIds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.pos, self.norm = nn.Embedding(50, 16), nn.Embedding(64, 16), nn.LayerNorm(16)
        self.layers = nn.ModuleList([Plain(), Plain()])

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids) + self.pos(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x, ids == 0)
        return self.norm(x)


class TokenIdsOfLooseParts(nn.Module):
    """The steps of its layers stand in its own call, as SASRec's do, and no part of it is a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norms = nn.Embedding(50, 24), nn.ModuleList(nn.LayerNorm(24) for _ in range(2))
        self.attentions = nn.ModuleList([nn.MultiheadAttention(24, 2, batch_first=True)])
        self.networks = nn.ModuleList([nn.Sequential(nn.Linear(24, 40), nn.ReLU(), nn.Linear(40, 24))])

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        x = self.embed(input_ids)
        for at, (attention, network) in enumerate(zip(self.attentions, self.networks, strict=True)):
            x = self.norms[2 * at](x + attention(x, x, x, need_weights=False)[0])
            x = self.norms[2 * at + 1](x + network(x))
        return x


class TokenIdsPooled(nn.Module):
    """Post-norm layers, with token types, and the first position alone comes out."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.types, self.pool = nn.Embedding(50, 24), nn.Embedding(2, 24), nn.Linear(24, 24)
        self.encoder = nn.Sequential(PlainPost(), PlainPost())

    def forward(self, input_ids: Tensor, token_type_ids: Tensor) -> Tensor:
        x = self.encoder(self.words(input_ids) + self.types(token_type_ids))
        return self.pool(x[:, 0]).tanh()


class Patches(nn.Module):
    """From images [batch, 3, 16, 16] to patches."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.blocks = nn.Conv2d(3, 16, 4, 4), nn.ModuleList([Plain()])

    def forward(self, pixel_values: Tensor) -> Tensor:
        x = self.patches(pixel_values).flatten(2).mT
        for block in self.blocks:
            x = block(x)
        return x.mean(1)


class TurnedByAnEncoding(Plain):
    """Its `encoding` is cosines and sines by place, of which neither is named, as LightGlue's."""

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return self.turned(q), self.turned(k)

    def turned(self, x: Tensor) -> Tensor:
        first, second = x.unflatten(-1, (-1, 2)).unbind(-1)
        return x * self.encoding[0] + torch.stack((-second, first), -1).flatten(-2) * self.encoding[1]

    def forward(self, x: Tensor, encoding: Tensor, padding: Tensor | None = None) -> Tensor:
        self.encoding = encoding
        return self.layer(x, padding)
