"""Finds the layers in a PyTorch model that runs: by its residual sums, whatever its classes are called.

A residual sum adds to a value what matrices made of it. A layer is the smallest part that mixes positions and has two
of them; one, where attention and feed-forward network stand side by side.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from traceback import extract_stack
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from encoder_conformance.readers.module_target.calling_lines import code_in
from encoder_conformance.readers.module_target.frameworks.torch_dispatch import SeesOperators

_MAPS = {"mm", "addmm", "bmm", "baddbmm", "convolution", "linear", "matmul", "_grouped_mm", "mkldnn_rnn_layer"}
_PRODUCTS = {"bmm", "baddbmm", "mm", "matmul"}
_SHAPING = {"view", "_unsafe_view", "reshape", "expand", "permute", "transpose", "t", "squeeze", "unsqueeze", "roll"}
_TAKING = {"slice", "alias", "clone", "_to_copy", "contiguous", "detach", "select", "split", "unbind"}
_PLAIN = {*_SHAPING, *_TAKING, "native_dropout", "mul"}
"""Operators behind which a value is still the same one for a sum, in another shape, format or size."""


@dataclass(frozen=True)
class _Value:
    """A value of a run. Sets of values are the bits of a number: those it was computed from, those of them from which a
    matrix made it, and those that it still is."""

    above: int
    mapped: int
    carried: int


@dataclass(eq=False)
class _Call:
    """One call of a part. `sums`: its residual sums; `mixes`: whether positions are mixed in it; `keeps`: whether it
    gives as many positions and features as it takes: a part that pools them is no layer."""

    path: str
    outer: "_Call | None"
    sums: int = 0
    mixes: bool = False
    keeps: bool = True
    inner: list["_Call"] = field(default_factory=list)


class ResidualSum(NamedTuple):
    """A residual sum, its line, as `model.py:12: x = x + self.attend(x)`, and its shape."""

    line: str
    shape: torch.Size


class _Recording(SeesOperators):
    """Records what is computed of what, and in which part."""

    def __init__(self) -> None:
        super().__init__()
        self.call = self.whole = _Call("", None)
        self.sums_at = list[ResidualSum]()
        """Each residual sum, in order."""
        self._values: dict[int, tuple[Tensor, _Value]] = {}
        self._count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answer = func(*args, **(kwargs or {}))
        self._note(func._schema.name.rpartition("::")[2].rstrip("_"), [*_tensors(args)], [*_tensors((answer,))])
        return answer

    def _note(self, name: str, given: list[Tensor], made: list[Tensor]) -> None:
        """What is made of weights alone is none of the values."""
        known = [self._values[id(each)][1] for each in given if id(each) in self._values]
        if not known:
            return
        mixing = any(word in name for word in ("attention", "softmax", "fft"))
        if mixing or (name in _PRODUCTS and len(known) > 1):
            self._in_calls("mixes")
        above, mapped = (reduce(or_, (getattr(each, key) for each in known), 0) for key in ("above", "mapped"))
        carried = 0
        if name in _MAPS or "attention" in name:
            mapped |= above
        elif name in _PLAIN and known:
            carried = known[0].carried
        elif name in ("add", "addcmul") and len(known) > 1 and given[0].shape == given[-1].shape == made[0].shape:
            carried = self._carried(known)
            if carried:
                self._in_calls("sums")
                self.sums_at.append(ResidualSum(code_in(extract_stack(), ("torch",)), made[0].shape))
        self.take(made, _Value(above, mapped, carried))

    def take(self, made: Iterable[Tensor], value: _Value = _Value(0, 0, 0)) -> None:
        """Count these among the values: by itself as what the model is given."""
        for each in made:
            own = 1 << self._count
            self._count += 1
            self._values[id(each)] = each, _Value(value.above | own, value.mapped, value.carried | own)

    def _carried(self, known: list[_Value]) -> int:
        """What one of them still is of which a matrix made another; 0 for none: it is no residual sum."""
        return next(
            (one.carried for one in known for other in known if one is not other and one.carried & other.mapped), 0
        )

    def _in_calls(self, what: str) -> None:
        call: _Call | None = self.call
        while call is not None:
            setattr(call, what, getattr(call, what) + 1 if what == "sums" else True)
            call = call.outer


def layers_in(module: nn.Module, run: Callable[[], Any]) -> list[str]:
    """The paths of the layers that `run` calls, in the order in which it does; "" where the module is one itself."""
    with _recorded(module) as recording, torch.no_grad():
        run()
    return list(dict.fromkeys(call.path for call in _layers(recording.whole)))


def may_hold_layer(module: nn.Module, run: Callable[[], Any]) -> bool:
    """Whether `run` mixes positions in the module, and computes a residual sum."""
    with _recorded(module) as recording, torch.no_grad():
        run()
    return recording.whole.mixes and recording.whole.sums > 0


def sums_in(module: nn.Module, run: Callable[[], Any]) -> list[ResidualSum]:
    """Each residual sum that `run` computes in the module."""
    with _recorded(module) as recording, torch.no_grad():
        run()
    return recording.sums_at


def _layers(call: _Call) -> list[_Call]:
    """The smallest calls in this one that are of layers, or this one."""
    found = [layer for each in call.inner for layer in _layers(each)]
    return found or ([call] if _is_layer(call) else [])


def _is_layer(call: _Call) -> bool:
    """A call in which no smaller one is a layer's."""
    if not call.keeps:
        return False
    if call.sums > 1:
        return call.mixes and not _side_by_side(call)
    return call.mixes and call.sums == 1 and _is_alone(call)


def _side_by_side(call: _Call) -> bool:
    """Whether it is nothing but layers, each of them with one sum."""
    inner = [each for each in call.inner if each.sums]
    return call.sums == sum(each.sums for each in inner) and all(each.mixes and each.sums == 1 for each in inner)


def _is_alone(call: _Call) -> bool:
    """Whether a part with one sum is a layer by itself: those around it have as few, or are several like it."""
    outer = call.outer
    while outer is not None and outer.sums == 1:
        outer = outer.outer
    return outer is None or _side_by_side(outer)


@contextmanager
def _recorded(module: nn.Module) -> Iterator[_Recording]:
    recording = _Recording()

    def enter(part: nn.Module, given: Any, path: str) -> None:
        call = _Call(path, recording.call)
        recording.call.inner.append(call)
        recording.call = call

    def leave(part: nn.Module, given: Any, answer: Any) -> None:
        recording.call.keeps = _keeps(given, answer)
        recording.call = recording.call.outer or recording.whole

    def begin(part: nn.Module, given: Any, named: Any) -> None:
        recording.take(_tensors((*given, *named.values())))

    def end(part: nn.Module, given: Any, answer: Any) -> None:
        recording.whole.keeps = _keeps(given, answer)

    hooks = [module.register_forward_pre_hook(begin, with_kwargs=True), module.register_forward_hook(end)]
    for path, part in module.named_modules():
        if path and not isinstance(part, torch.jit.ScriptModule):
            hooks.append(part.register_forward_pre_hook(lambda part, given, path=path: enter(part, given, path)))
            hooks.append(part.register_forward_hook(leave))
    try:
        with recording:
            yield recording
    finally:
        for hook in hooks:
            hook.remove()


def _keeps(given: Any, answer: Any) -> bool:
    """Whether something of the answer has the shape of what is given first."""
    shapes = [each.shape for each in _tensors(given)]
    return not shapes or shapes[0] in [each.shape for each in _tensors((answer,))]


def _tensors(values: Any) -> Iterator[Tensor]:
    for each in values:
        if isinstance(each, Tensor):
            yield each
        elif isinstance(each, Mapping):
            yield from _tensors(each.values())
        elif isinstance(each, (list, tuple)):
            yield from _tensors(each)
