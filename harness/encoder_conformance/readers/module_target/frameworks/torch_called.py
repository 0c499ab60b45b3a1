"""Calls a module of PyTorch as its signature says."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from encoder_conformance.readers.module_target.frameworks.torch_arrays import ARRAYS
from encoder_conformance.readers.module_target.frameworks.torch_flex import (
    flex_attention_by_definition,
    with_block_masks,
)
from encoder_conformance.readers.module_target.frameworks.torch_known import MadeAgain
from encoder_conformance.readers.module_target.live import Signature


def called(module: Callable[..., Any], signature: Signature, x: Tensor, masks: Mapping[str, Tensor]) -> Tensor:
    """The output, in the layout of x; of a module that takes one item, for one after the other."""
    module = with_block_masks(module)
    if torch.compiler.is_dynamo_compiling():  # which makes no graph of what enters and leaves
        return _called(module, signature, x, masks)
    with flex_attention_by_definition(), MadeAgain() if torch.compiler.is_exporting() else nullcontext():
        return _called(module, signature, x, masks)


def _called(module: Callable[..., Any], signature: Signature, x: Tensor, masks: Mapping[str, Tensor]) -> Tensor:
    if signature.arrangement.form != "SD":
        found: Tensor = signature.called(module, x, masks, ARRAYS)
        return found
    for name, mask in masks.items():
        if not mask.ndim or len(mask) != len(x):
            raise ValueError(f"{name} {list(mask.shape)} has no mask for each of {len(x)} items")
    items = ((x[at : at + 1], {name: mask[at] for name, mask in masks.items()}) for at in range(len(x)))
    return torch.cat([signature.called(module, *item, ARRAYS) for item in items])
