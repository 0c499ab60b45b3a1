"""The lines at which a module of PyTorch makes values of a narrow format."""

from collections.abc import Callable
from traceback import extract_stack
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from encoder_conformance.readers.module_target.calling_lines import code_in
from encoder_conformance.readers.module_target.frameworks.torch_dispatch import SeesOperators

_NARROW = {torch.float16: "float16", torch.bfloat16: "bfloat16"}


class _Casts(SeesOperators):
    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, str] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answer = func(*args, **(kwargs or {}))
        for each in tree_leaves(answer):
            if isinstance(each, Tensor) and each.dtype in _NARROW and _NARROW[each.dtype] not in self.lines:
                self.lines[_NARROW[each.dtype]] = code_in(extract_stack(), ("torch",))
        return answer


def cast_at(run: Callable[[], object]) -> dict[str, str]:
    """Narrow format → `model.py:12: x = scores.half()`, the first line of a call that makes a tensor of it."""
    casts = _Casts()
    with torch.no_grad(), casts:
        run()
    return casts.lines
