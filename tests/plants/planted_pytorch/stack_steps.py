"""The steps of a stack: each as impls/pytorch takes it and, beside it, its wrong forms."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encoder_conformance.impls.pytorch.stack import sinusoidal
from planted_pytorch.made_of import dropped

NORMS = {nn.LayerNorm: F.layer_norm, nn.RMSNorm: F.rms_norm}


def waves(x: Tensor, first: int = 0) -> tuple[Tensor, Tensor]:
    """[S, D / 2], the sines and the cosines, of positions counted from `first`."""
    S, D = x.shape[1:]
    rates = 10000.0 ** (-torch.arange(0, D, 2, dtype=x.dtype) / D)
    angles = torch.arange(first, first + S, dtype=x.dtype)[:, None] * rates
    return angles.sin(), angles.cos()


def from_one(x: Tensor) -> Tensor:
    return x + torch.stack(waves(x, first=1), dim=-1).flatten(1)


STACK: dict[str, dict[str, Any]] = {
    "tokens": {  # (e, ids), e an nn.Embedding
        "standard": lambda e, ids: e(ids),
        "scaled": lambda e, ids: e(ids) * e.embedding_dim**0.5,
    },
    "positions": {
        "standard": lambda x: x + sinusoidal(x),
        "missing": lambda x: x,
        "from-one": from_one,
        "halves": lambda x: x + torch.cat(waves(x), dim=-1),
        "ignored": lambda x: x + sinusoidal(x),
    },
    "after_embedding": {
        "standard": lambda x: x,
        "dropout": dropped,
    },
    "between_layers": {
        "standard": lambda x: x,
        "positions-again": lambda x: x + sinusoidal(x),
    },
    "layer_order": {  # (the layers) → those that are run, None to pass on what came
        "standard": list,
        "without-last": lambda layers: [*layers[:-1], None],
        "first-for-all": lambda layers: [layers[0]] * len(layers),
    },
    "stack_norm": {
        "standard": lambda norm, x: norm(x),
        "missing": lambda norm, x: x,
    },
    "stack_end": {  # (a norm of the layers, x)
        "standard": lambda norm2, x: x,
        "normed": lambda norm2, x: NORMS[type(norm2)](x, norm2.normalized_shape, eps=norm2.eps),
    },
}
