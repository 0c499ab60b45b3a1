"""What a module of PyTorch fills in a new tensor, and throws away: `scores.masked_fill(…)` for `masked_fill_`."""

import weakref
from collections.abc import Callable, Iterator
from traceback import extract_stack
from typing import Any

from torch import Tensor

from encoder_conformance.protocol.findings import Finding, source_of
from encoder_conformance.readers.module_target.calling_lines import code_in
from encoder_conformance.readers.module_target.frameworks.torch_dispatch import SeesOperators

_FILLS = {"masked_fill", "index_fill", "masked_scatter"}
"""Those that leave what they are given as it is; with an underscore behind their name they change it."""


class _Fills(SeesOperators):
    """Notes what was filled, and is no more when the next operator is called: no name was given to it."""

    def __init__(self) -> None:
        super().__init__()
        self.thrown_away = dict[tuple[str, str], None]()
        self._last: tuple[weakref.ref[Tensor], str, str] | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._last is not None and self._last[0]() is None:
            self.thrown_away[self._last[1:]] = None
        self._last = None
        answer = func(*args, **(kwargs or {}))
        if (name := func.overloadpacket.__name__) in _FILLS:
            self._last = weakref.ref(answer), name, code_in(extract_stack(), ("torch",))
        return answer


def fills_thrown_away(call: Callable[[], object]) -> Iterator[Finding]:
    """A warning for each, as its code is called."""
    fills = _Fills()
    with fills:
        call()
    for name, line in fills.thrown_away:
        message = f"{name} gives a new tensor, which is thrown away: what it was to fill stays as it is ({line})"
        hint = f"take what it gives, as in x = x.{name}(…), or call {name}_"
        about = {"operator": name, **source_of(line)}
        yield Finding(severity="warning", kind="fill-thrown-away", message=message, hint=hint, about=about)
