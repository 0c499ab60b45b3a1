"""FlexAttention inside a module, by PyTorch's own definition of it: its kernels have no gradients on the CPU, and no
ONNX."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor

BY_DEFINITION = (
    "it calls FlexAttention, of which PyTorch's own definition was asked, in operators that have gradients here and an "
    "export; its kernels were not, and nothing was compiled"
)
_MODULE, _DEFINITIONS = "torch.nn.attention.flex_attention", "torch._higher_order_ops.flex_attention"
_AXES = 4
"""Of what a BlockMask is made of: [batch, heads, sequence, sequence]."""
_OPERATOR, _DEFINITION, _ORDER = "flex_attention_hop", "math_attention", "_dense_to_ordered"


class _ByDefinition:
    """What the operator computes, in other operators. `called`: whether it was."""

    called = False

    def computed(self, *args: Any, **kwargs: Any) -> Any:
        self.called = True
        return getattr(sys.modules[_DEFINITIONS], _DEFINITION)(*args, **kwargs)


FLEX_ATTENTION = _ByDefinition()


@cache
def _replaced(ordered: Callable[[Tensor], Any]) -> Mapping[str, Any]:
    """Name in PyTorch's module → what stands there while a module is called. `ordered`: what stands at _ORDER."""

    def in_any_order(blocks: Tensor) -> Any:
        """Kernels alone need the blocks of a mask in order, and their sort has no ONNX."""
        if not torch.compiler.is_exporting():
            return ordered(blocks)
        return blocks.sum(-1).to(torch.int32), torch.zeros_like(blocks, dtype=torch.int32)

    return {
        _OPERATOR: torch.compiler.disable(FLEX_ATTENTION.computed),
        # PyTorch's own switch: the operator is called without the compiler.
        "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG": True,
        # What sets the compiler up hides the call from an exporter.
        "setup_compilation_env": lambda: nullcontext("eager"),
        # What refuses tensors on the CPU that are to have gradients.
        "_validate_device": lambda *_: None,
        _ORDER: in_any_order,
    }


def with_block_masks(module: Callable[..., Any]) -> Callable[..., Any]:
    """The same, which takes for a BlockMask bool [batch or 1, heads or 1, sequence, sequence], true where a key is
    seen: what reads of a tensor what a BlockMask alone has is called again. No name and no annotation need say so."""
    if _MODULE not in sys.modules:
        return module

    def called(*by_place: Any, **by_name: Any) -> Any:
        try:
            return module(*by_place, **by_name)
        except AttributeError as error:
            masks = {name: given for name, given in by_name.items() if _may_be_blocks(given)}
            if not masks or not _is_of_blocks(error.name):
                raise
        return module(*by_place, **{**by_name, **{name: _in_blocks(given) for name, given in masks.items()}})

    return called


def _is_of_blocks(attribute: str | None) -> bool:
    of_blocks = sys.modules[_MODULE].BlockMask
    return attribute is not None and (hasattr(of_blocks, attribute) or attribute in of_blocks.__annotations__)


def _may_be_blocks(given: object) -> bool:
    return isinstance(given, Tensor) and given.ndim == _AXES and given.dtype == torch.bool


def _in_blocks(mask: Tensor) -> Any:
    B, H, S, T = mask.shape

    def seen(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return mask[b if B > 1 else 0, h if H > 1 else 0, i, j]

    return sys.modules[_MODULE].create_block_mask(seen, B, H, S, T, device=mask.device)


@contextmanager
def flex_attention_by_definition() -> Iterator[None]:
    """Where it is imported, a call of FlexAttention computes what PyTorch defines it by: for each shape and format the
    compiler takes 20 s, and its kernels have no gradients here. What is compiled inside a module is called without the
    compiler, too, once a call was seen: PyTorch imports it wherever anything is compiled. In a PyTorch that has other
    parts, nothing is replaced."""
    module = sys.modules.get(_MODULE)
    replaced = _replaced(getattr(module, _ORDER)) if hasattr(module, _ORDER) else {}
    if not replaced or not all(hasattr(module, name) for name in replaced):
        yield
        return
    before = {name: getattr(module, name) for name in replaced}
    try:
        for name, value in replaced.items():
            setattr(module, name, value)
        with torch.compiler.set_stance("force_eager") if FLEX_ATTENTION.called else nullcontext():
            yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)
