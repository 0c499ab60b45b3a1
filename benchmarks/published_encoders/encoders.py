"""46 published encoders, tiny: the type of transformers, its configuration, and what one layer of it is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Choices = Mapping[str, Any]
"""Dotted key of the layer language → value, of what is not as in `PLAIN`."""
PLAIN: Choices = {
    "norm.placement": "pre",
    "norm.kind": "layer_norm",
    "norm.epsilon": 1e-5,
    "norm.shift": True,
    "norm.first": True,
    "attention.num_heads": 4,
    "attention.head_dim": None,
    "attention.kv_heads": None,
    "attention.qk_norm": None,
    "attention.rope": None,
    "attention.position_bias": None,
    "attention.window": None,
    "attention.softcap": None,
    "attention.qkv_bias": True,
    "attention.output_bias": True,
    "attention.scale": "head_dim",
    "feed_forward.activation": "gelu",
    "feed_forward.gated": False,
    "feed_forward.bias": True,
    "layer_scale": (),
    "residual_scale": 1.0,
}


@dataclass(frozen=True)
class Encoder:
    """`kinds`: the choices of each kind of layer that it has; none: the layer language has no words for any."""

    type: str
    arguments: Mapping[str, Any]
    kinds: tuple[Choices, ...] = ()


TEXT = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "vocab_size": 99,
}
VISION = {k: v for k, v in TEXT.items() if k != "vocab_size"} | {"image_size": 32, "patch_size": 8}
_WITHOUT_SIZE = {k: v for k, v in VISION.items() if k != "image_size"}
AUDIO = {k: v for k, v in TEXT.items() if k != "vocab_size"} | {
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "conv_dim": [32, 32],
    "conv_kernel": [10, 3],
    "conv_stride": [5, 2],
}
TWO = {
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "vocab_size": 99,
}
T5 = {"d_model": 64, "num_heads": 4, "d_ff": 128, "num_layers": 2, "num_decoder_layers": 1, "vocab_size": 99}
GEMMA = TEXT | {"num_key_value_heads": 2, "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 8}
_TOKENS = {"pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 2, "decoder_start_token_id": 2}

POST = {"norm.placement": "post", "norm.epsilon": 1e-12}
_NO_BIASES = {"attention.qkv_bias": False, "attention.output_bias": False, "feed_forward.bias": False}
GATED = {"feed_forward.gated": True, **_NO_BIASES}
RMS = {"norm.kind": "rms_norm", **_NO_BIASES}
NO_KEY_BIAS = {"attention.key_bias": False}


def rope(theta: float, pairing: str = "halves") -> Choices:
    return {"attention.rope": {"theta": theta, "pairing": pairing}}


def buckets_of(buckets: int, distance: int) -> Choices:
    return {"attention.position_bias": {"buckets": buckets, "max_distance": distance}}


def _window(left: int, right: int) -> Choices:
    return {"attention.window": {"left": left, "right": right}}


T5_LAYER = {**RMS, "norm.epsilon": 1e-6, "attention.scale": 1.0, **buckets_of(32, 128)}
GEMMA_LAYER = {
    **GATED,
    "norm.placement": "sandwich",
    "norm.kind": "rms_norm",
    "norm.epsilon": 1e-6,
    "attention.kv_heads": 2,
    "feed_forward.activation": "gelu_tanh",
}
_QK = {"attention.qk_norm": {"kind": "rms_norm", "over": "head", "shift": False}}
_MODERN = {**GATED, "norm.shift": False}

ENCODERS: Mapping[str, Encoder] = {
    "bert": Encoder("bert", TEXT, (POST,)),
    "roberta": Encoder("roberta", {**TEXT, "layer_norm_eps": 1e-5}, ({**POST, "norm.epsilon": 1e-5},)),
    "electra": Encoder("electra", {**TEXT, "embedding_size": 64}, (POST,)),
    "distilbert": Encoder(
        "distilbert", {"dim": 64, "n_heads": 4, "hidden_dim": 128, "n_layers": 2, "vocab_size": 99}, (POST,)
    ),
    "albert": Encoder("albert", {**TEXT, "embedding_size": 32}, ({**POST, "feed_forward.activation": "gelu_tanh"},)),
    "mpnet": Encoder(
        "mpnet", {**TEXT, "layer_norm_eps": 1e-5}, ({**POST, "norm.epsilon": 1e-5, **buckets_of(32, 128)},)
    ),
    "deberta_v2": Encoder(
        "deberta-v2",
        {
            **TEXT,
            "relative_attention": True,
            "position_buckets": 8,
            "max_relative_positions": -1,
            "pos_att_type": ["p2c", "c2p"],
            "share_att_key": True,
            "norm_rel_ebd": "layer_norm",
            "max_position_embeddings": 32,
        },
    ),
    "megatron_bert": Encoder("megatron-bert", TEXT, ({"norm.epsilon": 1e-12},)),
    "xlm_roberta_xl": Encoder("xlm-roberta-xl", TEXT, ({},)),
    "roberta_prelayernorm": Encoder("roberta-prelayernorm", TEXT, ({"norm.epsilon": 1e-12},)),
    "t5": Encoder("t5", {**T5, "d_kv": 16}, ({**T5_LAYER, "feed_forward.activation": "relu"},)),
    "umt5": Encoder(
        "umt5",
        {**T5, "d_kv": 24},
        (
            {
                **T5_LAYER,
                "attention.head_dim": 24,
                "feed_forward.gated": True,
                "feed_forward.activation": "gelu_tanh",
            },
        ),
    ),
    "t5gemma": Encoder(
        "t5gemma",
        {"encoder": GEMMA, "decoder": GEMMA},
        tuple({**GEMMA_LAYER, "attention.softcap": 50.0, **rope(1e4), **more} for more in ({}, _window(8, 8))),
    ),
    "t5gemma2": Encoder(
        "t5gemma2",
        {
            "encoder": {
                "text_config": GEMMA,
                "vision_config": VISION,
                "mm_tokens_per_image": 4,
            },
            "decoder": GEMMA,
        },
        ({**GEMMA_LAYER, **_QK, **rope(1e4), **_window(3, 4)},),
    ),
    "gemma3": Encoder(
        "gemma3_text",
        {**GEMMA, "use_bidirectional_attention": True},
        ({**GEMMA_LAYER, **_QK, **rope(1e4), **_window(4, 4)},),
    ),
    "embedding_gemma2": Encoder("embedding_gemma2_text", {**GEMMA, "hidden_size_per_layer_input": 8}),
    "modernbert": Encoder(
        "modernbert",
        {**TEXT, "num_hidden_layers": 4, "local_attention": 8, "pad_token_id": 0},
        (
            {**_MODERN, "norm.first": False, **rope(160000.0)},
            {**_MODERN, **rope(160000.0)},
            {**_MODERN, **rope(1e4), **_window(4, 4)},
        ),
    ),
    "nomic_bert": Encoder("nomic_bert", TEXT, ({**POST, **GATED, "feed_forward.activation": "silu", **rope(1000.0)},)),
    "jina_embeddings_v3": Encoder("jina_embeddings_v3", TEXT, ({**POST, "norm.epsilon": 1e-5, **rope(20000.0)},)),
    "eurobert": Encoder(
        "eurobert",
        {**TEXT, "num_key_value_heads": 4, "pad_token_id": 0},
        ({**RMS, **GATED, "feed_forward.activation": "silu", **rope(10000.0)},),
    ),
    "roformer": Encoder("roformer", {**TEXT, "embedding_size": 64}, ({**POST, **rope(1e4, "interleaved")},)),
    "esm": Encoder(
        "esm",
        {**TEXT, "position_embedding_type": "rotary", "pad_token_id": 1, "mask_token_id": 2},
        ({"norm.epsilon": 1e-12, **rope(1e4)},),
    ),
    "esmc": Encoder(
        "esmc",
        TEXT,
        (
            {
                **GATED,
                "feed_forward.activation": "silu",
                **rope(1e4),
                "attention.qk_norm": {"kind": "layer_norm", "over": "all", "shift": False},
                "residual_scale": (2 / 36) ** -0.5,
            },
        ),
    ),
    "bart": Encoder("bart", TWO, ({"norm.placement": "post"},)),
    "marian": Encoder(
        "marian",
        {**TWO, "activation_function": "swish", "pad_token_id": 1},
        ({"norm.placement": "post", "feed_forward.activation": "silu"},),
    ),
    "m2m_100": Encoder("m2m_100", TWO, ({"feed_forward.activation": "relu"},)),
    "whisper": Encoder("whisper", {**TWO, **_TOKENS}, (NO_KEY_BIAS,)),
    "wav2vec2": Encoder("wav2vec2", AUDIO, ({"norm.placement": "post"},)),
    "hubert": Encoder("hubert", {**AUDIO, "do_stable_layer_norm": True}, ({},)),
    "wavlm": Encoder("wavlm", AUDIO),
    "vit": Encoder("vit", VISION, ({"norm.epsilon": 1e-12},)),
    "deit": Encoder("deit", VISION, ({"norm.epsilon": 1e-12},)),
    "audio_spectrogram_transformer": Encoder(
        "audio-spectrogram-transformer",
        {**_WITHOUT_SIZE, "max_length": 64, "num_mel_bins": 32},
        ({"norm.epsilon": 1e-12},),
    ),
    "beit": Encoder("beit", {**VISION, "use_relative_position_bias": True, "use_absolute_position_embeddings": False}),
    "dinov2": Encoder(
        "dinov2",
        {**{k: v for k, v in VISION.items() if k != "intermediate_size"}, "mlp_ratio": 2},
        ({"norm.epsilon": 1e-6, "layer_scale": ("attention", "feed_forward")},),
    ),
    "dinov3_vit": Encoder("dinov3_vit", VISION),
    "clip": Encoder("clip_vision_model", VISION, ({"feed_forward.activation": "quick_gelu"},)),
    "siglip": Encoder("siglip_vision_model", VISION, ({"norm.epsilon": 1e-6, "feed_forward.activation": "gelu_tanh"},)),
    "siglip2": Encoder(
        "siglip2_vision_model",
        {**_WITHOUT_SIZE, "num_patches": 16},
        ({"norm.epsilon": 1e-6, "feed_forward.activation": "gelu_tanh"},),
    ),
    "layoutlmv3": Encoder(
        "layoutlmv3",
        {**TEXT, "coordinate_size": 8, "shape_size": 16, "input_size": 32, "patch_size": 8},
        ({**POST, "norm.epsilon": 1e-5, **buckets_of(32, 128)},),  # of ids alone: its boxes are all one, and do nothing
    ),
    "vjepa2": Encoder(
        "vjepa2",
        {
            "hidden_size": 64,
            "num_attention_heads": 2,
            "num_hidden_layers": 2,
            "mlp_ratio": 2,
            "crop_size": 32,
            "patch_size": 8,
            "frames_per_clip": 4,
            "pred_hidden_size": 48,
            "pred_num_attention_heads": 2,
            "pred_num_hidden_layers": 1,
        },
    ),
    "swin": Encoder(
        "swin",
        {"embed_dim": 32, "depths": [2], "num_heads": [2], "window_size": 4, "image_size": 32, "patch_size": 4},
    ),
    "mllama": Encoder(
        "mllama_vision_model",
        {
            **{k: v for k, v in VISION.items() if k != "num_attention_heads"},
            "attention_heads": 4,
            "num_global_layers": 1,
            "max_num_tiles": 4,
            "intermediate_layers_indices": [0],
        },
        ({"attention.qkv_bias": False, "attention.output_bias": False},),
    ),
    "wav2vec2_conformer": Encoder(
        "wav2vec2-conformer", {**AUDIO, "position_embeddings_type": "rotary", "conv_depthwise_kernel_size": 7}
    ),
    "longformer": Encoder("longformer", {**TEXT, "attention_window": [8, 8]}),
    "nystromformer": Encoder("nystromformer", {**TEXT, "segment_means_seq_len": 16, "num_landmarks": 4}),
}
