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
_ATTENTION_UNBIASED = {"attention.qkv_bias": False, "attention.output_bias": False}
_BEIT = {"norm.epsilon": 1e-12, **NO_KEY_BIAS, "layer_scale": ("attention", "feed_forward")}
_DECODER = {**TEXT, "num_key_value_heads": 2, "head_dim": 16}
_TEXT_CLIP = {**TEXT, "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3}
_AUDIO_ENCODER = {k: v for k, v in TWO.items() if k != "vocab_size" and "decoder" not in k}
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
    "moonshine": Encoder(
        "moonshine",
        {
            "hidden_size": 64,
            "intermediate_size": 128,
            "encoder_num_hidden_layers": 2,
            "decoder_num_hidden_layers": 1,
            "encoder_num_attention_heads": 4,
            "decoder_num_attention_heads": 4,
            "vocab_size": 99,
        },
        ({**_ATTENTION_UNBIASED, "norm.shift": False, **rope(1e4, "interleaved")},),
    ),
    "funnel": Encoder("funnel", {"d_model": 64, "n_head": 4, "d_head": 16, "d_inner": 128, "block_sizes": [1, 1]}),
    "fnet": Encoder("fnet", TEXT),
    "convbert": Encoder("convbert", {**TEXT, "embedding_size": 64}),
    "big_bird": Encoder(
        "big_bird", {**TEXT, "attention_type": "original_full"}, ({**POST, "feed_forward.activation": "gelu_tanh"},)
    ),
    "xlnet": Encoder("xlnet", {"d_model": 64, "n_head": 4, "d_inner": 128, "n_layer": 2, "vocab_size": 99}),
    "squeezebert": Encoder("squeezebert", {**TEXT, "embedding_size": 64}),
    "beit_without_table": Encoder("beit", VISION, (_BEIT,)),
    "data2vec_vision": Encoder("data2vec-vision", VISION, (_BEIT,)),
    "deberta": Encoder("deberta", {**TEXT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
    "luke": Encoder("luke", {**TEXT, "entity_vocab_size": 9, "entity_emb_size": 16}, (POST,)),
    "ibert": Encoder("ibert", TEXT, (POST,)),
    "mobilebert": Encoder("mobilebert", {**TEXT, "embedding_size": 32, "intra_bottleneck_size": 32}),
    "mra": Encoder("mra", TEXT),
    "yoso": Encoder("yoso", TEXT),
    "dpr": Encoder("dpr", TEXT, (POST,)),
    "bert_generation": Encoder("bert-generation", TEXT, (POST,)),
    "tapas": Encoder("tapas", TEXT, (POST,)),
    "visual_bert": Encoder("visual_bert", {**TEXT, "visual_embedding_dim": 16}, (POST,)),
    "markuplm": Encoder("markuplm", TEXT, (POST,)),
    "lilt": Encoder("lilt", {**TEXT, "hidden_size": 96}),
    "canine": Encoder("canine", {k: v for k, v in TEXT.items() if k != "vocab_size"}, (POST,)),  # of its deep encoder
    "flaubert": Encoder("flaubert", {"emb_dim": 64, "n_heads": 4, "n_layers": 2, "n_words": 99}, (POST,)),
    "fsmt": Encoder(
        "fsmt",
        {**TWO, "src_vocab_size": 99, "tgt_vocab_size": 99, "langs": ["en", "de"]},
        ({"norm.placement": "post", "feed_forward.activation": "relu"},),
    ),
    "mbart": Encoder("mbart", TWO, ({},)),
    "pegasus": Encoder("pegasus", TWO, ({},)),
    "blenderbot": Encoder("blenderbot", TWO, ({},)),
    "blenderbot_small": Encoder("blenderbot-small", TWO, ({"norm.placement": "post"},)),
    "plbart": Encoder("plbart", TWO, ({"norm.placement": "post"},)),
    "led": Encoder("led", {**TWO, "attention_window": [8, 8]}),
    "longt5": Encoder("longt5", {**T5, "d_kv": 16, "local_radius": 4}),
    "switch_transformers": Encoder(  # its first layer has no experts
        "switch_transformers",
        {**T5, "d_kv": 16, "num_experts": 2, "num_sparse_encoder_layers": 1},
        ({**T5_LAYER, "feed_forward.activation": "relu"},),
    ),
    "pix2struct": Encoder(
        "pix2struct_vision_model",
        {**_SHORT, "d_kv": 16, "d_ff": 128, "patch_embed_hidden_size": 48, "seq_len": 32},
        ({**RMS, **GATED, "norm.epsilon": 1e-6, "feed_forward.activation": "gelu_tanh", "attention.scale": 1.0},),
    ),
    "vit_msn": Encoder("vit_msn", VISION, ({"norm.epsilon": 1e-6},)),
    "ijepa": Encoder("ijepa", VISION, ({"norm.epsilon": 1e-12},)),
    "videomae": Encoder("videomae", {**VISION, "num_frames": 4}, ({"norm.epsilon": 1e-12, **NO_KEY_BIAS},)),
    "vivit": Encoder(
        "vivit",
        {**{k: v for k, v in VISION.items() if k != "patch_size"}, "num_frames": 4, "tubelet_size": [2, 8, 8]},
        ({"norm.epsilon": 1e-6, "feed_forward.activation": "gelu_tanh"},),
    ),
    "timesformer": Encoder("timesformer", {**VISION, "num_frames": 2}),
    "mlcd": Encoder("mlcd_vision_model", VISION),
    "pixtral": Encoder("pixtral", {**VISION, "head_dim": 16}),
    "dpt": Encoder("dpt", {**VISION, "backbone_out_indices": [0, 1, 0, 1]}, ({"norm.epsilon": 1e-12},)),
    "segformer": Encoder("segformer", {}),
    "unispeech_sat": Encoder("unispeech-sat", AUDIO, ({"norm.placement": "post"},)),
    "sew": Encoder("sew", AUDIO, ({"norm.placement": "post"},)),
    "wav2vec2_bert": Encoder(
        "wav2vec2-bert",
        {**{k: v for k, v in TEXT.items() if k != "vocab_size"}, "feature_projection_input_dim": 32},
    ),
    "parakeet": Encoder(
        "parakeet_encoder",
        {**{k: v for k, v in TEXT.items() if k != "vocab_size"}, "subsampling_conv_channels": 8, "num_mel_bins": 16},
    ),
    "voxtral": Encoder(
        "voxtral_encoder",
        {**{k: v for k, v in TEXT.items() if k != "vocab_size"}, "num_mel_bins": 16, "max_source_positions": 50},
        (NO_KEY_BIAS,),
    ),
    "clap_text": Encoder("clap_text_model", TEXT, (POST,)),
    "owlvit_text": Encoder("owlvit_text_model", _TEXT_CLIP, (_CLIP,)),
    "owlvit_vision": Encoder("owlvit_vision_model", VISION, (_CLIP,)),
    "groupvit_text": Encoder("groupvit_text_model", _TEXT_CLIP, (_CLIP,)),
    "xclip_text": Encoder("xclip_text_model", _TEXT_CLIP, (_CLIP,)),
    "xclip_vision": Encoder("xclip_vision_model", {**VISION, "num_frames": 2, "mit_hidden_size": 64}),
    "blip_vision": Encoder("blip_vision_model", VISION, ({},)),
    "blip_2_vision": Encoder("blip_2_vision_model", VISION, ({"norm.epsilon": 1e-6},)),
    "altclip_text": Encoder("altclip_text_model", {**TEXT, "project_dim": 32}, (_POST_5,)),
    "chinese_clip_text": Encoder("chinese_clip_text_model", TEXT, (POST,)),
    "flava_text": Encoder("flava_text_model", TEXT, ({"norm.epsilon": 1e-12},)),
    "siglip_text": Encoder("siglip_text_model", _TEXT_CLIP, (_SIGLIP,)),
    "time_series_transformer": Encoder(
        "time_series_transformer",
        {
            "prediction_length": 4,
            "context_length": 8,
            "d_model": 64,
            "encoder_attention_heads": 4,
            "encoder_ffn_dim": 128,
        },
        ({"norm.placement": "post"},),
    ),
    "patchtst": Encoder("patchtst", {"d_model": 64, "ffn_dim": 128, "num_hidden_layers": 2}),
    "detr": Encoder("detr", {}),
    "qwen3": Encoder(
        "qwen3",
        _DECODER,
        (
            {
                **RMS,
                **GATED,
                "norm.epsilon": 1e-6,
                "feed_forward.activation": "silu",
                "attention.kv_heads": 2,
                "attention.qk_norm": {"kind": "rms_norm", "over": "head", "shift": False},
                **rope(1e4),
            },
        ),
    ),
    "gpt2": Encoder(
        "gpt2",
        {"n_embd": 64, "n_head": 4, "n_layer": 2, "n_inner": 128, "vocab_size": 99},
        ({"feed_forward.activation": "gelu_tanh"},),
    ),
    "vilt": Encoder("vilt", {**VISION, "vocab_size": 99}, ({"norm.epsilon": 1e-12},)),
    "align_text": Encoder("align_text_model", TEXT, (POST,)),
    "flava_image": Encoder("flava_image_model", VISION, ({"norm.epsilon": 1e-12},)),
    "git_vision": Encoder("git_vision_model", VISION, (_CLIP,)),
    "idefics2_vision": Encoder("idefics2_vision", VISION, (_SIGLIP,)),
    "owlv2_vision": Encoder("owlv2_vision_model", VISION, (_CLIP,)),
    "roc_bert": Encoder("roc_bert", {**TEXT, "pronunciation_vocab_size": 99, "shape_vocab_size": 99}, (POST,)),
    "internvl_vision": Encoder(
        "internvl_vision",
        {**VISION, "image_size": [32, 32], "patch_size": [8, 8]},
        ({"norm.epsilon": 1e-6, "attention.qkv_bias": False, "layer_scale": ("attention", "feed_forward")},),
    ),
    "videoprism_vision": Encoder(
        "videoprism_vision_model",
        {
            **{k: v for k, v in VISION.items() if k not in ("patch_size", "num_hidden_layers")},
            "num_frames": 2,
            "tubelet_size": [1, 8, 8],
            "num_spatial_layers": 1,
            "num_temporal_layers": 1,
        },
        ({"norm.epsilon": 1e-6, "attention.softcap": 50.0},),
    ),
    "pop2piano": Encoder(  # its feed_forward_proj says gated-gelu, and its activation is dense_act_fn, which is relu
        "pop2piano",
        {**T5, "d_kv": 16},
        ({**T5_LAYER, "feed_forward.gated": True, "feed_forward.activation": "relu"},),
    ),
    "udop": Encoder(  # of ids alone: its boxes are all one, and add one number to all scores of a head
        "udop",
        {**T5, "d_kv": 16, "image_size": 32, "patch_size": 8},
        ({**T5_LAYER, "feed_forward.activation": "relu"},),
    ),
    "speecht5": Encoder(
        "speecht5",
        {
            "hidden_size": 64,
            "encoder_layers": 2,
            "encoder_attention_heads": 4,
            "encoder_ffn_dim": 128,
            "decoder_layers": 1,
            "decoder_attention_heads": 4,
            "decoder_ffn_dim": 128,
            "vocab_size": 99,
        },
    ),
    "bros": Encoder("bros", TEXT),
}
