"""Drives torch.nn.TransformerEncoderLayer, on its fast path or off it."""

from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encoder_conformance import Array, Environment, Masks, ParameterMap, RunRequest, Take, Tensors, serve
from encoder_conformance.impls.bases.torch_module.adapter import TorchModule
from encoder_conformance.impls.bases.torch_module.tensors import to_numpy, to_tensor

QKV = ("attention.query", "attention.key", "attention.value")
ACTIVATIONS = {"gelu_tanh": partial(F.gelu, approximate="tanh"), "silu": F.silu}
"""Those that it does not know by name, and takes as a callable."""
ASKED = {"need_weights": True, "average_attn_weights": False}


class TorchEncoderLayer(TorchModule):
    parameters = ParameterMap(
        {
            "self_attn.in_proj_weight": Take(*(f"{name}.weight" for name in QKV), transpose=True),
            "self_attn.in_proj_bias": Take(*(f"{name}.bias" for name in QKV)),
            "self_attn.out_proj.weight": Take("attention.output.weight", transpose=True),
            "self_attn.out_proj.bias": Take("attention.output.bias"),
            "linear1.weight": Take("feed_forward.hidden.weight", transpose=True),
            "linear1.bias": Take("feed_forward.hidden.bias"),
            "linear2.weight": Take("feed_forward.output.weight", transpose=True),
            "linear2.bias": Take("feed_forward.output.bias"),
            "norm1.weight": Take("norm1.gain"),
            "norm1.bias": Take("norm1.shift"),
            "norm2.weight": Take("norm2.gain"),
            "norm2.bias": Take("norm2.shift"),
        }
    )
    shown: ClassVar = {name: name for name in ("norm1", "norm2")} | {
        "attention_output": "self_attn",
        "ffn_hidden": "linear1",
        "ffn_output": "linear2",
    }
    entered: ClassVar = {"ffn_activation": "linear2"}

    def start(self, device: str, threads: int) -> Environment:
        torch.backends.mha.set_fastpath_enabled(self.choices["path"] == "fast")
        return super().start(device, threads)

    def made(self, layer: dict[str, Any]) -> nn.Module:
        activation, dropout = layer["feed_forward"]["activation"], layer["dropout"]
        made = nn.TransformerEncoderLayer(
            layer["d_model"],
            layer["attention"]["num_heads"],
            layer["feed_forward"]["d_ff"],
            activation=ACTIVATIONS.get(activation, activation),
            layer_norm_eps=layer["norm"]["epsilon"],
            batch_first=True,
            norm_first=layer["norm"]["placement"] == "pre",
        )
        made.self_attn.dropout = dropout["attention_weights"]  # of all four the constructor makes one rate
        made.dropout1.p, made.dropout.p = dropout["attention_output"], dropout["ffn_activation"]
        made.dropout2.p = dropout["ffn_output"]
        return made

    def forward(self, x: Tensor, masks: Masks, run: RunRequest) -> Tensor:
        self.module.self_attn.batch_first = run.layout != "sequence_first"  # all that the argument batch_first does
        return self.module(x, *self.masks(masks, x, run), is_causal=masks.causal)

    def weights(self, x: Array, masks: Masks, run: RunRequest) -> Tensors:
        """The layer itself never asks for them: hooks on its attention do (need_weights), and take them."""
        attention, seen = self.module.self_attn, list[Tensor]()
        asked = attention.register_forward_pre_hook(lambda _, given, told: (given, told | ASKED), with_kwargs=True)
        taken = attention.register_forward_hook(lambda _, given, both: seen.append(both[1]))
        with asked, taken:
            output = self.output(x, masks, run)
        return {"attention_weights": to_numpy(seen[0]), "output": output}

    def masks(self, masks: Masks, x: Tensor, run: RunRequest) -> tuple[Tensor | None, ...]:
        """src_mask [S, S] or [B · H, S, S] and src_key_padding_mask [B, S]: true to ignore, or numbers to be added."""
        padding, attention, S = masks.padding, masks.attention, masks.sequence
        if padding is not None and run.layout != "unbatched":
            padding = padding.reshape(-1, padding.shape[-1])
        if masks.encoding == "attend":
            padding, attention = (None if mask is None else ~mask for mask in (padding, attention))
        if masks.causal and attention is None:  # is_causal is a hint, and the mask has to come with it
            attention = ~np.tri(S, dtype=np.bool_)
        if masks.bias is not None:
            barred = np.zeros(1, np.bool_) if attention is None else attention
            attention = np.where(barred, masks.bias.dtype.type(-np.inf), masks.bias)
        if attention is not None and attention.ndim == 4:
            one_for_all = attention.shape[:2] == (1, 1)
            every = np.broadcast_to(attention, (len(x), self.heads, S, S)).reshape(-1, S, S)
            attention = attention[0, 0] if one_for_all else every
        return tuple(None if mask is None else to_tensor(mask) for mask in (attention, padding))


if __name__ == "__main__":
    serve(TorchEncoderLayer())
