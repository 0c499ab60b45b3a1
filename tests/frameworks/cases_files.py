"""Small encoders of PyTorch, and the files that are made of them: right ones, and ones with one thing wrong."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import torch
from onnx import helper
from torch import Tensor, nn
from torch.nn import functional as F

D, H, HIDDEN = 16, 2, 24


def filled(module: Any, seed: int = 0) -> Any:
    """The module with the parameters of a seed, so that a file's source is made anew with the same."""
    drawn = torch.Generator().manual_seed(seed)
    for name, each in module.named_parameters():
        number = torch.randn(each.shape, generator=drawn)
        scale = 0.1 if name.endswith("bias") else each.shape[-1] ** -0.5
        each.data = 1 + 0.2 * number if "norm" in name and name.endswith("weight") else number * scale
    return module.eval()


class Layer(nn.Module):
    """Post-norm, as BERT: `attention_mask`, 1 = attend, and the lowest number in place of −∞."""

    def __init__(self, heads: int = H, epsilon: float = 1e-12, low: float = torch.finfo(torch.float32).min) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(D, D) for _ in range(4))
        self.up, self.down = nn.Linear(D, HIDDEN), nn.Linear(HIDDEN, D)
        self.norm1, self.norm2 = nn.LayerNorm(D, eps=epsilon), nn.LayerNorm(D, eps=epsilon)
        self.heads, self.low = heads, low

    def split(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], self.heads, D // self.heads).transpose(1, 2)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.transpose(-1, -2) / (D // self.heads) ** 0.5

    def hidden(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        if mask is None:
            return scores
        return scores + torch.where(mask[:, None, None, :] == 0, self.low, 0.0).to(scores.dtype)

    def attend(self, x: Tensor, mask: Tensor | None) -> Tensor:
        scores = self.hidden(self.scores(self.split(self.q(x)), self.split(self.k(x))), mask)
        return self.o((scores.softmax(-1) @ self.split(self.v(x))).transpose(1, 2).flatten(2))

    def ffn(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))

    def layer(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = self.norm1(x + self.attend(x, mask))
        return self.norm2(x + self.ffn(x))

    def forward(self, hidden_states: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.layer(hidden_states, attention_mask)


class Pre(Layer):
    def layer(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.attend(self.norm1(x), mask)
        return x + self.ffn(self.norm2(x))


class TanhGelu(Layer):
    def ffn(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x), approximate="tanh"))


# ------------------------------------------------------------------------------- from ids


class Ids(nn.Module):
    """`offset`: the row of the first position. `types`: the row of token types that is added."""

    def __init__(self, offset: int = 0, kind: int = 0, backwards: bool = False) -> None:
        super().__init__()
        self.words, self.positions, self.types = nn.Embedding(40, D), nn.Embedding(40, D), nn.Embedding(2, D)
        self.norm, self.layer = nn.LayerNorm(D, eps=1e-12), Layer()
        self.offset, self.kind, self.backwards = offset, kind, backwards

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        at = torch.arange(input_ids.shape[1]) + self.offset
        x = self.words(input_ids) + self.positions(at.flip(0) if self.backwards else at) + self.types.weight[self.kind]
        return self.layer(self.norm(x), attention_mask)


# ------------------------------------------------------------------------------- masks


class ZerosAlone(Pre):
    """An item of padding alone attends to nothing, and gets zeros."""

    def attend(self, x: Tensor, mask: Tensor | None) -> Tensor:
        scores = self.hidden(self.scores(self.split(self.q(x)), self.split(self.k(x))), mask)
        return self.o((scores.softmax(-1).nan_to_num() @ self.split(self.v(x))).transpose(1, 2).flatten(2))


class Fused(Layer):
    def attend(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = (self.split(each(x)) for each in (self.q, self.k, self.v))
        attend = None if mask is None else (mask != 0)[:, None, None, :].expand(-1, 1, x.shape[1], -1)
        return self.o(F.scaled_dot_product_attention(q, k, v, attn_mask=attend).transpose(1, 2).flatten(2))


class Counted(Layer):
    """How many positions are there, the first ones, and not which."""

    def hidden(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        assert mask is not None
        return super().hidden(scores, (torch.arange(mask.shape[1])[None] < mask.sum(1, keepdim=True)).to(mask.dtype))


class UpToTheFirst(Layer):
    """What follows the first hidden position is hidden."""

    def hidden(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        assert mask is not None
        return super().hidden(scores, ((1 - mask).cumsum(1) == 0).to(mask.dtype))


class OfTheFirst(Layer):
    """The first item's mask is that of all."""

    def hidden(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        assert mask is not None
        return super().hidden(scores, mask[:1].expand(mask.shape[0], -1))


class OfHeads(nn.Module):
    """PyTorch's attention with a mask [batch · heads, sequence, sequence]."""

    def __init__(self, interleaved: bool, heads: int = H) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(D, heads, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.up, self.down = nn.Linear(D, HIDDEN), nn.Linear(HIDDEN, D)
        self.interleaved, self.heads = interleaved, heads

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        if padding is None:
            padding = torch.zeros(x.shape[:2], dtype=torch.bool)
        mask = padding[:, None, :].expand(-1, x.shape[1], -1)
        mask = mask.repeat_interleave(self.heads, 0) if self.interleaved else mask.repeat(self.heads, 1, 1)
        y = self.norm1(x + self.attention(x, x, x, attn_mask=mask, need_weights=False)[0])
        return self.norm2(y + self.down(F.gelu(self.up(y))))


class FlatHeads(Layer):
    """Batch and heads are one axis of its scores."""

    def hidden(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        assert mask is not None
        flat = scores.flatten(0, 1)
        flat = torch.where(mask.repeat(self.heads, 1)[:, None, :] == 0, self.low, flat)
        return flat.view(-1, self.heads, *flat.shape[1:])


# ------------------------------------------------------------------------------- before the layers


class Embedded(nn.Module):
    """From `inputs_embeds`: positions, and a norm."""

    def __init__(self, offset: int = 0) -> None:
        super().__init__()
        self.positions, self.norm, self.layer = nn.Embedding(40, D), nn.LayerNorm(D, eps=1e-12), Layer()
        self.offset = offset

    def forward(self, inputs_embeds: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        at = torch.arange(inputs_embeds.shape[1]) + self.offset
        return self.layer(self.norm(inputs_embeds + self.positions(at)), attention_mask)


class Mapped(nn.Module):
    """From features of another width, by `maps`; a layer behind them."""

    def __init__(self, maps: nn.Module, layer: Layer) -> None:
        super().__init__()
        self.maps, self.layer = maps, layer

    def forward(self, features: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.layer(self.maps(features), attention_mask)


class Unscaled(Layer):
    """Its scores are divided by 3, whatever the size of its heads."""

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.transpose(-1, -2) / 3.0


# ------------------------------------------------------------------------------- formats, and gates


class Narrow(Layer):
    """One value of it is rounded."""

    def __init__(self, where: str, format: torch.dtype) -> None:
        super().__init__()
        self.where, self.format = where, format

    def rounded(self, where: str, value: Tensor) -> Tensor:
        return value.to(self.format).to(value.dtype) if where == self.where else value

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return self.rounded("scores", super().scores(q, k))

    def ffn(self, x: Tensor) -> Tensor:
        return self.rounded("ffn", self.down(self.rounded("activation", F.gelu(self.up(x)))))


class Gated(Pre):
    def __init__(self, function: Callable[[Tensor], Tensor] = F.gelu) -> None:
        super().__init__(epsilon=1e-5)
        self.gate, self.function = nn.Linear(D, HIDDEN), function

    def ffn(self, x: Tensor) -> Tensor:
        return self.down(self.function(self.gate(x)) * self.up(x))


class GatedByHalves(Gated):
    def __init__(self) -> None:
        super().__init__(F.silu)
        self.up = nn.Linear(D, 2 * HIDDEN)
        del self.gate

    def ffn(self, x: Tensor) -> Tensor:
        gate, up = self.up(x).chunk(2, -1)
        return self.down(self.function(gate) * up)


# ------------------------------------------------------------------------------- sources that need their mask


class Required(Layer):
    def forward(self, hidden_states: Tensor, attention_mask: Tensor) -> Tensor:  # type: ignore[override]
        return self.layer(hidden_states, attention_mask)


class RequiredByName(Layer):
    def forward(self, hidden_states: Tensor, *, attention_mask: Tensor) -> Tensor:  # type: ignore[override]
        return self.layer(hidden_states, attention_mask)


class RequiredOtherwise(Layer):
    """It takes which positions are padding."""

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:  # type: ignore[override]
        return self.layer(x, (~padding).long())


TANH = partial(F.gelu, approximate="tanh")
MADE: dict[str, Callable[[], nn.Module]] = {
    "layer": Layer, "pre": Pre, "tanh": TanhGelu, "fused": Fused, "zeros": lambda: ZerosAlone(low=-torch.inf),
    "infinite": lambda: Layer(low=-torch.inf), "infinite_pre": lambda: Pre(low=-torch.inf),
    "epsilon5": lambda: Layer(epsilon=1e-5), "ids": Ids, "ids_offset": lambda: Ids(2), "ids_type": lambda: Ids(0, 1),
    "ids_backwards": lambda: Ids(backwards=True), "counted": Counted, "up_to": UpToTheFirst, "of_first": OfTheFirst,
    "repeated": lambda: OfHeads(False), "interleaved": lambda: OfHeads(True), "repeated4": lambda: OfHeads(False, 4),
    "interleaved4": lambda: OfHeads(True, 4), "flat": FlatHeads,
    "embedded": Embedded, "embedded_offset": lambda: Embedded(1), "mapped": lambda: Mapped(nn.Linear(12, D), Layer()),
    "mapped_twice": lambda: Mapped(nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, D)), Pre()),
    "mapped_unscaled": lambda: Mapped(nn.Linear(12, D), Unscaled()),
    "narrow_activation": lambda: Narrow("activation", torch.bfloat16),
    "narrow_scores": lambda: Narrow("scores", torch.bfloat16), "narrow_ffn": lambda: Narrow("ffn", torch.float16),
    "geglu": Gated, "geglu_tanh": lambda: Gated(TANH), "swiglu": GatedByHalves,
    "required": Required, "required_by_name": RequiredByName, "required_otherwise": RequiredOtherwise,
}  # fmt: skip
"""Name → what makes the module. Each is a function of this file, too, as which a source is named."""


def _made(name: str) -> nn.Module:
    module: nn.Module = filled(MADE[name]())
    return module


def _source(name: str) -> Callable[[], nn.Module]:
    def made() -> nn.Module:
        return _made(name)

    return made


globals().update({name: _source(name) for name in MADE})


def export(name: str, path: Path, *, dynamo: bool = False, half: bool = False) -> Path:
    """Writes the file that an exporter of PyTorch makes of it, with its sizes free."""
    module = _made(name)
    masks: tuple[Tensor, ...] = (torch.ones(2, 5, dtype=torch.int64),)
    x = torch.zeros(2, 5, dtype=torch.int64) if name.startswith("ids") else torch.randn(2, 5, _width(name))
    names = {"ids": "input_ids", "emb": "inputs_embeds", "map": "features"}
    first, second = names.get(name[:3], "hidden_states"), "attention_mask"
    if name.startswith(("repeated", "interleaved")):
        first, second, masks = "x", "padding", (torch.zeros(2, 5, dtype=torch.bool),)
    if half:
        module, x = module.half(), x.half()
    told: dict[str, Any] = {"input_names": [first, second], "output_names": ["y"], "dynamo": dynamo}
    free = {0: "batch", 1: "sequence"}
    if dynamo:
        sizes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
        told |= {"dynamic_shapes": (sizes, sizes), "verbose": False}
    else:
        told |= {"dynamic_axes": dict.fromkeys((first, second, "y"), free), "opset_version": 17}
    torch.onnx.export(module, (x, *masks), str(path), **told)
    return path


def _width(name: str) -> int:
    return 12 if name.startswith("mapped") else D


def without_epsilon(path: Path, to: Path, *, skip: bool) -> Path:
    """Writes the file whose norms say no epsilon; with `skip` they are ONNX Runtime's own of a sum."""
    model = onnx.load(path)
    adds = {node.output[0]: node for node in model.graph.node if node.op_type == "Add"}
    for node in [node for node in model.graph.node if node.op_type == "LayerNormalization"]:
        del node.attribute[:]
        if skip:
            both = adds[node.input[0]]
            node.op_type, node.domain = "SkipLayerNormalization", "com.microsoft"
            node.input[:] = [*both.input, *node.input[1:]]
            model.graph.node.remove(both)
    if skip:
        model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    onnx.save(model, to)
    return to
