"""Which of several calls that failed came furthest: the error of that one tells most of what is amiss."""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from encoder_conformance.readers.module_target.arranging import Arrangement
from encoder_conformance.readers.module_target.forms_of_x import Arrays
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.spec.axes import Array


@dataclass(frozen=True)
class Failed:
    """A call that raised: how it was called, with which x, after how many calls inside it raised, and what."""

    arrangement: Arrangement
    x: Array
    calls: int
    problem: str


@dataclass(frozen=True)
class _Counting(Arrangement):
    """Notes how many functions are called before the module answers or raises."""

    counts: list[int] = field(default_factory=list, compare=False)

    def call(
        self, module: Callable[..., Any], x_name: str, x: Any, given: Mapping[str, Any], arrays: Arrays
    ) -> tuple[Any, Any]:
        count, before = 0, sys.getprofile()

        def called(frame: object, event: str, argument: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(called)
        try:
            return super().call(module, x_name, x, given, arrays)
        finally:
            sys.setprofile(before)
            self.counts.append(count)


def furthest(module: LiveModule, tries: Iterable[tuple[Arrangement, Array]]) -> Failed | None:
    """Of these calls that which came furthest, of several the first; None where none of them fails."""
    best: Failed | None = None
    for arrangement, x in tries:
        counts = list[int]()
        held = {each.name: getattr(arrangement, each.name) for each in fields(Arrangement)}
        if (other := module.arranged(_Counting(**held, counts=counts))) is None:
            return None
        try:
            other.run({"x": x})
        except ExecutionError as error:
            calls = sum(counts)
            if best is None or calls > best.calls:
                best = Failed(arrangement, x, calls, str(error))
    return best
