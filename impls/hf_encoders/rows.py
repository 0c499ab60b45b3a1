"""One row of data for each encoder of transformers that `specs/layers/published/` describes: its class, its
configuration, and how it is called. A row has the name of its layer.

What is compared with the specification is made of these alone: choices are transformers' own defaults, where `choices`
does not say what a published checkpoint has.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Call = Literal["plain", "rotary", "roformer", "mpnet", "bucketed"]
Window = Literal["", "bidirectional", "gemma3", "t5gemma2"]


@dataclass(frozen=True)
class Row:
    """An encoder layer of transformers.

    `norms`: the paths of norm1 and norm2, and in a sandwich of the norms after attention and after the network; "" is
    none. `sizes`: the configuration's names of d_model, num_heads and d_ff; `wide`: those of head_dim and kv_heads,
    where it has any. `choices`: what the configuration says other than by default, where a size of the layer stands by
    its name. `call`: what the layer takes beside x and a mask. `kind`: the type of layer by which rotary settings
    differ. `number`: its place in the stack. `needs_mask`: without a mask it is causal, and its model always gives it
    one. `gain_plus_one`: its norms multiply by 1 + w.
    """

    layer: str
    config: str
    norms: tuple[str, ...]
    sizes: tuple[str, ...] = ("hidden_size", "num_attention_heads", "intermediate_size")
    wide: tuple[str, ...] = ()
    choices: Mapping[str, Any] = field(default_factory=dict)
    folder: str = ""
    call: Call = "plain"
    kind: str = ""
    number: int = 0
    window: Window = ""
    needs_mask: bool = False
    gain_plus_one: bool = False


def _as(row: Row, **other: Any) -> Row:
    return replace(row, **other)


_BERT = ("attention.output.LayerNorm", "output.LayerNorm")
_WAV2VEC2 = ("layer_norm", "final_layer_norm")
_BART = ("self_attn_layer_norm", "final_layer_norm")
_BART_SIZES = ("d_model", "encoder_attention_heads", "encoder_ffn_dim")
_VIT = ("layernorm_before", "layernorm_after")
_CLIP = ("layer_norm1", "layer_norm2")
_LLAMA = ("input_layernorm", "post_attention_layernorm")
_JINA = ("post_attention_layernorm", "post_mlp_layernorm")
_T5_SIZES = ("d_model", "num_heads", "d_ff")
_T5_NORMS = ("layer.0.layer_norm", "layer.1.layer_norm")
_GEMMA = (
    "input_layernorm", "pre_feedforward_layernorm", "post_attention_layernorm", "post_feedforward_layernorm",
)  # fmt: skip
_T5_GEMMA = (
    "pre_self_attn_layernorm", "pre_feedforward_layernorm", "post_self_attn_layernorm", "post_feedforward_layernorm",
)  # fmt: skip

BERT = Row("BertLayer", "BertConfig", _BERT)
ROBERTA = Row("RobertaLayer", "RobertaConfig", _BERT, choices={"layer_norm_eps": 1e-5})
BART = Row("BartEncoderLayer", "BartConfig", _BART, _BART_SIZES)
WAV2VEC2 = Row("Wav2Vec2EncoderLayer", "Wav2Vec2Config", _WAV2VEC2)
VIT = Row("ViTLayer", "ViTConfig", _VIT)
DINOV2 = Row(
    "Dinov2Layer",
    "Dinov2Config",
    ("norm1", "norm2"),
    ("hidden_size", "num_attention_heads"),
    choices={"mlp_ratio": "mlp_ratio"},
)
CLIP = Row("CLIPEncoderLayer", "CLIPVisionConfig", _CLIP)
T5 = Row("T5Block", "T5Config", _T5_NORMS, _T5_SIZES, ("d_kv",), call="bucketed")
_T5_GATED = {"feed_forward_proj": "gated-gelu"}
GEMMA3 = Row(
    "Gemma3DecoderLayer", "Gemma3TextConfig", _GEMMA, wide=("head_dim", "num_key_value_heads"), call="rotary",
    choices={"use_bidirectional_attention": True, "sliding_window": 8, "query_pre_attn_scalar": "head_dim"},
    kind="sliding_attention", window="gemma3", needs_mask=True, gain_plus_one=True,
)  # fmt: skip
T5GEMMA = _as(
    GEMMA3, layer="T5GemmaEncoderLayer", config="T5GemmaModuleConfig", norms=_T5_GEMMA, kind="", window="bidirectional",
    choices={"dropout_rate": 0.0, "sliding_window": 4, "query_pre_attn_scalar": "head_dim"},
)  # fmt: skip
MODERNBERT = Row(
    "ModernBertEncoderLayer", "ModernBertConfig", ("attn_norm", "mlp_norm"), choices={"local_attention": 8}, number=1,
    call="rotary", kind="sliding_attention", window="bidirectional",
)  # fmt: skip
QWEN3 = Row(
    "Qwen3DecoderLayer", "Qwen3Config", _LLAMA, wide=("head_dim", "num_key_value_heads"),
    choices={"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, call="rotary", needs_mask=True,
)  # fmt: skip
ROWS: dict[str, Row] = {
    "bert": BERT,
    "roberta": ROBERTA,
    "roberta-12": _as(ROBERTA, choices={}, folder="roberta"),
    "xlm-roberta": _as(ROBERTA, layer="XLMRobertaLayer", config="XLMRobertaConfig"),
    "camembert": _as(ROBERTA, layer="CamembertLayer", config="CamembertConfig"),
    "ernie": _as(BERT, layer="ErnieLayer", config="ErnieConfig"),
    "rembert": _as(BERT, layer="RemBertLayer", config="RemBertConfig"),
    "layoutlm": _as(BERT, layer="LayoutLMLayer", config="LayoutLMConfig", needs_mask=True),
    "electra": _as(BERT, layer="ElectraLayer", config="ElectraConfig"),
    "distilbert": Row(
        "TransformerBlock", "DistilBertConfig", ("sa_layer_norm", "output_layer_norm"), ("dim", "n_heads", "hidden_dim")
    ),
    "albert": Row("AlbertLayer", "AlbertConfig", ("attention.LayerNorm", "full_layer_layer_norm")),
    "mpnet": Row(
        "MPNetLayer", "MPNetConfig", ("attention.LayerNorm", "output.LayerNorm"), call="mpnet",
        choices={"layer_norm_eps": 1e-5},
    ),
    "megatron-bert": Row("MegatronBertLayer", "MegatronBertConfig", ("attention.ln", "ln")),
    "xlm-roberta-xl": Row(
        "XLMRobertaXLLayer", "XLMRobertaXLConfig", ("attention.self_attn_layer_norm", "LayerNorm")
    ),
    "roberta-prelayernorm": Row(
        "RobertaPreLayerNormLayer", "RobertaPreLayerNormConfig", ("attention.LayerNorm", "intermediate.LayerNorm")
    ),
    "t5": T5,
    "t5-v1-1": _as(T5, choices=_T5_GATED, folder="t5"),
    "umt5": _as(T5, layer="UMT5Block", config="UMT5Config"),
    "t5gemma": T5GEMMA,
    "t5gemma2": _as(
        T5GEMMA, layer="T5Gemma2EncoderLayer", config="T5Gemma2TextConfig", kind="sliding_attention",
        choices={**T5GEMMA.choices, "sliding_window": 8}, window="t5gemma2",
    ),
    "gemma3": GEMMA3,
    "modernbert": MODERNBERT,
    "modernbert-first": _as(
        MODERNBERT, folder="modernbert", number=0, norms=("", "mlp_norm"), kind="full_attention", window=""
    ),
    "modernbert-global": _as(MODERNBERT, folder="modernbert", number=3, kind="full_attention", window=""),
    "nomic-bert": Row("NomicBertLayer", "NomicBertConfig", _JINA, call="rotary"),
    "jina-embeddings-v3": Row("JinaEmbeddingsV3Layer", "JinaEmbeddingsV3Config", _JINA, call="rotary"),
    "eurobert": Row(
        "EuroBertDecoderLayer", "EuroBertConfig", _LLAMA, wide=("head_dim", "num_key_value_heads"), call="rotary",
        choices={"rope_parameters": {"rope_type": "default", "rope_theta": 250000.0}},
    ),
    "roformer": _as(BERT, layer="RoFormerLayer", config="RoFormerConfig", call="roformer"),
    "esm": Row(
        "EsmLayer", "EsmConfig", ("attention.LayerNorm", "LayerNorm"), call="rotary",
        choices={"position_embedding_type": "rotary", "layer_norm_eps": 1e-5},
    ),
    "esmc": Row("EsmcLayer", "EsmcConfig", _LLAMA, choices={"num_hidden_layers": 30}, call="rotary"),
    "qwen3": QWEN3,
    "bart": BART,
    "mbart": _as(BART, layer="MBartEncoderLayer", config="MBartConfig"),
    "pegasus": _as(BART, layer="PegasusEncoderLayer", config="PegasusConfig"),
    "marian": _as(BART, layer="MarianEncoderLayer", config="MarianConfig", choices={"activation_function": "silu"}),
    "marian-gelu": _as(BART, layer="MarianEncoderLayer", config="MarianConfig", folder="marian"),
    "m2m-100": _as(BART, layer="M2M100EncoderLayer", config="M2M100Config"),
    "speech-to-text": _as(BART, layer="Speech2TextEncoderLayer", config="Speech2TextConfig"),
    "whisper": _as(BART, layer="WhisperEncoderLayer", config="WhisperConfig"),
    "qwen2-audio": _as(BART, layer="Qwen2AudioEncoderLayer", config="Qwen2AudioEncoderConfig"),
    "wav2vec2": WAV2VEC2,
    "wav2vec2-large": _as(WAV2VEC2, layer="Wav2Vec2EncoderLayerStableLayerNorm", folder="wav2vec2"),
    "hubert": _as(WAV2VEC2, layer="HubertEncoderLayer", config="HubertConfig"),
    "hubert-large": _as(
        WAV2VEC2, layer="HubertEncoderLayerStableLayerNorm", config="HubertConfig", folder="hubert"
    ),
    "vit": VIT,
    "vit-unbiased": _as(VIT, choices={"qkv_bias": False}, folder="vit"),
    "deit": _as(VIT, layer="DeiTLayer", config="DeiTConfig"),
    "deit-unbiased": _as(VIT, layer="DeiTLayer", config="DeiTConfig", choices={"qkv_bias": False}, folder="deit"),
    "audio-spectrogram-transformer": _as(VIT, layer="ASTLayer", config="ASTConfig"),
    "vit-mae": _as(VIT, layer="ViTMAELayer", config="ViTMAEConfig"),
    "ijepa": _as(VIT, layer="IJepaLayer", config="IJepaConfig"),
    "vivit": _as(VIT, layer="VivitLayer", config="VivitConfig"),
    "beit": _as(VIT, layer="BeitLayer", config="BeitConfig"),
    "dinov2": DINOV2,
    "dinov2-giant": _as(DINOV2, choices={"use_swiglu_ffn": True, "mlp_ratio": 4}, folder="dinov2"),
    "dinov2-with-registers": _as(DINOV2, layer="Dinov2WithRegistersLayer", config="Dinov2WithRegistersConfig"),
    "clip": CLIP,
    "metaclip-2": _as(CLIP, layer="MetaClip2EncoderLayer", config="MetaClip2VisionConfig"),
    "owlvit": _as(CLIP, layer="OwlViTEncoderLayer", config="OwlViTVisionConfig"),
    "siglip": _as(CLIP, layer="SiglipEncoderLayer", config="SiglipVisionConfig"),
    "siglip2": _as(CLIP, layer="Siglip2EncoderLayer", config="Siglip2VisionConfig"),
    "mllama": Row(
        "MllamaVisionEncoderLayer", "MllamaVisionConfig", _LLAMA,
        ("hidden_size", "attention_heads", "intermediate_size"), needs_mask=True,
    ),
    "aimv2": _as(CLIP, layer="Aimv2EncoderLayer", config="Aimv2VisionConfig", norms=("rms_norm1", "rms_norm2")),
    "moonshine": Row(
        "MoonshineEncoderLayer", "MoonshineConfig", _LLAMA, call="rotary",
        sizes=("hidden_size", "encoder_num_attention_heads", "intermediate_size"),
        choices={"encoder_num_key_value_heads": "num_heads"},
    ),
}  # fmt: skip
"""Layer of `specs/layers/published/` → transformers' own."""
