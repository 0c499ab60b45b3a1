"""Drives the documented interface of Lucid's layer; published=yes has its heads as release 2.9.0 computes them, and
defaults=own tells its constructor d_model and nhead, which have no default, and nothing else."""

from typing import Any, ClassVar

from torch import Tensor, nn

from encoder_conformance import Masks, ParameterMap, RunRequest, Take, Tensors, serve
from encoder_conformance.impls.bases.torch_module.adapter import TorchModule, set_epsilon
from encoder_conformance.impls.bases.torch_module.tensors import to_tensor
from encoder_conformance.impls.system_b_lucid_interface.encoder import TransformerEncoderLayer

LINEAR = {
    "self_attn.q_proj": "attention.query",
    "self_attn.k_proj": "attention.key",
    "self_attn.v_proj": "attention.value",
    "self_attn.out_proj": "attention.output",
    "linear1": "feed_forward.hidden",
    "linear2": "feed_forward.output",
}


class SystemB(TorchModule):
    map = parameters = ParameterMap(
        {f"{own}.weight": Take(f"{name}.weight", transpose=True) for own, name in LINEAR.items()}
        | {f"{own}.bias": Take(f"{name}.bias") for own, name in LINEAR.items()}
        | {f"{norm}.weight": Take(f"{norm}.gain") for norm in ("norm1", "norm2")}
        | {f"{norm}.bias": Take(f"{norm}.shift") for norm in ("norm1", "norm2")}
    )
    shown: ClassVar = {
        "norm1": "norm1",
        "query": "self_attn.q_proj",
        "key": "self_attn.k_proj",
        "value": "self_attn.v_proj",
        "attention_output": "self_attn.out_proj",
        "norm2": "norm2",
        "ffn_hidden": "linear1",
        "ffn_output": "linear2",
    }
    entered: ClassVar = {"context_merged": "self_attn.out_proj", "ffn_activation": "dropout2"}

    default_batch_first = False

    def build(self, layer: dict[str, Any], parameters: Tensors, dtype: str) -> Tensors:
        held = super().build(layer, parameters, dtype)
        self.default_batch_first = self.module.batch_first  # x sequence first is given to it as it was made
        return held

    def made(self, layer: dict[str, Any]) -> nn.Module:
        sizes, as_published = (layer["d_model"], layer["attention"]["num_heads"]), self.choices["published"] == "yes"
        if self.choices["defaults"] == "own":
            return TransformerEncoderLayer(*sizes, heads_by_reshape=as_published)
        made = TransformerEncoderLayer(
            *sizes,
            layer["feed_forward"]["d_ff"],
            activation=layer["feed_forward"]["activation"],
            norm_first=layer["norm"]["placement"] == "pre",
            device="cpu",
            dtype=self.dtype,
            heads_by_reshape=as_published,
        )
        rates = layer["dropout"]
        made.self_attn.dropout = rates["attention_weights"]  # of all four the constructor makes one rate
        made.dropout1.p, made.dropout2.p = rates["attention_output"], rates["ffn_activation"]
        made.dropout3.p = rates["ffn_output"]
        set_epsilon(made, layer["norm"]["epsilon"])
        return made

    def forward(self, x: Tensor, masks: Masks, run: RunRequest) -> Tensor:
        """A causal mask that comes as a flag goes as the flag; masks of booleans turned round, true to ignore."""
        self.module.batch_first = run.layout == "batch_first" or self.default_batch_first  # all that the argument does
        between = Masks(None, masks.attention, None, masks.encoding, False, masks.sequence)
        valid, allowed, bias = masks.valid(), between.joined(self.heads), masks.added(self.heads)
        padding = None if valid is None else to_tensor(~valid)
        if bias is None:
            return self.module(x, None if allowed is None else to_tensor(~allowed), padding, masks.causal)
        added = to_tensor(bias).to(self.dtype)
        if allowed is not None:
            added = added.masked_fill(to_tensor(~allowed), float("-inf"))
        return self.module(x, added, padding, masks.causal)


if __name__ == "__main__":
    serve(SystemB())
