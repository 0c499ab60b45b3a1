"""Whole encoders of transformers, each made of its own class and configuration: what the specification says of them,
and where its parameters stand in them.

transformers and its models are imported when an encoder is made: a class that is there no more raises then.
"""

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from re import fullmatch
from typing import Any

import torch
from torch import Tensor

from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import load
from encoder_conformance.spec.plain import whole

D, H, F, V, S = 24, 3, 20, 30, 10
"""d_model, num_heads, d_ff, vocabulary, and the positions of the situations below."""
PAD = 1
"""The token id of padding in RoBERTa and MPNet, which read positions off the ids."""


@dataclass(frozen=True)
class Place:
    """Where parameters of the specification stand: joined along the first axis, each transposed or as it is."""

    sources: tuple[str, ...]
    transposed: bool = False

    def joined(self, spec: Mapping[str, Tensor], shape: torch.Size) -> Tensor:
        parts = [spec[name].T if self.transposed else spec[name] for name in self.sources]
        return torch.cat(parts).reshape(shape)

    def split(self, own: Tensor) -> dict[str, Tensor]:
        parts = own.chunk(len(self.sources))
        return {name: part.T if self.transposed else part for name, part in zip(self.sources, parts, strict=True)}


@dataclass(frozen=True)
class Theirs:
    """An encoder. `keys`: what its layer has other than pre-gelu. `paths`: pattern of a path of theirs → the paths of
    the specification, `{}` for the layer's number. `front`: paths of what makes x, which the specification takes."""

    model: str
    config: str
    configured: Mapping[str, Any]
    keys: Mapping[str, Any]
    paths: Mapping[str, str]
    front: tuple[str, ...] = ()
    part: str = ""
    """The attribute of the model that is the encoder; "" for the model itself."""
    made_with: Mapping[str, Any] = field(default_factory=dict)
    attention: str = "sdpa"

    @property
    def layer(self) -> Layer:
        """What the specification says, in float64."""
        keys = whole(load().layers["pre-gelu"])
        sizes = {"layer": "theirs", "family": "whole_encoders", "d_model": D, "embedding": None}
        merged = {**keys, **sizes, "attention": {**keys["attention"], "num_heads": H}}
        merged["feed_forward"] = {**keys["feed_forward"], "d_ff": F}
        for key, value in self.keys.items():
            merged[key] = {**merged[key], **value} if isinstance(value, dict) and merged[key] else value
        return Layer.model_validate(merged, strict=False).with_decimal_epsilon

    def made(self) -> Any:
        """The module, in float64, in eval mode."""
        transformers = importlib.import_module("transformers")
        config = getattr(transformers, self.config)(**self.configured, attn_implementation=self.attention)
        model = getattr(transformers, self.model)(config, **self.made_with).eval().double()
        return getattr(model, self.part) if self.part else model

    def places(self, module: Any) -> dict[str, Place]:
        """Their parameter → its place. Each parameter is one of the specification's, or the front's."""
        found = {}
        for name, _ in module.named_parameters():
            if not name.startswith(self.front) or not self.front:
                found[name] = self.place(name)
        return found

    def place(self, name: str) -> Place:
        [(match, paths)] = [(m, paths) for pattern, paths in self.paths.items() if (m := fullmatch(pattern, name))]
        sources = tuple(path.format(*match.groups()) for path in paths.split())
        return Place(sources, transposed=fullmatch(r".*(attention|feed_forward)\.\w+\.weight", sources[0]) is not None)


def _of(own: str, spec: str, leaves: str = "weight bias") -> dict[str, str]:
    """The rows of a linear map or a norm: its weight and its bias, gain and shift, or its table."""
    names = {
        "weight": spec + (".gain" if "norm" in spec else ".weight"),
        "bias": spec + ("." + _SECOND["norm" in spec]),
    }
    return {rf"{own}\.{leaf}": names[leaf] for leaf in leaves.split()}


_SECOND = {True: "shift", False: "bias"}


def _layers(at: str, maps: Mapping[str, str]) -> dict[str, str]:
    """The rows of what is in each layer: path of theirs → path of the specification."""
    rows = {}
    for own, spec in maps.items():
        rows |= _of(rf"{at}\.(\d+)\.{own}", f"layers.{{}}.{spec}")
    return rows


def _bert(attention: str, query: str, key: str, value: str, output: str, norm: str) -> dict[str, str]:
    return {
        **_of(r"embeddings\.word_embeddings", "embedding"),
        **_of(r"embeddings\.position_embeddings", "position_embedding"),
        **_of(r"embeddings\.token_type_embeddings", "token_type_embedding"),
        **_of(r"embeddings\.LayerNorm", "embedding_norm"),
        **_layers(
            r"encoder\.layer",
            {
                rf"attention\.{attention}\.{query}": "attention.query",
                rf"attention\.{attention}\.{key}": "attention.key",
                rf"attention\.{attention}\.{value}": "attention.value",
                rf"attention\.{output}": "attention.output",
                rf"attention\.{norm}": "norm1",
                r"intermediate\.dense": "feed_forward.hidden",
                r"output\.dense": "feed_forward.output",
                r"output\.LayerNorm": "norm2",
            },
        ),
    }


_SIZES = {"hidden_size": D, "num_attention_heads": H, "intermediate_size": F, "num_hidden_layers": 2}
_TOKENS = {**_SIZES, "vocab_size": V, "pad_token_id": PAD, "bos_token_id": 0, "eos_token_id": 2}
_POST = {"placement": "post", "epsilon": 1e-12}
_LEARNED = {"vocabulary": V, "positions": "learned", "norm": True}
_FROM_2 = {"rows": 16, "first": 2, "counted": "valid"}
_BERT_PATHS = _bert("self", "query", "key", "value", r"output\.dense", r"output\.LayerNorm")
_NO_BIAS = {"qkv_bias": False, "output_bias": False}
_RMS = {"placement": "pre", "kind": "rms_norm"}
_VISION_PATHS = {
    r"attention\.q_proj": "attention.query",
    r"attention\.k_proj": "attention.key",
    r"attention\.v_proj": "attention.value",
    r"attention\.o_proj": "attention.output",
    r"mlp\.fc1": "feed_forward.hidden",
    r"mlp\.fc2": "feed_forward.output",
}
_IMAGE = {"image_size": 12, "patch_size": 4, "num_channels": 3}
_OF_IMAGE = {"vocabulary": None, "positions": "learned", "position_table": {"rows": S, "first": 0, "counted": "all"}}
_FRONT = ("embeddings.cls_token", "embeddings.mask_token", "embeddings.patch_embeddings.")

ENCODERS: dict[str, Theirs] = {
    "bert": Theirs(
        "BertModel",
        "BertConfig",
        {**_TOKENS, "type_vocab_size": 3, "max_position_embeddings": 14},
        {
            "norm": _POST,
            "stack": {"layers": 2},
            "embedding": {
                **_LEARNED,
                "position_table": {"rows": 14, "first": 0, "counted": "all"},
                "token_types": 3,
            },
        },
        _BERT_PATHS,
        made_with={"add_pooling_layer": False},
    ),
    "roberta": Theirs(
        "RobertaModel",
        "RobertaConfig",
        {**_TOKENS, "type_vocab_size": 1, "max_position_embeddings": 16, "layer_norm_eps": 1e-5},
        {
            "norm": {"placement": "post", "epsilon": 1e-5},
            "stack": {"layers": 2},
            "embedding": {**_LEARNED, "position_table": _FROM_2, "token_types": 1},
        },
        _BERT_PATHS,
        made_with={"add_pooling_layer": False},
    ),
    "mpnet": Theirs(
        "MPNetModel",
        "MPNetConfig",
        {**_TOKENS, "max_position_embeddings": 16},
        {
            "norm": _POST,
            "attention": {"position_bias": {"buckets": 32, "max_distance": 128}},
            "stack": {"layers": 2, "shared_position_bias": True},
            "embedding": {**_LEARNED, "position_table": _FROM_2},
        },
        {
            **_bert("attn", "q", "k", "v", r"attn\.o", "LayerNorm"),
            r"encoder\.relative_attention_bias\.weight": "layers.0.attention.position_bias.table",
        },
        made_with={"add_pooling_layer": False},
        attention="eager",
    ),
    "t5": Theirs(
        "T5EncoderModel",
        "T5Config",
        {"d_model": D, "num_heads": H, "d_kv": 8, "d_ff": F, "num_layers": 2, "vocab_size": V},
        {
            "norm": {**_RMS, "epsilon": 1e-6},
            "attention": {**_NO_BIAS, "scale": 1.0, "position_bias": {"buckets": 32, "max_distance": 128}},
            "feed_forward": {"activation": "relu", "bias": False},
            "stack": {"layers": 2, "final_norm": True, "shared_position_bias": True},
            "embedding": {"vocabulary": V, "positions": "none"},
        },
        {
            r"shared\.weight": "embedding.weight",
            r"encoder\.block\.0\.layer\.0\.SelfAttention\.relative_attention_bias\.weight": (
                "layers.0.attention.position_bias.table"
            ),
            **_layers(
                r"encoder\.block",
                {
                    r"layer\.0\.SelfAttention\.q": "attention.query",
                    r"layer\.0\.SelfAttention\.k": "attention.key",
                    r"layer\.0\.SelfAttention\.v": "attention.value",
                    r"layer\.0\.SelfAttention\.o": "attention.output",
                    r"layer\.0\.layer_norm": "norm1",
                    r"layer\.1\.DenseReluDense\.wi": "feed_forward.hidden",
                    r"layer\.1\.DenseReluDense\.wo": "feed_forward.output",
                    r"layer\.1\.layer_norm": "norm2",
                },
            ),
            **_of(r"encoder\.final_layer_norm", "final_norm"),
        },
        attention="eager",
    ),
    "modernbert": Theirs(
        "ModernBertModel",
        "ModernBertConfig",
        {**_TOKENS, "cls_token_id": 0, "sep_token_id": 2, "local_attention": 4, "num_hidden_layers": 4},
        {
            "norm": {"placement": "pre", "epsilon": 1e-5, "shift": False, "first": False},
            "attention": {
                **_NO_BIAS,
                "rope": {"theta": 1e4, "pairing": "halves"},
                "window": {"left": 2, "right": 2},
            },
            "feed_forward": {"bias": False, "gated": True},
            "stack": {
                "layers": 4,
                "final_norm": True,
                "global_layers": {"first": 0, "every": 3, "theta": 160000.0},
            },
            "embedding": {"vocabulary": V, "positions": "none", "norm": True},
        },
        {
            r"embeddings\.tok_embeddings\.weight": "embedding.weight",
            r"embeddings\.norm\.weight": "embedding_norm.gain",
            r"layers\.(\d+)\.attn\.Wqkv\.weight": (
                "layers.{0}.attention.query.weight layers.{0}.attention.key.weight layers.{0}.attention.value.weight"
            ),
            r"layers\.(\d+)\.mlp\.Wi\.weight": (
                "layers.{0}.feed_forward.gate.weight layers.{0}.feed_forward.hidden.weight"
            ),
            **_layers(
                "layers",
                {
                    r"attn\.Wo": "attention.output",
                    "attn_norm": "norm1",
                    "mlp_norm": "norm2",
                    r"mlp\.Wo": "feed_forward.output",
                },
            ),
            **_of("final_norm", "final_norm"),
        },
    ),
    "eurobert": Theirs(
        "EuroBertModel",
        "EuroBertConfig",
        {
            **_TOKENS,
            "num_key_value_heads": 1,
            "mask_token_id": 3,
            "rope_parameters": {"rope_theta": 250000.0, "rope_type": "default"},
        },
        {
            "norm": {**_RMS, "epsilon": 1e-5},
            "attention": {**_NO_BIAS, "kv_heads": 1, "rope": {"theta": 250000.0, "pairing": "halves"}},
            "feed_forward": {"activation": "silu", "bias": False, "gated": True},
            "stack": {"layers": 2, "final_norm": True},
            "embedding": {"vocabulary": V, "positions": "none"},
        },
        {
            r"embed_tokens\.weight": "embedding.weight",
            **_layers(
                "layers",
                {
                    r"self_attn\.q_proj": "attention.query",
                    r"self_attn\.k_proj": "attention.key",
                    r"self_attn\.v_proj": "attention.value",
                    r"self_attn\.o_proj": "attention.output",
                    "input_layernorm": "norm1",
                    "post_attention_layernorm": "norm2",
                    r"mlp\.gate_proj": "feed_forward.gate",
                    r"mlp\.up_proj": "feed_forward.hidden",
                    r"mlp\.down_proj": "feed_forward.output",
                },
            ),
            r"norm\.weight": "final_norm.gain",
        },
    ),
    "whisper": Theirs(
        "WhisperModel",
        "WhisperConfig",
        {
            "d_model": D,
            "encoder_layers": 2,
            "encoder_attention_heads": H,
            "encoder_ffn_dim": F,
            "decoder_layers": 1,
            "decoder_attention_heads": H,
            "decoder_ffn_dim": F,
            "vocab_size": V,
            "max_source_positions": S,
            "num_mel_bins": 4,
            "pad_token_id": 1,
            "bos_token_id": 2,
            "eos_token_id": 2,
            "decoder_start_token_id": 2,
        },
        {
            "norm": {"placement": "pre", "epsilon": 1e-5},
            "attention": {"key_bias": False},
            "stack": {"layers": 2, "final_norm": True},
            "embedding": _OF_IMAGE,
        },
        {
            r"embed_positions\.weight": "position_embedding.weight",
            **_layers(
                "layers",
                {
                    r"self_attn\.q_proj": "attention.query",
                    r"self_attn\.k_proj": "attention.key",
                    r"self_attn\.v_proj": "attention.value",
                    r"self_attn\.out_proj": "attention.output",
                    "self_attn_layer_norm": "norm1",
                    "fc1": "feed_forward.hidden",
                    "fc2": "feed_forward.output",
                    "final_layer_norm": "norm2",
                },
            ),
            **_of("layer_norm", "final_norm"),
        },
        front=("conv1.", "conv2."),
        part="encoder",
    ),
    "vit": Theirs(
        "ViTModel",
        "ViTConfig",
        {**_SIZES, **_IMAGE},
        {
            "norm": {"placement": "pre", "epsilon": 1e-12},
            "stack": {"layers": 2, "final_norm": True},
            "embedding": _OF_IMAGE,
        },
        {
            r"embeddings\.position_embeddings": "position_embedding.weight",
            **_layers("layers", {**_VISION_PATHS, "layernorm_before": "norm1", "layernorm_after": "norm2"}),
            **_of("layernorm", "final_norm"),
        },
        front=_FRONT,
        made_with={"add_pooling_layer": False},
    ),
    "dinov2": Theirs(
        "Dinov2Model",
        "Dinov2Config",
        {**{key: value for key, value in _SIZES.items() if key != "intermediate_size"}, **_IMAGE, "mlp_ratio": 2},
        {
            "norm": {"placement": "pre", "epsilon": 1e-6},
            "feed_forward": {"d_ff": 2 * D},
            "layer_scale": ("attention", "feed_forward"),
            "stack": {"layers": 2, "final_norm": True},
            "embedding": _OF_IMAGE,
        },
        {
            r"embeddings\.position_embeddings": "position_embedding.weight",
            **_layers(r"encoder\.layer", {**_VISION_PATHS, "norm1": "norm1", "norm2": "norm2"}),
            r"encoder\.layer\.(\d+)\.layer_scale(\d)\.lambda1": "layers.{}.layer_scale{}.gain",
            **_of("layernorm", "final_norm"),
        },
        front=_FRONT,
    ),
}


@contextmanager
def wide() -> Iterator[None]:
    """Their code with float64 wherever it asks for float32: norms, rotations and softmax are computed in that."""
    to, narrow, arange = Tensor.to, Tensor.float, torch.arange

    def widening(function: Any) -> Any:
        def widened(*given: Any, **named: Any) -> Any:
            own = [_wider(value) for value in given]
            return function(*own, **{name: _wider(value) for name, value in named.items()})

        return widened

    Tensor.to, Tensor.float, torch.arange = widening(to), Tensor.double, widening(arange)  # type: ignore[method-assign]
    try:
        yield
    finally:
        Tensor.to, Tensor.float, torch.arange = to, narrow, arange  # type: ignore[method-assign]


def _wider(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value
