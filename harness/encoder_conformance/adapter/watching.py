"""Watches the modules of an adapter on PyTorch while it answers: what they are given, and what comes back.

Nothing is imported: an adapter that has not imported PyTorch has no modules.
"""

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

from encoder_conformance.adapter.base import Adapter

FAR = {"float64": 1e-6, "float32": 2e-2}
"""A distance of two outputs or gradients, of their size, that is no rounding: kernels sum views in another order."""
View = Callable[[Any], Any]


class WrongInMemory(Exception):
    """The sentence about what is wrong with a layer, and does not cross the wire."""


class WrittenInto(WrongInMemory):
    """A layer writes into what it was given."""


class Watch:
    """Watches the outermost calls of the adapter's modules: what they are given, and what comes back to their output.

    `view`: made of the gradient that comes back, and goes on in its place. `detached`: x goes in without a gradient.
    `laid`: made of each tensor that is given, and goes in in its place.
    """

    def __init__(
        self, adapter: Adapter, view: View | None = None, laid: View | None = None, *, detached: bool = False
    ) -> None:
        self._torch: Any = sys.modules["torch"]
        self._view, self._laid, self._detached, self._depth, self._hooks = view, laid, detached, 0, ExitStack()
        self._modules = {id(part): part for value in vars(adapter).values() for part in self._parts(value)}
        self.given: list[tuple[str, Any, Any]] = []
        """Name, tensor, and what it was."""
        self.outputs: list[Any] = []
        self.seen = False
        """Whether a gradient came back."""

    def __enter__(self) -> "Watch":
        for part in self._modules.values():
            self._hooks.enter_context(part.register_forward_pre_hook(self._enter, with_kwargs=True))
            self._hooks.enter_context(part.register_forward_hook(self._leave, with_kwargs=True, always_call=True))
        return self

    def __exit__(self, *_: object) -> None:
        self._hooks.close()

    def _parts(self, held: Any) -> Iterator[Any]:
        """Every module in it. The inside of a compiled one would be compiled anew where a hook is."""
        if isinstance(held, self._torch.nn.Module) and not isinstance(held, self._torch.jit.ScriptModule):
            yield held
            held = () if hasattr(held, "_orig_mod") else list(held.children())
        for each in held if isinstance(held, (list, tuple)) else held.values() if isinstance(held, dict) else ():
            yield from self._parts(each)

    def refuse_written(self) -> None:
        """Raises WrittenInto for the first tensor that is other than it was."""
        for name, tensor, was in self.given:
            if not self._torch.equal(tensor.detach(), was):
                raise WrittenInto(f"it writes into {name}, which the caller goes on with")

    def _enter(self, module: Any, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        self._depth += 1
        if self._depth > 1 or self.outputs:  # a part, or what is computed again on the way back
            return None
        given = tuple(self._as_it_goes_in(each) for each in given)
        named = {name: self._as_it_goes_in(each) for name, each in named.items()}
        for name, each in _arguments(module, given, named):
            if isinstance(each, self._torch.Tensor):
                self.given.append((name, each, each.detach().clone()))
        return given, named

    def _leave(self, module: Any, given: Any, named: Any, answer: Any) -> None:
        self._depth -= 1
        if self._depth or self.outputs:
            return
        values = answer if isinstance(answer, (tuple, list)) else (answer,)
        self.outputs += [each for each in values if isinstance(each, self._torch.Tensor)][:1]
        if self.outputs and self.outputs[0].requires_grad:
            self.outputs[0].register_hook(self._back)

    def _back(self, gradient: Any) -> Any:
        self.seen = True
        onward = gradient if self._view is None else self._view(gradient)
        self.given.append(("the incoming gradient", onward, onward.detach().clone()))
        return None if self._view is None else onward

    def _as_it_goes_in(self, value: Any) -> Any:
        if not isinstance(value, self._torch.Tensor):
            return value
        value = value.detach() if self._detached else value
        return value if self._laid is None else self._laid(value)


def _arguments(module: Any, given: tuple[Any, ...], named: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The arguments of a call, each by its name."""
    names = [*inspect.signature(module.forward).parameters]
    yield from zip([*names, *map(str, range(len(names), len(given)))], given, strict=False)
    yield from named.items()
