"""The way back of PyTorch: by views of an incoming gradient, without a gradient of x, and what is written into."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from encoder_conformance.impls.bases.torch_module.gradients import gradients
from encoder_conformance.impls.bases.torch_module.tensors import to_numpy, to_tensor
from encoder_conformance.protocol.findings import SourceLine, said_at
from encoder_conformance.protocol.way_back import WayBackAnswer, WayBackQuestion
from encoder_conformance.readers.module_target.errors import error_line
from encoder_conformance.readers.module_target.frameworks.torch_state import write_into
from encoder_conformance.readers.module_target.live import Feeds
from encoder_conformance.spec.axes import Array

Call = Callable[[Tensor, Mapping[str, Tensor]], Tensor]
"""(x, masks) → the output, in the shape of x."""
_FAR = {torch.float64: 1e-6, torch.float32: 2e-2}
"""A distance that is no rounding: kernels sum views in another order."""
_FLOOR = 1e-2
"""The least size of a gradient, of all together: that by the key's bias is rounding alone."""


def _transposed(g: Tensor) -> Tensor:
    return g.transpose(0, 1).contiguous().transpose(0, 1)


def _features_first(g: Tensor) -> Tensor:
    return g.transpose(-1, -2).contiguous().transpose(-1, -2)


def _part(g: Tensor) -> Tensor:
    larger = g.new_full((g.shape[0] + 1, *g.shape[1:-1], g.shape[-1] + 3), 7.0)
    part = larger[1:, ..., 2:-1]
    part.copy_(g)
    return part


def _item(g: Tensor) -> Tensor:
    return torch.stack([torch.full_like(g, 7.0), g])[1]


def _one_vector(g: Tensor) -> Tensor:
    return g.reshape(-1, g.shape[-1])[0].clone().expand(g.shape)


def _one_number(g: Tensor) -> Tensor:
    return g.new_ones(()).expand(g.shape)


VIEWS: Mapping[WayBackQuestion, Mapping[str, Callable[[Tensor], Tensor]]] = {
    "transposed-gradient": {
        "lies transposed, positions before items": _transposed,
        "lies transposed, features before positions": _features_first,
    },
    "sliced-gradient": {
        "is a part of a larger tensor, as behind torch.cat": _part,
        "begins inside of a larger tensor, as behind torch.stack": _item,
    },
    "expanded-gradient": {
        "is one vector, expanded over all positions": _one_vector,
        "is one number, expanded, as behind sum()": _one_number,
    },
}
"""Question → how the incoming gradient lies, and how it is made of one that lies in a row."""


@dataclass(frozen=True)
class TorchWayBack:
    """A module in eval mode that is asked; `feeds`: x and masks."""

    module: nn.Module
    call: Call
    feeds: Feeds
    cotangent: Array

    def answers(self) -> Iterator[WayBackAnswer]:
        right, again = self._found(self._seed()), self._found(self._seed())
        distance, _ = self._distance(right, again)
        if distance > self._far:
            text = f"two equal questions got gradients that are {distance:.2g} of their size apart, so no other was put"
            yield WayBackAnswer(name="transposed-gradient", outcome="not-asked", distance=distance, message=text)
            return
        for name, views in VIEWS.items():
            yield self._of_views(name, views)
        yield self._without_gradient_of_x(right)

    def written(self) -> WayBackAnswer:
        """Whether x, masks and the incoming gradient are, to the bit, what they were."""
        names = self._written(backward=False) or self._written(backward=True)
        if not names:
            return WayBackAnswer(name="written-into", outcome="pass")
        found = self._write_into(names[0])
        text = f"it writes into {' and '.join(names)}, which the caller goes on with{said_at(found)}"
        return _failed("written-into", text).model_copy(update={"source": _line_of(found)})

    def _write_into(self, name: str) -> str:
        """What writes into an input in a call, and where; "" for what is written on the way back, or unseen."""
        x, masks = self._inputs(grad=False)
        with suppress(Exception), torch.no_grad():
            return write_into({"x": x, **masks}[name], lambda: self.call(x, masks))
        return ""

    def _written(self, *, backward: bool) -> list[str]:
        (x, masks), seed = self._inputs(grad=backward), self._seed()
        with torch.set_grad_enabled(backward):
            output = self.call(x, masks)
        forward = list(_changed({"x": x, **masks}, self.feeds))
        if forward or not backward:
            return forward
        gradients(self._wanted(x), output, seed)
        changed = _changed({"x": x, **masks, "": seed}, {**self.feeds, "": self.cotangent})
        return [f"{name or 'the incoming gradient'} on the way back" for name in changed]

    def _of_views(self, name: WayBackQuestion, views: Mapping[str, Callable[[Tensor], Tensor]]) -> WayBackAnswer:
        largest = 0.0
        for words, view in views.items():
            seed = view(self._seed())
            right = self._found(seed.clone(memory_format=torch.contiguous_format))
            try:
                found = self._found(seed)
            except Exception as error:  # whatever the way back does with a view
                return _failed(name, f"an incoming gradient that {words} is refused: {error_line(error)}")
            distance, by = self._distance(right, found)
            if distance > self._far:
                text = (
                    f"where the incoming gradient {words}, that by {by} is {distance:.2g} of its size off what the "
                    "same numbers in a row give: the way back reads it as contiguous"
                )
                return _failed(name, text, distance)
            largest = max(largest, distance)
        return WayBackAnswer(name=name, outcome="pass", distance=largest)

    def _without_gradient_of_x(self, right: Mapping[str, Tensor]) -> WayBackAnswer:
        said = "its gradient is lost where x needs none, as in a first layer"
        x, masks = self._inputs(grad=False)
        try:
            with torch.enable_grad():
                output = self.call(x, masks)
            if not output.requires_grad:
                return _failed("x-without-gradient", f"{said}: the output has none to go back from", 1.0)
            found = dict(zip(self._names()[1:], gradients(self._wanted(x)[1:], output, self._seed()), strict=True))
        except Exception as error:  # whatever the way back does without x
            return _failed("x-without-gradient", f"{said}: {error_line(error)}", 1.0)
        distance, by = self._distance({name: right[name] for name in found}, found)
        if distance > self._far:
            return _failed("x-without-gradient", f"{said}: that by {by} is {distance:.2g} of its size off", distance)
        return WayBackAnswer(name="x-without-gradient", outcome="pass", distance=distance)

    def _found(self, seed: Tensor) -> dict[str, Tensor]:
        x, masks = self._inputs(grad=True)
        with torch.enable_grad():
            output = self.call(x, masks)
        return dict(zip(self._names(), gradients(self._wanted(x), output, seed), strict=True))

    def _inputs(self, *, grad: bool) -> tuple[Tensor, dict[str, Tensor]]:
        torch.manual_seed(0)
        tensors = {name: to_tensor(np.ascontiguousarray(value)) for name, value in self.feeds.items()}
        return tensors.pop("x").requires_grad_(grad), tensors

    def _seed(self) -> Tensor:
        return to_tensor(np.ascontiguousarray(self.cotangent))

    def _wanted(self, x: Tensor) -> list[Tensor]:
        return [x, *self.module.parameters()]

    def _names(self) -> list[str]:
        return ["x", *(name for name, _ in self.module.named_parameters())]

    @property
    def _far(self) -> float:
        return _FAR[to_tensor(self.cotangent[:0]).dtype]

    def _distance(self, right: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> tuple[float, str]:
        """The largest distance of a gradient, of its size, and by what that is."""
        sizes = {name: float(value.norm()) for name, value in right.items()}
        least = _FLOOR * max(sizes.values(), default=0.0) or 1.0
        apart = {name: float((found[name] - value).norm()) / max(sizes[name], least) for name, value in right.items()}
        worst = max(apart, key=lambda name: np.nan_to_num(apart[name], nan=np.inf))
        return float(np.nan_to_num(apart[worst], nan=np.inf)), worst


def _line_of(found: str) -> SourceLine | None:
    """Of `add_ in layer.py:12, forward: x += 1`."""
    place = re.search(r" in (\S+:\d+),", found)
    return SourceLine.of(place[1]) if place else None


def _changed(tensors: Mapping[str, Tensor], given: Feeds) -> Iterator[str]:
    for name, tensor in tensors.items():
        if to_numpy(tensor.detach()).tobytes() != np.ascontiguousarray(given[name]).tobytes():
            yield name


def _failed(name: WayBackQuestion, message: str, distance: float | None = None) -> WayBackAnswer:
    return WayBackAnswer(name=name, outcome="fail", distance=distance, message=message)
