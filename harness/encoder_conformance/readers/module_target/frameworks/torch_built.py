"""Modules of PyTorch that make their parameters at the first call: that call is made, on a copy."""

from copy import deepcopy
from dataclasses import replace
from itertools import islice, product

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from encoder_conformance.readers.module_target.calling import signature_of
from encoder_conformance.readers.module_target.errors import BadTarget, last_frames
from encoder_conformance.readers.module_target.frameworks.pytorch_compiled import copy_of, forward_of, inside
from encoder_conformance.readers.module_target.frameworks.torch_arrays import ARRAYS
from encoder_conformance.readers.module_target.live import USUAL_WIDTHS
from encoder_conformance.readers.module_target.probing import to_be_said
from encoder_conformance.readers.module_target.supplies import ToldOf, no_words
from encoder_conformance.readers.module_target.told import with_told
from encoder_conformance.readers.module_target.ways_to_call import ways_to_call
from encoder_conformance.readers.onnx_file.interface.probe_runs import BATCH, SEQUENCE

_MOST_WAYS = 60
"""Ways to call it that are tried to have it build."""


def is_built_later(module: nn.Module) -> bool:
    """Whether it has parameters after a call that it has not before."""
    if _has_lazy(module):
        return True
    return not any(True for _ in module.parameters()) and any(True for _ in built(module).parameters())


def built(module: nn.Module, told: ToldOf = no_words) -> nn.Module:
    """A copy after its first call, in the first way that it takes, with an x of a usual width; a plain copy where
    nothing is made later. `told`: what a user says that its arguments are given. Raises BadTarget."""
    lazy = _has_lazy(module)
    if not lazy and any(True for _ in module.parameters()):
        return copy_of(module)
    widths, name = _widths(module), f"{type(inside(module)).__name__}.forward"
    signature = signature_of(forward_of(inside(module)), name, keys=False)
    signature = with_told(signature, told(signature.x))
    problem = ""
    for way, width in product(islice(ways_to_call(signature, widths), _MOST_WAYS), widths):
        copied, arranged = deepcopy(module).to("cpu").eval(), replace(signature, arrangement=way)
        try:
            with torch.no_grad():
                arranged.called(copied, torch.zeros(BATCH, SEQUENCE, width), {}, ARRAYS)
        except Exception as error:  # whatever a module does with what is not its own
            problem = problem or last_frames(error)
            continue
        if not _has_lazy(copied):
            return copied
    if not lazy:
        return copy_of(module)
    problem = f"it makes its weights at its first call, and takes no x [{BATCH}, {SEQUENCE}, d_model]: {problem}"
    raise BadTarget(problem, to_be_said(signature, "name a function that calls it once"))


def _has_lazy(module: nn.Module) -> bool:
    return any(is_lazy(value) for value in (*module.parameters(), *module.buffers()))


def elements(module: nn.Module) -> int:
    """How many numbers its parameters have, but for those that it makes later."""
    return sum(value.numel() for value in module.parameters() if not is_lazy(value))


def _widths(module: nn.Module) -> list[int]:
    """Those that its parts say, those of what is there of its vectors, and then usual ones."""
    names = ("d_model", "dim", "embed_dim", "hidden_size", "width", "num_features", "features", "in_features")
    said = [getattr(part, name, 0) for part in module.modules() for name in names]
    vectors = [value.numel() for value in module.parameters() if not is_lazy(value) and value.ndim == 1]
    return [*dict.fromkeys([*(each for each in said if isinstance(each, int) and each > 1), *vectors, *USUAL_WIDTHS])]
