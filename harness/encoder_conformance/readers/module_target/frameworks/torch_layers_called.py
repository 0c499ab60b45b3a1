"""The layers that a PyTorch model calls, and how it is run to reach each."""

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from encoder_conformance.readers.module_target.frameworks.torch_inputs import Inputs, inputs_of
from encoder_conformance.readers.module_target.frameworks.torch_sums import layers_in, may_hold_layer

SIZES = ((2, 5), (3, 7))
"""Batches and lengths at which a model is looked at."""
LISTS = (nn.ModuleList, nn.ModuleDict)
_LEAST = 4
"""The matrices that a layer has at least."""


@dataclass(frozen=True)
class Way:
    """A way to run a model: the path of what is called in it, and the number of the inputs that it takes."""

    root: str
    number: int

    def inputs(self, model: nn.Module, batch: int, sequence: int) -> Inputs:
        return list(inputs_of(model.get_submodule(self.root), batch, sequence))[self.number]

    def run(self, model: nn.Module, inputs: Inputs, mask: Tensor | None = None) -> Any:
        """Raises whatever the model does. `mask`: [B, S], true for what is there."""
        root = model.get_submodule(self.root)
        dtype = next((value.dtype for value in model.parameters() if value.is_floating_point()), torch.float32)
        cast = {name: value.to(dtype) if value.is_floating_point() else value for name, value in inputs.items()}
        masks = {} if mask is None else {"attention_mask": mask}
        first, *others = cast
        return root(cast[first], **({name: cast[name] for name in others} | masks))


@dataclass(frozen=True)
class Found:
    """A layer in a model, and how the model is run to reach it."""

    path: str
    way: Way


def without_cache(model: nn.Module) -> nn.Module:
    """The model, set to keep nothing of a call for the next."""
    for part in model.modules():
        if hasattr(getattr(part, "config", None), "use_cache"):
            part.config.use_cache = False
    return model


def found_in(model: nn.Module) -> list[Found]:
    """The layers of a model, in its order: those that it calls, or else those that parts of it do.

    A model that needs more than one input, or one of an unknown kind, is run part by part.
    """
    found: list[Found] = []
    waiting = [encoder_path(model)]
    while waiting:
        root = waiting.pop(0)
        part = model.get_submodule(root)
        here = [] if _is_small(part) else _reached(model, root)
        if here:
            found += here
        else:
            waiting += [f"{root}.{name}" if root else name for name, _ in part.named_children()]
    order = {name: number for number, (name, _) in enumerate(model.named_modules())}
    return sorted(found, key=lambda each: order[each.path])


def ways_of(model: nn.Module, root: str) -> list[Way]:
    return [Way(root, number) for number, _ in enumerate(inputs_of(model.get_submodule(root), *SIZES[0]))]


def is_no_layer(model: nn.Module, path: str) -> bool:
    """Whether a part runs by itself and, whatever it holds, mixes no positions or has no residual sum."""
    part = model.get_submodule(path)
    for way in ways_of(model, path):
        with suppress(Exception):
            return not may_hold_layer(part, partial(way.run, model, way.inputs(model, *SIZES[0])))
    return False


def encoder_path(model: nn.Module) -> str:
    """That of the encoder, where there is a decoder too."""
    if not getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        return ""
    with suppress(Exception):
        encoder = model.get_encoder()
        return str(next(name for name, part in model.named_modules() if part is encoder))
    return ""


def _is_small(part: nn.Module) -> bool:
    """Whether it is no more than a layer, or cannot be called."""
    held = isinstance(part, LISTS)
    return held or sum(value.ndim >= 2 for value in part.parameters()) < _LEAST


def _reached(model: nn.Module, root: str) -> list[Found]:
    part, seen = model.get_submodule(root), False
    for way in ways_of(model, root):
        with suppress(Exception), torch.no_grad():
            inputs = way.inputs(model, *SIZES[0])
            if (image := max(map(torch.Tensor.dim, inputs.values())) > 3) and seen:
                continue  # a larger one shows no more, and scores of each pair of its pixels fill the memory
            paths = layers_in(part, partial(way.run, model, inputs))
            seen = seen or image
            found = [Found(".".join(filter(None, (root, path))), way) for path in paths]
            if any(each.path for each in found):
                return found
    return []
