"""Drives an encoder block after "Attention Is All You Need"; published=yes is wrong as it was published,
and published=dropout in its dropout alone, which no check can read behind a placeholder; defaults=own tells its
constructor the three sizes, which have no default, and nothing else."""

from typing import Any, ClassVar

from torch import Tensor, nn

from encoder_conformance import Masks, ParameterMap, RunRequest, Take, serve
from encoder_conformance.impls.bases.torch_module.adapter import TorchModule, set_epsilon
from encoder_conformance.impls.bases.torch_module.tensors import to_tensor
from encoder_conformance.impls.system_c_encoder_block.encoder import EncoderBlock

LINEAR = {
    "attention.query": "attention.query",
    "attention.key": "attention.key",
    "attention.value": "attention.value",
    "attention.output": "attention.output",
    "feed_forward.linear1": "feed_forward.hidden",
    "feed_forward.linear2": "feed_forward.output",
}


class SystemC(TorchModule):
    map = parameters = ParameterMap(
        {f"{own}.weight": Take(f"{name}.weight", transpose=True) for own, name in LINEAR.items()}
        | {f"{own}.bias": Take(f"{name}.bias") for own, name in LINEAR.items()}
        | {f"{norm}.weight": Take(f"{norm}.gain") for norm in ("norm1", "norm2")}
        | {f"{norm}.bias": Take(f"{norm}.shift") for norm in ("norm1", "norm2")}
    )
    shown: ClassVar = {
        "query": "attention.query",
        "attention_output": "attention.output",
        "norm1": "norm1",
        "ffn_hidden": "feed_forward.linear1",
        "ffn_activation": "feed_forward.relu",
        "ffn_output": "feed_forward.linear2",
        "norm2": "norm2",
    }
    entered: ClassVar = {"context_merged": "attention.output", "residual1": "norm1", "residual2": "norm2"}

    def made(self, layer: dict[str, Any]) -> nn.Module:
        sizes = layer["d_model"], layer["attention"]["num_heads"], layer["feed_forward"]["d_ff"]
        published = {
            "placeholder": self.choices["published"] == "yes",
            "ffn_drops": self.choices["published"] == "no",
        }
        if self.choices["defaults"] == "own":
            return EncoderBlock(*sizes, **published)
        made = EncoderBlock(*sizes, layer["dropout"]["attention_output"], **published)
        set_epsilon(made, layer["norm"]["epsilon"])
        return made

    def forward(self, x: Tensor, masks: Masks, run: RunRequest) -> Tensor:
        allowed = masks.joined(self.heads)
        return self.module(x, None if allowed is None else to_tensor(allowed))


if __name__ == "__main__":
    serve(SystemC())
