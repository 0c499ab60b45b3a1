"""Models of transformers, small and with random weights, and how each is called when it is exported."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.onnx_files.exporters import AXES, traced
from benchmarks.onnx_files.modules import drawn

_TEXT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 60}
_SEEN = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "image_size": 16,
         "patch_size": 4}  # fmt: skip
_HEARD = {
    "d_model": 32, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_layers": 1,
    "decoder_attention_heads": 4, "decoder_ffn_dim": 48, "vocab_size": 60, "num_mel_bins": 8,
    "max_source_positions": 20, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", _TEXT),
    "roberta": ("Roberta", {**_TEXT, "pad_token_id": 1}),
    "electra": ("Electra", {**_TEXT, "embedding_size": 32}),
    "camembert": ("Camembert", {**_TEXT, "pad_token_id": 1}),
    "xlm-roberta": ("XLMRoberta", {**_TEXT, "pad_token_id": 1}),
    "data2vec-text": ("Data2VecText", {**_TEXT, "pad_token_id": 1}),
    "albert": ("Albert", {**_TEXT, "embedding_size": 16}),
    "distilbert": ("DistilBert", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "vocab_size": 60}),
    "minilm-pooled": ("Bert", _TEXT),
    "vit": ("ViT", _SEEN),
    "deit": ("DeiT", _SEEN),
    "clip-vision": ("CLIPVision", _SEEN),
    "siglip-vision": ("SiglipVision", _SEEN),
    "dinov2": ("Dinov2", _SEEN),
    "clip-text": ("CLIPText", {**_TEXT, "max_position_embeddings": 40}),
    "whisper-encoder": ("Whisper", _HEARD),
    "mpnet": ("MPNet", _TEXT),
    "deberta-v2": ("DebertaV2", {**_TEXT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
    "modernbert": ("ModernBert", {**_TEXT, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1,
                                  "sep_token_id": 2}),
    "t5-encoder": ("T5", {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "vocab_size": 60}),
}  # fmt: skip
"""Name → the class's prefix and its configuration."""


def model(name: str) -> Any:
    """With eager attention, whose graph shows each step."""
    import transformers

    prefix, options = CONFIGS[name]
    config = getattr(transformers, f"{prefix}Config")(**options)
    config._attn_implementation = "eager"
    kind = {"T5": "T5EncoderModel"}.get(prefix, f"{prefix}Model")
    return drawn(getattr(transformers, kind)(config))


class _Of(nn.Module):
    """A model that gives tensors, and no object."""

    def __init__(self, held: nn.Module, name: str) -> None:
        super().__init__()
        self.held, self.name = held, name

    def forward(self, given: Tensor, mask: Tensor | None = None) -> Any:
        if self.name.startswith(("vit", "deit", "clip-vision", "siglip", "dinov2")):
            return self.held(pixel_values=given).last_hidden_state
        if self.name == "whisper-encoder":
            return self.held(given).last_hidden_state
        found = self.held(input_ids=given, attention_mask=mask).last_hidden_state
        if self.name != "minilm-pooled":
            return found
        assert mask is not None
        weights = mask[:, :, None].to(found.dtype)
        return (found * weights).sum(1) / weights.sum(1)


def exported(name: str, path: Path, opset: int = 17) -> Path:
    """By `torch.onnx.export`, traced."""
    held = model(name)
    if name == "whisper-encoder":
        given: tuple[Any, ...] = (torch.randn(2, 8, 40),)
        return traced(_Of(held.encoder, name), path, given, ["features"], ["y"], opset, {0: "batch"})
    if "pixel" in str(held.main_input_name):
        return traced(_Of(held, name), path, (torch.randn(2, 3, 16, 16),), ["pixels"], ["y"], opset, {0: "batch"})
    given = torch.randint(3, 60, (2, 7)), torch.ones(2, 7, dtype=torch.long)
    return traced(_Of(held, name), path, given, ["input_ids", "attention_mask"], ["y"], opset, AXES)
