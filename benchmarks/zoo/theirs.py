"""Encoder layers of other libraries than transformers, each made as its library makes it, of d features, `heads` and
`wide` features inside the network, which is 4 d where a library has no argument for it.

Each function has its library's import, so that one can be asked where the others are not installed. A layer that takes
more than x, or takes it otherwise, is called here as its own model calls it.
"""

from typing import Any

import torch
from torch import Tensor, nn


def _without_cuda() -> None:
    """torchvision's wheel for CUDA does not load beside torch for processors: what its import asks for is declared."""
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            _DECLARED.append(torch.library.Library("torchvision", "FRAGMENT"))
            _DECLARED[-1].define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


_DECLARED: list[Any] = []


def torchvision_vit(d: int, heads: int, wide: int) -> nn.Module:
    _without_cuda()
    from torchvision.models.vision_transformer import EncoderBlock

    return EncoderBlock(heads, d, wide, 0.0, 0.0)


def _timm(d: int, heads: int, **choices: Any) -> nn.Module:
    _without_cuda()
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(img_size=32, patch_size=8, embed_dim=d, depth=1, num_heads=heads, **choices).blocks[0]


def timm_vit(d: int, heads: int, wide: int) -> nn.Module:
    return _timm(d, heads)


def timm_vit_with_head_norms(d: int, heads: int, wide: int) -> nn.Module:
    return _timm(d, heads, qk_norm=True)


def timm_dinov2(d: int, heads: int, wide: int) -> nn.Module:
    return _timm(d, heads, init_values=1.0)


def timm_dinov2_giant(d: int, heads: int, wide: int) -> nn.Module:
    _without_cuda()
    from timm.layers import SwiGLUPacked

    return _timm(d, heads, init_values=1.0, mlp_ratio=8.0, mlp_layer=SwiGLUPacked, act_layer=nn.SiLU)


def open_clip(d: int, heads: int, wide: int) -> nn.Module:
    _without_cuda()
    from open_clip.transformer import ResidualAttentionBlock

    return ResidualAttentionBlock(d, heads)


def open_clip_of_openai(d: int, heads: int, wide: int) -> nn.Module:
    _without_cuda()
    from open_clip.transformer import QuickGELU, ResidualAttentionBlock

    return ResidualAttentionBlock(d, heads, act_layer=QuickGELU)


def openai_clip(d: int, heads: int, wide: int) -> nn.Module:
    _without_cuda()
    from clip.model import ResidualAttentionBlock

    return ResidualAttentionBlock(d, heads)


def openai_whisper(d: int, heads: int, wide: int) -> nn.Module:
    from whisper.model import ResidualAttentionBlock

    return _Alone(ResidualAttentionBlock(d, heads))


class _Alone(nn.Module):
    """What its model's encoder gives x alone: any mask is causal to it (docs/findings/openai_whisper-any-mask.py)."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class _Esm2(nn.Module):
    """ESM2 has the sequence first, and true where a key is padding."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        output, _ = self.layer(x.transpose(0, 1), self_attn_padding_mask=padding_mask)
        return output.transpose(0, 1)


def fair_esm2(d: int, heads: int, wide: int) -> nn.Module:
    from esm.modules import TransformerLayer

    layer = TransformerLayer(d, wide, heads, add_bias_kv=False, use_esm1b_layer_norm=True, use_rotary_embeddings=True)
    return _Esm2(layer)


class _Esmc(nn.Module):
    """A block of sequences alone: no structure, and one chain."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Tensor) -> Tensor:
        return self.block(x, None, None, None, None)


def evolutionaryscale_esmc(d: int, heads: int, wide: int) -> nn.Module:
    """That of a stack of nine: what is added to the sums is over the root of 9/36."""
    from esm.layers.blocks import UnifiedTransformerBlock

    return _Esmc(UnifiedTransformerBlock(d, heads, expansion_ratio=8 / 3, residue_scaling_factor=0.5))


def vit_pytorch(d: int, heads: int, wide: int) -> nn.Module:
    _without_cuda()
    from vit_pytorch.vit import Transformer

    return Transformer(d, 1, heads, d // heads, wide)


def kornia_vit(d: int, heads: int, wide: int) -> nn.Module:
    from kornia.models.vit import TransformerEncoderBlock

    return TransformerEncoderBlock(d, heads, 0.0, 0.0)


def monai_vit(d: int, heads: int, wide: int) -> nn.Module:
    from monai.networks.blocks.transformerblock import TransformerBlock

    return TransformerBlock(d, wide, heads)


def x_transformers_rope(d: int, heads: int, wide: int) -> nn.Module:
    from x_transformers import Encoder

    return Encoder(
        dim=d, depth=1, heads=heads, attn_dim_head=d // heads, rotary_pos_emb=True, rotary_emb_dim=d // heads,
        use_rmsnorm=True, ff_mult=wide / d, ff_swish=True, ff_glu=True, ff_no_bias=True,
    )  # fmt: skip


def keras_hub_encoder(d: int, heads: int, wide: int) -> Any:
    import keras_hub

    layer = keras_hub.layers.TransformerEncoder(
        wide, heads, activation="gelu", normalize_first=True, layer_norm_epsilon=1e-5
    )
    layer.build((None, None, d))
    return layer
