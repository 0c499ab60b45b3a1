"""Encoders beyond the 46, to see whether the kind is mended and not the case."""

from collections.abc import Mapping

from benchmarks.published_encoders.encoders import (
    AUDIO,
    GATED,
    NO_KEY_BIAS,
    POST,
    RMS,
    T5,
    T5_LAYER,
    TEXT,
    TWO,
    VISION,
    Encoder,
    rope,
)

_POST_5 = {**POST, "norm.epsilon": 1e-5}
_CLIP = {"feed_forward.activation": "quick_gelu"}
_SIGLIP = {"norm.epsilon": 1e-6, "feed_forward.activation": "gelu_tanh"}
_SHORT = {k: v for k, v in VISION.items() if k != "intermediate_size"}
_WORDS = {**TEXT, "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3}

OTHERS: Mapping[str, Encoder] = {
    "camembert": Encoder("camembert", TEXT, (POST,)),
    "xlm_roberta": Encoder("xlm-roberta", TEXT, (POST,)),
    "data2vec_text": Encoder("data2vec-text", TEXT, (POST,)),
    "ernie": Encoder("ernie", TEXT, (POST,)),
    "layoutlm": Encoder("layoutlm", TEXT, (POST,)),
    "rembert": Encoder("rembert", {**TEXT, "input_embedding_size": 32}, (POST,)),
    "splinter": Encoder("splinter", TEXT, (POST,)),
    "clip_of_two": Encoder("clip", {"text_config": _WORDS, "vision_config": VISION}, (_CLIP,)),
    "siglip_of_two": Encoder("siglip", {"text_config": _WORDS, "vision_config": VISION}, (_SIGLIP,)),
    "metaclip_2": Encoder("metaclip_2", {"text_config": _WORDS, "vision_config": VISION}, (_CLIP, {})),
    "vit_mae": Encoder("vit_mae", VISION, ({"norm.epsilon": 1e-12},)),
    "yolos": Encoder("yolos", {**VISION, "image_size": [32, 32]}, ({"norm.epsilon": 1e-12},)),
    "dinov2_with_registers": Encoder(
        "dinov2_with_registers",
        {**_SHORT, "mlp_ratio": 2},
        ({"norm.epsilon": 1e-6, "layer_scale": ("attention", "feed_forward")},),
    ),
    "aimv2": Encoder("aimv2_vision_model", VISION, ({**RMS, **GATED, "feed_forward.activation": "silu"},)),
    "data2vec_audio": Encoder("data2vec-audio", AUDIO, ({"norm.placement": "post"},)),
    "unispeech": Encoder("unispeech", AUDIO, ({"norm.placement": "post"},)),
    "qwen2_audio": Encoder(
        "qwen2_audio_encoder",
        {**{k: v for k, v in TWO.items() if k != "vocab_size" and "decoder" not in k}, "max_source_positions": 50},
        (NO_KEY_BIAS,),
    ),
    "speech_to_text": Encoder("speech_to_text", TWO, ({"feed_forward.activation": "relu"},)),
    "mt5": Encoder(
        "mt5",
        {**T5, "d_kv": 16},
        ({**T5_LAYER, "feed_forward.gated": True, "feed_forward.activation": "gelu_tanh"},),
    ),
    "gte": Encoder("gte", TEXT, ({**POST, **rope(160000.0), "feed_forward.gated": True},)),
    "moonshine": Encoder("moonshine", {}),
    "funnel": Encoder("funnel", {"d_model": 64, "n_head": 4, "d_head": 16, "d_inner": 128, "block_sizes": [1, 1]}),
    "fnet": Encoder("fnet", TEXT),
    "convbert": Encoder("convbert", {**TEXT, "embedding_size": 64}),
    "big_bird": Encoder(
        "big_bird", {**TEXT, "attention_type": "original_full"}, ({**POST, "feed_forward.activation": "gelu_tanh"},)
    ),
    "xlnet": Encoder("xlnet", {"d_model": 64, "n_head": 4, "d_inner": 128, "n_layer": 2, "vocab_size": 99}),
    "squeezebert": Encoder("squeezebert", {**TEXT, "embedding_size": 64}),
}
