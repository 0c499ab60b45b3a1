"""FlexAttention inside a module: PyTorch has no way back of it on the processor, and no ONNX."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import torch

_MODULE = "torch.nn.attention.flex_attention"
_OPERATOR, _SWITCH = "flex_attention_hop", "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG"
"""What computes it; and PyTorch's own switch, with which that is called without the compiler."""


def _refused(*_: Any, **__: Any) -> NoReturn:
    raise NotImplementedError(
        "FlexAttention, which PyTorch neither differentiates on the CPU nor exports to ONNX, so that it is not judged"
    )


@contextmanager
def flex_attention_refused() -> Iterator[None]:
    """Where it is imported, a call of FlexAttention raises at once: for each shape and format the compiler takes 20 s,
    and what comes of it has no gradients. What is compiled inside a module is called without the compiler, too."""
    module = sys.modules.get(_MODULE)
    if module is None or not (hasattr(module, _SWITCH) and hasattr(module, _OPERATOR)):
        yield
        return
    before = {name: getattr(module, name) for name in (_OPERATOR, _SWITCH)}
    setattr(module, _OPERATOR, _refused)
    setattr(module, _SWITCH, True)
    try:
        with torch.compiler.set_stance("force_eager"):
            yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)
