"""Drives the BertLayer of Hugging Face's transformers, with weights that are given to it: nothing is downloaded."""

import os
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from encoder_conformance import Array, Masks, ParameterMap, RunRequest, Take, Tensors, serve
from encoder_conformance.impls.bases.torch_module.adapter import TorchModule
from encoder_conformance.impls.bases.torch_module.tensors import to_numpy, to_tensor

os.environ["HF_HUB_OFFLINE"] = "1"
from transformers import BertConfig
from transformers.masking_utils import create_bidirectional_mask
from transformers.models.bert.modeling_bert import BertLayer

LINEAR = {
    "attention.self.query": "attention.query",
    "attention.self.key": "attention.key",
    "attention.self.value": "attention.value",
    "attention.output.dense": "attention.output",
    "intermediate.dense": "feed_forward.hidden",
    "output.dense": "feed_forward.output",
}
NORMS = {"attention.output.LayerNorm": "norm1", "output.LayerNorm": "norm2"}
ACTIVATIONS = {"gelu_tanh": "gelu_pytorch_tanh"}
"""Those that ACT2FN has under another name."""


class HuggingFaceBert(TorchModule):
    packages = ("torch", "transformers", "numpy")
    parameters = ParameterMap(
        {f"{own}.weight": Take(f"{name}.weight", transpose=True) for own, name in LINEAR.items()}
        | {f"{own}.bias": Take(f"{name}.bias") for own, name in LINEAR.items()}
        | {f"{own}.weight": Take(f"{name}.gain") for own, name in NORMS.items()}
        | {f"{own}.bias": Take(f"{name}.shift") for own, name in NORMS.items()}
    )
    shown: ClassVar = {
        **{name: f"attention.self.{name}" for name in ("query", "key", "value")},
        "context_merged": "attention.self",
        "attention_output": "attention.output.dense",
        "norm1": "attention.output.LayerNorm",
        "ffn_hidden": "intermediate.dense",
        "ffn_activation": "intermediate",
        "ffn_output": "output.dense",
        "norm2": "output.LayerNorm",
    }
    entered: ClassVar = {"residual1": "attention.output.LayerNorm", "residual2": "output.LayerNorm"}

    def made(self, layer: dict[str, Any]) -> nn.Module:
        activation = layer["feed_forward"]["activation"]
        own = self.choices["defaults"] == "own"
        self.config = BertConfig(
            hidden_size=layer["d_model"],
            num_attention_heads=layer["attention"]["num_heads"],
            intermediate_size=layer["feed_forward"]["d_ff"],
            hidden_act=ACTIVATIONS.get(activation, activation),
            hidden_dropout_prob=layer["dropout"]["attention_output"],
            attention_probs_dropout_prob=layer["dropout"]["attention_weights"],
            attn_implementation=self.choices["attention"],
            **({} if own else {"layer_norm_eps": layer["norm"]["epsilon"]}),
        )
        return BertLayer(self.config)

    def forward(self, x: Tensor, masks: Masks, run: RunRequest) -> Tensor:
        return self.module(x, self.mask(x, masks))

    @torch.no_grad()
    def weights(self, x: Array, masks: Masks, run: RunRequest) -> Tensors:
        output, attended = self.output(x, masks, run), to_tensor(x)
        _, weights = self.module.attention(attended, self.mask(attended, masks))
        return {"attention_weights": to_numpy(weights), "output": output}

    def mask(self, x: Tensor, masks: Masks) -> Tensor | None:
        """As BertModel makes it of a mask of padding [B, S]; of any other, what BertModel hands on as it is: numbers
        to be added as they are given, and booleans as sdpa takes them or, for eager attention, as transformers writes
        them in numbers."""
        additive = masks.encoding == "additive"
        if masks.attention is None and masks.bias is None and not (masks.causal or additive):
            valid = masks.valid()
            return create_bidirectional_mask(self.config, x, None if valid is None else to_tensor(valid))
        allowed, bias = masks.joined(self.heads), masks.added(self.heads)
        if bias is None and not additive and self.choices["attention"] == "sdpa":
            return to_tensor(allowed)
        barred = -np.inf if additive else torch.finfo(self.dtype).min
        added = np.where(True if allowed is None else allowed, 0.0 if bias is None else bias, barred)
        return to_tensor(added).to(self.dtype)

    def refusal(self, operation: str, error: Exception) -> str | None:
        if operation == "build" and isinstance(error, KeyError):  # an activation that ACT2FN does not have
            return "configuration"
        return super().refusal(operation, error)


if __name__ == "__main__":
    serve(HuggingFaceBert())
