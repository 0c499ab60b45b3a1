"""The line at which a module of PyTorch draws the random numbers that its output depends on."""

from collections.abc import Callable
from traceback import extract_stack
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from encoder_conformance.readers.module_target.calling_lines import code_in
from encoder_conformance.readers.module_target.frameworks.torch_dispatch import SeesOperators

_MOST = 32
"""Operators that draw which are tried, the first ones."""
_SEED, _OTHER = 1, 1 << 20


class _Draws(SeesOperators):
    """Each operator that may draw begins with a seed of its own; that of the number `changed` with another."""

    def __init__(self, changed: int = -1) -> None:
        super().__init__()
        self.changed, self.lines = changed, list[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            number = len(self.lines)
            seed = _SEED + number + _OTHER * (number == self.changed)
            torch.manual_seed(seed)
            for each in tree_leaves((args, kwargs or {})):
                if isinstance(each, torch.Generator):
                    each.manual_seed(seed)
            self.lines.append(code_in(extract_stack(), ("torch",)))
        return func(*args, **(kwargs or {}))


def drawn_at(run: Callable[[], Tensor]) -> str:
    """`model.py:12: x = self.drop(x)`, the first line whose draw changes the output; "" where none is found."""
    first, drawn = _drawn(run, -1)
    for number, line in enumerate(drawn.lines[:_MOST]):
        other, _ = _drawn(run, number)
        if not torch.equal(first, other):
            return line
    return ""


def _drawn(run: Callable[[], Tensor], changed: int) -> tuple[Tensor, _Draws]:
    drawn = _Draws(changed)
    with torch.no_grad(), drawn:
        return run(), drawn
