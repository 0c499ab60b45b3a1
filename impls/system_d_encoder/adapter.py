"""Drives a complete encoder, from token ids to its memory; defaults=own tells its constructor the vocabulary alone."""

from typing import Any

from torch import Tensor, nn

from encoder_conformance import Array, Masks, ParameterMap, RunRequest, Take, Tensors, serve, shows_inside, stack_of
from encoder_conformance.impls.bases.torch_module.adapter import TorchModule, set_epsilon
from encoder_conformance.impls.bases.torch_module.tensors import to_tensor
from encoder_conformance.impls.system_d_encoder.encoder import EncoderLayer, TransformerEncoder

LINEAR = {
    "self_attn.q_proj": "attention.query",
    "self_attn.k_proj": "attention.key",
    "self_attn.v_proj": "attention.value",
    "self_attn.out_proj": "attention.output",
    "linear1": "feed_forward.hidden",
    "linear2": "feed_forward.output",
}


SHOWN = {
    "norm1": "norm1",
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "attention_output": "self_attn.out_proj",
    "norm2": "norm2",
    "ffn_hidden": "linear1",
    "ffn_activation": "activation",
    "ffn_output": "linear2",
}
"""Stage inside a layer → the submodule of the layer whose output it is."""
ENTERED = {"context_merged": "self_attn.out_proj", "residual1": "norm2"}
"""The same where it is what the submodule is given."""


class SystemD(TorchModule):
    attention = "self_attn"
    map = parameters = ParameterMap(
        {f"{own}.weight": Take(f"{name}.weight", transpose=True) for own, name in LINEAR.items()}
        | {f"{own}.bias": Take(f"{name}.bias") for own, name in LINEAR.items()}
        | {f"{norm}.weight": Take(f"{norm}.gain") for norm in ("norm1", "norm2")}
        | {f"{norm}.bias": Take(f"{norm}.shift") for norm in ("norm1", "norm2")},
        around={
            "embedding.weight": Take("embedding.weight"),
            "final_norm.weight": Take("final_norm.gain"),
            "final_norm.bias": Take("final_norm.shift"),
        },
    )

    def build(self, layer: dict[str, Any], parameters: Tensors, dtype: str) -> Tensors:
        layers = range(stack_of(layer).get("layers", 0))
        self.shown, self.entered = {"embedded": "positions", "final_norm": "final_norm"}, {}
        self.shown |= {f"layer_{k}": f"layers.{k}" for k in layers}
        for k in layers if shows_inside(len(layers)) else ():
            self.shown |= {f"layer_{k}.{stage}": f"layers.{k}.{module}" for stage, module in SHOWN.items()}
            self.entered |= {f"layer_{k}.{stage}": f"layers.{k}.{module}" for stage, module in ENTERED.items()}
        return super().build(layer, parameters, dtype)

    def made(self, layer: dict[str, Any]) -> nn.Module:
        sizes = layer["d_model"], layer["attention"]["num_heads"], layer["feed_forward"]["d_ff"]
        rate, stack = layer["dropout"]["attention_output"], stack_of(layer)
        if not stack:
            return EncoderLayer(*sizes, rate)
        if self.choices["defaults"] == "own":
            return TransformerEncoder(stack["vocabulary"])
        made = TransformerEncoder(stack["vocabulary"], *sizes, stack["layers"], rate)
        set_epsilon(made, layer["norm"]["epsilon"])
        return made

    def attended(self, x: Tensor, memory: Tensor, allowed: Array | None) -> Tensor:
        return super().attended(x, memory, None if allowed is None else ~allowed)

    def forward(self, x: Tensor, masks: Masks, run: RunRequest) -> Tensor:
        valid = masks.valid()
        return self.module(x, None if valid is None else to_tensor(~valid), masks.padding_id)


if __name__ == "__main__":
    serve(SystemD())
