"""Drives a complete PyTorch encoder layer as it is described; published=yes leaves its epsilon at LayerNorm's,
and defaults=own tells its constructor nothing."""

from typing import Any, ClassVar

from torch import Tensor, nn

from encoder_conformance import Masks, ParameterMap, RunRequest, Take, Tensors, serve
from encoder_conformance.impls.bases.torch_module.adapter import TorchModule, set_epsilon
from encoder_conformance.impls.bases.torch_module.tensors import to_tensor
from encoder_conformance.impls.system_a_encoder_layer.encoder import TransformerEncoderLayer

LINEAR = {
    "attention.W_q": "attention.query",
    "attention.W_k": "attention.key",
    "attention.W_v": "attention.value",
    "attention.W_o": "attention.output",
    "feed_forward.linear1": "feed_forward.hidden",
    "feed_forward.linear2": "feed_forward.output",
}


class SystemA(TorchModule):
    map = parameters = ParameterMap(
        {f"{own}.weight": Take(f"{name}.weight", transpose=True) for own, name in LINEAR.items()}
        | {f"{own}.bias": Take(f"{name}.bias") for own, name in LINEAR.items()}
        | {f"{norm}.weight": Take(f"{norm}.gain") for norm in ("norm1", "norm2")}
        | {f"{norm}.bias": Take(f"{norm}.shift") for norm in ("norm1", "norm2")}
    )
    shown: ClassVar = {
        "norm1": "norm1",
        "query": "attention.W_q",
        "key": "attention.W_k",
        "value": "attention.W_v",
        "attention_output": "attention.W_o",
        "norm2": "norm2",
        "ffn_hidden": "feed_forward.linear1",
        "ffn_activation": "feed_forward.activation",
        "ffn_output": "feed_forward.linear2",
    }

    def build(self, layer: dict[str, Any], parameters: Tensors, dtype: str) -> Tensors:
        first_sum = "norm2" if layer["norm"]["placement"] == "pre" else "norm1"
        self.entered = {
            "attention_weights": "attention.dropout",
            "context_merged": "attention.W_o",
            "residual1": first_sum,
        }
        return super().build(layer, parameters, dtype)

    def made(self, layer: dict[str, Any]) -> nn.Module:
        if self.choices["defaults"] == "own":
            return TransformerEncoderLayer()
        sizes = layer["d_model"], layer["attention"]["num_heads"], layer["feed_forward"]["d_ff"]
        made, rates = TransformerEncoderLayer(*sizes, pre_norm=layer["norm"]["placement"] == "pre"), layer["dropout"]
        made.attention.dropout.p = rates["attention_weights"]  # of all four the constructor makes one rate
        made.dropout1.p, made.dropout2.p = rates["attention_output"], rates["ffn_output"]
        made.feed_forward.dropout.p = rates["ffn_activation"]
        if self.choices["published"] == "no":
            set_epsilon(made, layer["norm"]["epsilon"])
        return made

    def forward(self, x: Tensor, masks: Masks, run: RunRequest) -> Tensor:
        allowed = masks.joined(self.heads)
        return self.module(x, None if allowed is None else to_tensor(allowed))


if __name__ == "__main__":
    serve(SystemA())
