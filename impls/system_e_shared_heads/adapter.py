"""Drives an encoder stack, or one layer of it, whose heads share projections; published=yes applies none of them,
and defaults=own tells its constructor embed_size and heads, which have no default, and nothing else."""

from typing import Any

from torch import Tensor, nn

from encoder_conformance import Array, Masks, ParameterMap, RunRequest, Take, Tensors, serve, shows_inside, stack_of
from encoder_conformance.impls.bases.torch_module.adapter import TorchModule, set_epsilon
from encoder_conformance.impls.bases.torch_module.tensors import to_tensor
from encoder_conformance.impls.system_e_shared_heads.encoder import Encoder, TransformerBlock

WEIGHTS = {
    "attention.queries": "attention.query",
    "attention.keys": "attention.key",
    "attention.values": "attention.value",
    "attention.fc_out": "attention.output",
    "feed_forward.0": "feed_forward.hidden",
    "feed_forward.2": "feed_forward.output",
}
BIASED = ("attention.fc_out", "feed_forward.0", "feed_forward.2")
SHOWN = {
    "norm1": "norm1",
    "attention_output": "attention.fc_out",
    "norm2": "norm2",
    "ffn_hidden": "feed_forward.0",
    "ffn_activation": "feed_forward.1",
    "ffn_output": "feed_forward.2",
}

ENTERED = {"context_merged": "attention.fc_out", "residual1": "norm2"}


class SystemE(TorchModule):
    map = parameters = ParameterMap(
        {f"{own}.weight": Take(f"{name}.weight", transpose=True) for own, name in WEIGHTS.items()}
        | {f"{own}.bias": Take(f"{WEIGHTS[own]}.bias") for own in BIASED}
        | {f"{norm}.weight": Take(f"{norm}.gain") for norm in ("norm1", "norm2")}
        | {f"{norm}.bias": Take(f"{norm}.shift") for norm in ("norm1", "norm2")}
    )

    def build(self, layer: dict[str, Any], parameters: Tensors, dtype: str) -> Tensors:
        layers = stack_of(layer).get("layers", 0)
        self.shown, self.entered = (SHOWN, ENTERED) if not layers else ({}, {})
        for k in range(layers):
            self.shown[f"layer_{k}"] = f"layers.{k}"
            if shows_inside(layers):
                self.shown |= {f"layer_{k}.{stage}": f"layers.{k}.{module}" for stage, module in SHOWN.items()}
                self.entered |= {f"layer_{k}.{stage}": f"layers.{k}.{module}" for stage, module in ENTERED.items()}
        return super().build(layer, parameters, dtype)

    def made(self, layer: dict[str, Any]) -> nn.Module:
        sizes, stack = (layer["d_model"], layer["attention"]["num_heads"]), stack_of(layer)
        projects = self.choices["published"] == "no"
        if self.choices["defaults"] == "own":
            return (Encoder if stack else TransformerBlock)(*sizes, projects=projects)
        told = {
            "dropout": layer["dropout"]["attention_output"],
            "expansion_factor": layer["feed_forward"]["d_ff"] / layer["d_model"],
            "projects": projects,
        }
        made = Encoder(*sizes, stack["layers"], **told) if stack else TransformerBlock(*sizes, **told)
        set_epsilon(made, layer["norm"]["epsilon"])
        return made

    def attended(self, x: Tensor, memory: Tensor, allowed: Array | None) -> Tensor:
        """Its attention takes the values first, and the query last."""
        return self.module.get_submodule("attention")(
            memory, memory, x, None if allowed is None else to_tensor(allowed)
        )

    def forward(self, x: Tensor, masks: Masks, run: RunRequest) -> Tensor:
        allowed = masks.joined(self.heads)
        return self.module(x, None if allowed is None else to_tensor(allowed))


if __name__ == "__main__":
    serve(SystemE())
