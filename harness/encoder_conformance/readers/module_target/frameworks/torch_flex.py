"""FlexAttention inside a module, which PyTorch compiles for each shape by itself."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_MODULE = "torch.nn.attention.flex_attention"
_SWITCH = "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG"
"""PyTorch's own, with which FlexAttention computes as it is written."""


@contextmanager
def flex_attention_eager() -> Iterator[None]:
    """Where it is imported, FlexAttention computes without the compiler, as does all that is compiled inside: for each
    shape and format the compiler takes 20 s, and does not trace what watches over a call."""
    module = sys.modules.get(_MODULE)
    if module is None or not hasattr(module, _SWITCH):
        yield
        return
    before = getattr(module, _SWITCH)
    setattr(module, _SWITCH, True)
    try:
        with torch.compiler.set_stance("force_eager"):
            yield
    finally:
        setattr(module, _SWITCH, before)
