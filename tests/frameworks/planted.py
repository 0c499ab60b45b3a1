"""Modules of PyTorch, transformers and x-transformers, right or with one bug each: `conform check planted.py:made
--arg module=bert --arg bug=norm-eps-1e-3`. Bugs are planted in the module, by what its framework lets one get wrong."""

import importlib
import runpy
from collections.abc import Callable
from pathlib import Path
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

BARE: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("bare_modules.py")))
D, H, F, Einsum, Fused = (BARE[name] for name in ("D", "H", "F", "Einsum", "Fused"))
Bug = Callable[[Any], None]


def _epsilon(module: nn.Module) -> None:
    """1e-3, the default of Keras, in every norm."""
    for each in module.modules():
        if "norm" in type(each).__name__.lower():
            each.eps = 1e-3


def _gelu_tanh(y: Tensor) -> Tensor:
    return nn.functional.gelu(y, approximate="tanh")


def _activation(name: str, made: Callable[[Tensor], Tensor]) -> Bug:
    """The attribute of this name, wherever the module has it, is this activation."""

    def plant(module: nn.Module) -> None:
        for each in list(module.modules()):
            if hasattr(each, name):
                delattr(each, name)
                setattr(each, name, _Called(made))
            if hasattr(each, "activation_relu_or_gelu"):
                each.activation_relu_or_gelu = 0  # else the fast path goes on with the activation that it was made with

    return plant


class _Called(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, y: Tensor) -> Tensor:
        return self.function(y)


def _scaling(module: nn.Module) -> None:
    """Scores over the root of d_model, and not of the features of a head."""
    for each in module.modules():
        if hasattr(each, "scaling"):
            each.scaling = D**-0.5


def _forward(forward: Callable[..., Any]) -> Bug:
    """The module's own `forward` is this."""

    def plant(module: nn.Module) -> None:
        module.forward = MethodType(forward, module)

    return plant


def _attribute(name: str, value: Any) -> Bug:
    return lambda module: setattr(module, name, value)


def _torch_post_without_residual2(
    self: Any, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None
) -> Tensor:
    x = self.norm1(src + self._sa_block(src, src_mask, src_key_padding_mask))
    return self.norm2(self._ff_block(x))


def _torch_post_with_residual2_of_first(
    self: Any, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None
) -> Tensor:
    x = self.norm1(src + self._sa_block(src, src_mask, src_key_padding_mask))
    return self.norm2(src + self._ff_block(x))


def _torch_pre_with_residual1_of_normed(
    self: Any, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None
) -> Tensor:
    y = self.norm1(src)
    x = y + self._sa_block(y, src_mask, src_key_padding_mask)
    return x + self._ff_block(self.norm2(x))


def _torch_pre_with_residual2_twice(
    self: Any, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None
) -> Tensor:
    x = src + self._sa_block(self.norm1(src), src_mask, src_key_padding_mask)
    return 2 * x + self._ff_block(self.norm2(x))


def _placed_before(module: nn.Module) -> None:
    for each in module.modules():
        if hasattr(each, "norm_first"):
            each.norm_first = True


def _einsum_norm(variance: Callable[[Tensor], Tensor]) -> Bug:
    def norm(x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
        return (x - x.mean(-1, keepdim=True)) / torch.sqrt(variance(x)) * gain + shift

    return _attribute("norm", norm)


def _sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **options: Any) -> Tensor:
    return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)


def _by_reshape(y: Tensor) -> Tensor:
    return y.reshape(y.shape[0], H, y.shape[1], -1)


def _of_transformers(module: str, layer: str, config: str, **choices: Any) -> Callable[[], nn.Module]:
    def made() -> nn.Module:
        transformers = importlib.import_module("transformers")
        models = importlib.import_module(f"transformers.models.{module}.modeling_{module}")
        index = {"layer_idx": 0} if layer == "GPT2Block" else {}
        return getattr(models, layer)(getattr(transformers, config)(**choices), **index)

    return made


def _torch(**choices: Any) -> Callable[[], nn.Module]:
    return lambda: nn.TransformerEncoderLayer(D, H, F, **choices)


def _torch_stack() -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(D, H, F, batch_first=True), 3)


def _x_transformers(**choices: Any) -> Callable[[], nn.Module]:
    def made() -> nn.Module:
        encoder = importlib.import_module("x_transformers").Encoder
        sizes = {"dim": D, "depth": 1, "heads": H, "attn_dim_head": D // H, "ff_mult": F / D}
        module: nn.Module = encoder(**sizes, **choices)
        return module

    return made


_SIZES = {"hidden_size": D, "num_attention_heads": H, "intermediate_size": F}
_RELU_BUGS = {"norm-eps-1e-3": _epsilon, "activation-silu": _activation("activation", nn.functional.silu)}
_GELU_BUGS = {"norm-eps-1e-3": _epsilon, "gelu-tanh": _activation("activation", _gelu_tanh)}
_HF_BUGS = {"norm-eps-1e-3": _epsilon, "scale-by-d-model": _scaling}

MODULES: dict[str, tuple[Callable[[], nn.Module], dict[str, Bug]]] = {
    "torch post": (_torch(), _RELU_BUGS | {"residual2-missing": _forward(_torch_post_without_residual2)}),
    "torch post, batch first": (
        _torch(batch_first=True),
        _RELU_BUGS | {"residual2-from-first": _forward(_torch_post_with_residual2_of_first)},
    ),
    "torch post gelu": (
        _torch(activation="gelu"),
        _GELU_BUGS | {"residual2-missing": _forward(_torch_post_without_residual2)},
    ),
    "torch pre": (
        _torch(norm_first=True, batch_first=True),
        _RELU_BUGS | {"residual1-from-normed": _forward(_torch_pre_with_residual1_of_normed)},
    ),
    "torch pre gelu": (
        _torch(norm_first=True, activation="gelu"),
        _GELU_BUGS | {"residual2-twice": _forward(_torch_pre_with_residual2_twice)},
    ),
    "torch stack": (_torch_stack, _RELU_BUGS | {"norm-placement-pre": _placed_before}),
    "einsum": (
        Einsum,
        {
            "scale-by-d-model": _attribute("root", D**0.5),
            "norm-eps-1e-3": _einsum_norm(lambda x: x.var(-1, keepdim=True, unbiased=False) + 1e-3),
            "norm-unbiased-variance": _einsum_norm(lambda x: x.var(-1, keepdim=True) + 1e-5),
        },
    ),
    "fused qkv": (
        Fused,
        {
            "norm-eps-1e-3": _epsilon,
            "gelu-tanh": _attribute("activation", _gelu_tanh),
            "residual1-missing": _attribute("first", lambda x, y: y),
        },
    ),
    "fused kvq": (
        lambda: Fused("kvq"),
        {
            "gelu-quick": _attribute("activation", lambda y: y * torch.sigmoid(1.702 * y)),
            "key-from-query": _attribute("attend", lambda q, k, v, mask: _sdpa(q, q, v, mask)),
            "residual2-twice": _attribute("second", lambda x, y: 2 * x + y),
        },
    ),
    "fused vqk": (
        lambda: Fused("vqk"),
        {
            "scale-by-d-model": _attribute("attend", lambda q, k, v, mask: _sdpa(q, k, v, mask, scale=D**-0.5)),
            "heads-by-reshape-at-split": _attribute("split", _by_reshape),
            "norm-eps-1e-3": _epsilon,
        },
    ),
    "bert": (
        _of_transformers("bert", "BertLayer", "BertConfig", **_SIZES),
        _HF_BUGS | {"gelu-tanh": _activation("intermediate_act_fn", _gelu_tanh)},
    ),
    "roberta": (
        _of_transformers("roberta", "RobertaLayer", "RobertaConfig", **_SIZES),
        _HF_BUGS | {"activation-relu": _activation("intermediate_act_fn", nn.functional.relu)},
    ),
    "distilbert": (
        _of_transformers("distilbert", "TransformerBlock", "DistilBertConfig", dim=D, n_heads=H, hidden_dim=F),
        _HF_BUGS | {"activation-silu": _activation("activation", nn.functional.silu)},
    ),
    "vit": (
        _of_transformers("vit", "ViTLayer", "ViTConfig", **_SIZES),
        _HF_BUGS | {"gelu-tanh": _activation("activation_fn", _gelu_tanh)},
    ),
    "whisper": (
        _of_transformers(
            "whisper", "WhisperEncoderLayer", "WhisperConfig", d_model=D, encoder_attention_heads=H, encoder_ffn_dim=F
        ),
        _HF_BUGS | {"gelu-tanh": _activation("activation_fn", _gelu_tanh)},
    ),
    "gpt2": (
        _of_transformers("gpt2", "GPT2Block", "GPT2Config", n_embd=D, n_head=H, n_inner=F),
        _HF_BUGS | {"activation-silu": _activation("act", nn.functional.silu)},
    ),
    "x-transformers": (
        _x_transformers(pre_norm_has_final_norm=False),
        {
            "norm-eps-1e-3": _epsilon,
            "gelu-tanh": lambda module: _activation("1", _gelu_tanh)(module.layers[1][1].ff[0]),
            "scale-by-d-model": lambda module: setattr(module.layers[0][1].attend, "scale", D**-0.5),
        },
    ),
}
"""The module, and bugs that may be planted in it, each under the name that the catalogue has for it."""


def made(module: str, bug: str = "") -> nn.Module:
    torch.manual_seed(0)
    right, bugs = MODULES[module]
    layer = right()
    if bug:
        bugs[bug](layer)
    return layer
