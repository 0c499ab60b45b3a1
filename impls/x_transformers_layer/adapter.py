"""Drives the Encoder of x-transformers, one layer deep."""

from functools import partial
from typing import Any

from torch import Tensor, nn
from x_transformers import Encoder

from encoder_conformance import Masks, ParameterMap, RunRequest, Take, Tensors, serve
from encoder_conformance.impls.bases.torch_module.adapter import TorchModule, set_epsilon
from encoder_conformance.impls.bases.torch_module.tensors import to_tensor

LINEAR = {
    "layers.0.1.to_q": "attention.query",
    "layers.0.1.to_k": "attention.key",
    "layers.0.1.to_v": "attention.value",
    "layers.0.1.to_out": "attention.output",
    "layers.1.1.ff.0.0": "feed_forward.hidden",
    "layers.1.1.ff.2": "feed_forward.output",
}
SHOWN = {
    **{name: f"layers.0.1.to_{name[0]}" for name in ("query", "key", "value")},
    "attention_output": "layers.0.1.to_out",
    "ffn_hidden": "layers.1.1.ff.0.0",
    "ffn_activation": "layers.1.1.ff.0",
    "ffn_output": "layers.1.1.ff.2",
}
ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "gelu_tanh": partial(nn.GELU, approximate="tanh"), "silu": nn.SiLU}


class XTransformers(TorchModule):
    packages = ("torch", "x-transformers", "numpy")

    def build(self, layer: dict[str, Any], parameters: Tensors, dtype: str) -> Tensors:
        at = 0 if layer["norm"]["placement"] == "pre" else 2
        norms = {f"layers.{number}.0.{at}": f"norm{number + 1}" for number in (0, 1)}
        self.shown = SHOWN | {name: own for own, name in norms.items()}
        self.parameters = ParameterMap(
            {f"{own}.weight": Take(f"{name}.weight", transpose=True) for own, name in LINEAR.items()}
            | {f"{own}.bias": Take(f"{name}.bias") for own, name in LINEAR.items() if "feed_forward" in name}
            | {f"{own}.gamma": Take(f"{name}.gain") for own, name in norms.items()}
        )
        known = {source for take in self.parameters.every.values() for source in take.sources}
        held = {name: value for name, value in parameters.items() if name in known}
        return by_one(super().build(layer, by_one(held, -1), dtype), +1)

    def made(self, layer: dict[str, Any]) -> nn.Module:
        attention, feed_forward, dropout = layer["attention"], layer["feed_forward"], layer["dropout"]
        if feed_forward["activation"] not in ACTIVATIONS:
            raise ValueError(f"no activation {feed_forward['activation']}")
        made = Encoder(
            dim=layer["d_model"],
            depth=1,
            heads=attention["num_heads"],
            attn_dim_head=layer["d_model"] // attention["num_heads"],
            attn_flash=self.choices["attention"] == "flash",
            attn_project_out=True,  # which it leaves out for one head of d_model features
            attn_dropout=dropout["attention_weights"],
            attn_sublayer_dropout=dropout["attention_output"],
            ff_mult=feed_forward["d_ff"] / layer["d_model"],
            ff_custom_activation=ACTIVATIONS[feed_forward["activation"]](),
            ff_dropout=dropout["ffn_activation"],
            ff_sublayer_dropout=dropout["ffn_output"],
            pre_norm=layer["norm"]["placement"] == "pre",
            pre_norm_has_final_norm=False,
        )
        set_epsilon(made, layer["norm"]["epsilon"])
        return made

    def forward(self, x: Tensor, masks: Masks, run: RunRequest) -> Tensor:
        between = Masks(None, masks.attention, None, masks.encoding, masks.causal, masks.sequence)
        valid, allowed, bias = masks.valid(), between.joined(self.heads), masks.added(self.heads)
        return self.module(
            x,
            mask=None if valid is None else to_tensor(valid),
            attn_mask=None if allowed is None else to_tensor(allowed),
            attn_bias=None if bias is None else to_tensor(bias[0]).to(self.dtype),
        )


def by_one(parameters: Tensors, more: int) -> Tensors:
    """A norm holds its gain less 1, exactly: the gains of the specification are multiples of 2^-7 below 2."""
    return {name: value + value.dtype.type(more) if "gain" in name else value for name, value in parameters.items()}


if __name__ == "__main__":
    serve(XTransformers())
