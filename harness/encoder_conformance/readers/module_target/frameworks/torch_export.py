"""Exports a function of x on PyTorch to ONNX, so that the graph can be read."""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import onnx
import torch
from torch import Tensor, nn

from encoder_conformance.protocol.findings import noted
from encoder_conformance.readers.module_target.export_notes import keep_note
from encoder_conformance.readers.module_target.frameworks.torch_branches import BranchesAsTaken
from encoder_conformance.readers.module_target.frameworks.torch_complex import ComplexByPairs
from encoder_conformance.readers.module_target.frameworks.torch_detached import DataIsDetached
from encoder_conformance.readers.module_target.frameworks.torch_flex import BY_DEFINITION, FLEX_ATTENTION
from encoder_conformance.readers.module_target.frameworks.torch_frames import every_frame
from encoder_conformance.readers.module_target.frameworks.torch_known import MadeAtOnce
from encoder_conformance.readers.module_target.frameworks.torch_pointwise import PointwiseIsLinear
from encoder_conformance.readers.module_target.frameworks.torch_sdpa import AttentionHasHeads
from encoder_conformance.readers.module_target.frameworks.torch_squeeze import SqueezesAreOfOne


class _OfFunction(nn.Module):
    """A function of x as a module. `module`: whose parameters it takes."""

    def __init__(self, function: Callable[[Tensor], Tensor], module: nn.Module | None) -> None:
        super().__init__()
        self.module, self._function = module, function

    def forward(self, x: Tensor) -> Tensor:
        return self._function(x)


def exported(
    function: Callable[[Tensor], Tensor],
    x_shape: tuple[int, ...],
    module: nn.Module | None = None,
    *,
    simplified: bool = True,
) -> onnx.ModelProto:
    """Exports a function of x, and of the parameters of `module`. Every node keeps the line of source that it is of."""
    warnings.filterwarnings("ignore", module="torch|copyreg")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    alone = _OfFunction(function, module).eval()
    with _described(alone):
        return _model_of(alone, torch.zeros(x_shape), simplified)


@contextmanager
def _described(module: nn.Module) -> Iterator[None]:
    """Each part whose `repr` raises, as one that names what it has not, says nothing of itself for as long: PyTorch
    writes a module down as it exports it."""
    silent = [each for each in module.modules() if _raises(each.extra_repr)]
    for each in silent:
        each.__dict__["extra_repr"] = str
    try:
        yield
    finally:
        for each in silent:
            del each.__dict__["extra_repr"]


def _raises(call: Callable[[], object]) -> bool:
    try:
        call()
    except Exception:
        return True
    return False


@contextmanager
def _as_it_can_be_exported() -> Iterator[None]:
    with PointwiseIsLinear(), AttentionHasHeads(), ComplexByPairs(), SqueezesAreOfOne(), DataIsDetached():
        yield


def _model_of(module: nn.Module, x: Tensor, simplified: bool) -> onnx.ModelProto:
    """The export. Where that fails: without gradients, since it stumbles over a bias of scores that has one, and with
    all computed at once that depends on nothing; and then told of the branches that depend on numbers."""
    with suppress(Exception):
        return _exported(module, x, simplified)
    with suppress(Exception), torch.no_grad(), MadeAtOnce():
        return _exported(module, x, simplified)
    branches = BranchesAsTaken(module, x.shape)
    with torch.no_grad(), branches:
        model = _exported(module, x, simplified)
    if branches.told:
        keep_note(model, branches.note())
    return model


def _exported(module: nn.Module, x: Tensor, simplified: bool) -> onnx.ModelProto:
    FLEX_ATTENTION.called = False
    with _as_it_can_be_exported(), every_frame():
        program: Any = torch.onnx.export(module, (x,), dynamo=True, verbose=False, optimize=simplified)
    model: onnx.ModelProto = program.model_proto
    if FLEX_ATTENTION.called:
        keep_note(model, noted("attention-by-definition", BY_DEFINITION))
    return model
