"""Encoder layers of transformers, each made of its own class and configuration, and the places of the specification's
parameters in them.

transformers and its models are imported when a layer is made: a class that is there no more raises then.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from re import fullmatch
from typing import Any

from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.layer import Layer


@dataclass(frozen=True)
class Place:
    """The name of a parameter in their layer, which is the specification's transposed or as it is."""

    name: str
    transposed: bool = False

    def turned(self, value: Array) -> Array:
        return value.T if self.transposed else value


@dataclass(frozen=True)
class Theirs:
    """An encoder layer of transformers.

    `norms`: the paths of what the specification calls norm1 and norm2. `sizes`: the configuration's names of d_model,
    num_heads and d_ff. `choices`: what the configuration says other than by default. `needs_mask`: without a mask it is
    causal, and its model always gives it one.
    """

    layer: str
    config: str
    norms: tuple[str, str]
    sizes: tuple[str, str, str] = ("hidden_size", "num_attention_heads", "intermediate_size")
    choices: Mapping[str, Any] = field(default_factory=dict)
    needs_mask: bool = False

    def made(self, encoder: str, layer: Layer) -> Any:
        """The module, in float64, with the sizes of `layer`. Raises AttributeError for a class that is not there."""
        numbers = (layer.d_model, layer.attention.num_heads, layer.feed_forward.d_ff)
        sizes = dict(zip(self.sizes, numbers, strict=True))
        configuration = getattr(importlib.import_module("transformers"), self.config)
        models = importlib.import_module(f"transformers.models.{encoder}.modeling_{encoder}")
        own = getattr(models, self.layer)
        return own(configuration(**sizes, **self.choices, attn_implementation="sdpa")).eval().double()

    def places(self, module: Any) -> dict[str, Place]:
        """Parameter of the specification → its place. Each parameter of theirs is one of the specification's."""
        found: dict[str, Place] = {}
        for name, _ in module.named_parameters():
            path, _, leaf = name.rpartition(".")
            if path in self.norms:
                owner, role = f"norm{1 + self.norms.index(path)}", {"weight": "gain", "bias": "shift"}[leaf]
            else:
                (owner,) = (map_ for map_, paths in LINEAR_MAPS.items() if fullmatch(paths, path))
                role = leaf
            assert f"{owner}.{role}" not in found, name
            found[f"{owner}.{role}"] = Place(name, transposed=role == "weight")
        return found


_ATTENTION = r"(attention|attention\.self|self_attn)\."
LINEAR_MAPS = {
    "attention.query": _ATTENTION + "(query|q_lin|q_proj)",
    "attention.key": _ATTENTION + "(key|k_lin|k_proj)",
    "attention.value": _ATTENTION + "(value|v_lin|v_proj)",
    "attention.output": _ATTENTION + r"(output\.dense|dense|out_lin|out_proj|o_proj)",
    "feed_forward.hidden": r"intermediate\.dense|(mlp\.)?fc1|ffn|ffn\.lin1|feed_forward\.intermediate_dense",
    "feed_forward.output": r"output\.dense|(mlp\.)?fc2|ffn_output|ffn\.lin2|feed_forward\.output_dense",
}
"""Linear map of the specification → the paths that it has in their layers, whole: one pattern matches a path."""


def _and(one: Theirs, **choices: Any) -> tuple[Theirs, Theirs]:
    """A layer by its configuration's defaults, and with these choices."""
    return one, replace(one, choices=choices)


_BERT = ("attention.output.LayerNorm", "output.LayerNorm")
_DISTILBERT = ("sa_layer_norm", "output_layer_norm")
_ALBERT = ("attention.LayerNorm", "full_layer_layer_norm")
_XLM_R = ("attention.self_attn_layer_norm", "LayerNorm")
_PRE_ROBERTA = ("attention.LayerNorm", "intermediate.LayerNorm")
_BART = ("self_attn_layer_norm", "final_layer_norm")
_WAV2VEC2 = ("layer_norm", "final_layer_norm")
_VIT = ("layernorm_before", "layernorm_after")
_CLIP = ("layer_norm1", "layer_norm2")
_MLLAMA = ("input_layernorm", "post_attention_layernorm")
_DISTILBERT_SIZES = ("dim", "n_heads", "hidden_dim")
_BART_SIZES = ("d_model", "encoder_attention_heads", "encoder_ffn_dim")
_MLLAMA_SIZES = ("hidden_size", "attention_heads", "intermediate_size")
LAYERS: dict[str, tuple[Theirs, ...]] = {
    "bert": (Theirs("BertLayer", "BertConfig", _BERT),),
    "roberta": _and(Theirs("RobertaLayer", "RobertaConfig", _BERT), layer_norm_eps=1e-5),
    "electra": (Theirs("ElectraLayer", "ElectraConfig", _BERT),),
    "distilbert": (Theirs("TransformerBlock", "DistilBertConfig", _DISTILBERT, _DISTILBERT_SIZES),),
    "albert": (Theirs("AlbertLayer", "AlbertConfig", _ALBERT),),
    "megatron_bert": (Theirs("MegatronBertLayer", "MegatronBertConfig", ("attention.ln", "ln")),),
    "xlm_roberta_xl": (Theirs("XLMRobertaXLLayer", "XLMRobertaXLConfig", _XLM_R),),
    "roberta_prelayernorm": (Theirs("RobertaPreLayerNormLayer", "RobertaPreLayerNormConfig", _PRE_ROBERTA),),
    "bart": (Theirs("BartEncoderLayer", "BartConfig", _BART, _BART_SIZES),),
    "marian": _and(Theirs("MarianEncoderLayer", "MarianConfig", _BART, _BART_SIZES), activation_function="silu"),
    "m2m_100": (Theirs("M2M100EncoderLayer", "M2M100Config", _BART, _BART_SIZES),),
    "whisper": (Theirs("WhisperEncoderLayer", "WhisperConfig", _BART, _BART_SIZES),),
    "wav2vec2": (
        Theirs("Wav2Vec2EncoderLayer", "Wav2Vec2Config", _WAV2VEC2),
        Theirs("Wav2Vec2EncoderLayerStableLayerNorm", "Wav2Vec2Config", _WAV2VEC2),
    ),
    "hubert": (
        Theirs("HubertEncoderLayer", "HubertConfig", _WAV2VEC2),
        Theirs("HubertEncoderLayerStableLayerNorm", "HubertConfig", _WAV2VEC2),
    ),
    "vit": _and(Theirs("ViTLayer", "ViTConfig", _VIT), qkv_bias=False),
    "deit": _and(Theirs("DeiTLayer", "DeiTConfig", _VIT), qkv_bias=False),
    "audio_spectrogram_transformer": _and(Theirs("ASTLayer", "ASTConfig", _VIT), qkv_bias=False),
    "clip": (Theirs("CLIPEncoderLayer", "CLIPVisionConfig", _CLIP),),
    "siglip": (Theirs("SiglipEncoderLayer", "SiglipVisionConfig", _CLIP),),
    "siglip2": (Theirs("Siglip2EncoderLayer", "Siglip2VisionConfig", _CLIP),),
    "mllama": (Theirs("MllamaVisionEncoderLayer", "MllamaVisionConfig", _MLLAMA, _MLLAMA_SIZES, needs_mask=True),),
}
"""Encoder → its layers, one for each combination of what `specs/published.yaml` has of it, in that order."""
