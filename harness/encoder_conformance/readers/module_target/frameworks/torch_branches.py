"""Branches that a module of PyTorch takes by the numbers that it computes, as a check for NaN does: an exporter has no
numbers, and is told which way a call with usual ones went."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from traceback import extract_stack
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from encoder_conformance.protocol.findings import Finding, noted
from encoder_conformance.readers.module_target.calling_lines import code_in

Told = bool | int | float

_ASK = frozenset({
    Tensor.__bool__, Tensor.__float__, Tensor.__int__, Tensor.__index__, Tensor.item, Tensor.is_nonzero, Tensor.equal,
    Tensor.allclose, torch.is_nonzero, torch.equal, torch.allclose,
})  # fmt: skip
"""Functions that make a truth or a number of Python's of a tensor."""


class _Seen(TorchFunctionMode):
    """`answers`: the line of each, and what was so there, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = list[tuple[str, Told]]()

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        answer = func(*args, **(kwargs or {}))
        if func in _ASK and isinstance(answer, Told):
            self.answers.append((code_in(extract_stack(), ("torch",)), answer))
        return answer


class BranchesAsTaken(TorchFunctionMode):
    """Answers what is asked of numbers, line by line, as a call of a function of x [*shape] had it. `told`: the lines
    where it did, and what was so there first."""

    def __init__(self, function: Callable[[Tensor], Any], shape: Sequence[int]) -> None:
        super().__init__()
        self.told = dict[str, Told]()
        self._left = dict[str, list[Told]]()
        x, seen = torch.randn(*shape, generator=torch.Generator().manual_seed(0)), _Seen()
        with suppress(Exception), torch.no_grad(), seen:
            function(x)
        for line, answer in seen.answers:
            self._left.setdefault(line, []).append(answer)

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in _ASK:
            line = code_in(extract_stack(), ("torch",))
            if left := self._left.get(line):
                answer = left.pop(0)
                self.told.setdefault(line, answer)
                return answer
        return func(*args, **(kwargs or {}))

    def note(self) -> Finding:
        """Of the branches that it was told of."""
        lines = "; ".join(f"{_said(each)} at {line}" for line, each in self.told.items())
        said = f"it branches on numbers that it computes, and is read as it goes with usual ones: {lines}"
        return noted("branches-on-numbers", said, branches=self.told)


def _said(told: Told) -> str:
    return json.dumps(told) if isinstance(told, bool) else f"{told:.6g}"
