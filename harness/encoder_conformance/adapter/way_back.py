"""What no golden of gradients shows, of an adapter whose layer is a torch.nn.Module: asked in the worker, once a layer.

How an incoming gradient lies in memory, and what is written into, does not cross the wire. Nothing is imported: an
adapter that has not imported PyTorch is asked nothing.
"""

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np

from encoder_conformance.adapter.base import Adapter, Tensors
from encoder_conformance.adapter.masks import Array, Masks
from encoder_conformance.adapter.request import RunRequest

_LARGEST = 1 << 12
"""Elements of x: a small question shows as much."""
_FAR = {"float64": 1e-6, "float32": 2e-2}
"""A distance of two gradients, of their size, that is no rounding: kernels sum views in another order."""
_FLOOR = 1e-2
"""The least size of a gradient, of all together: that by the key's bias is rounding alone."""
View = Callable[[Any], Any]


class WrongWayBack(Exception):
    """The sentence about what is wrong with the way back of a layer."""


class WayBack:
    """The adapter of one worker, and of which layers it was asked."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter, self.layer, self.asked = adapter, "", set[tuple[str, str]]()

    def run(self, check: str, x: Array, masks: Masks, run: RunRequest, cotangent: Array | None) -> Tensors:
        """The adapter's answer. Raises WrongWayBack, where a layer that is asked so for the first time shows it.

        The answer is of a run that nothing watches: PyTorch leaves its fast paths where a hook is.
        """
        answer = self.adapter.run_check(check, x, masks, run, cotangent)
        key = self.layer, check
        if "torch" not in sys.modules or x.size > _LARGEST or run.mode != "eval" or key in self.asked:
            return answer
        if check == "output":
            self.asked.add(key)
            with _Watch(self.adapter) as watch:
                self.adapter.output(x, masks, run)
            watch.refuse_written()
        elif check == "gradients" and cotangent is not None and cotangent.dtype.name in _FAR:
            far = _FAR[cotangent.dtype.name]
            plain, seen = self._viewed(lambda: self.adapter.gradients(x, masks, run, cotangent), _as_it_is, _as_it_is)
            repeats = seen and not _apart(answer, plain, far)
            if repeats or not seen:  # else it is NaN, or random, of which its own answer tells; or there is no module
                self.asked.add(key)
            if repeats:
                self._ask(plain, lambda: self.adapter.gradients(x, masks, run, cotangent), far)
        return answer

    def _ask(self, plain: Tensors, gradients: Callable[[], Tensors], far: float) -> None:
        """`plain`: the gradients themselves."""
        torch = sys.modules["torch"]
        for words, values, view in (
            ("lies transposed in a larger tensor", _as_it_is, _transposed_part),
            ("is one number, expanded, as behind sum()", torch.ones_like, lambda g: g.reshape(-1)[:1].expand(g.shape)),
        ):
            right, _ = self._viewed(gradients, values, _as_it_is)
            try:
                found, _ = self._viewed(gradients, values, view)
            except WrongWayBack:
                raise
            except Exception as error:
                line = str(error).partition("\n")[0]
                text = f"an incoming gradient that {words} is refused: {type(error).__name__}: {line}"
                raise WrongWayBack(text) from error
            if text := _apart(right, found, far):
                raise WrongWayBack(
                    f"where the incoming gradient {words}, {text} off what the same numbers in a row give: the way "
                    "back reads it as contiguous"
                )
        self._ask_without_x(plain, gradients, far)

    def _viewed(self, gradients: Callable[[], Tensors], values: View, view: View) -> tuple[Tensors, bool]:
        """The gradients of such values that lie so, and whether a gradient came back to a module at all."""
        with _Watch(self.adapter, lambda g: view(values(g).detach().clone())) as watch:
            found = gradients()
        watch.refuse_written()
        return found, watch.seen

    def _ask_without_x(self, right: Tensors, gradients: Callable[[], Tensors], far: float) -> None:
        said = "its gradient is lost where x needs none, as in a first layer"
        with _Watch(self.adapter, detached=True) as watch:
            try:
                found = gradients()
            except Exception as error:
                if watch.outputs and not watch.outputs[0].requires_grad:
                    raise WrongWayBack(f"{said}: the output has none to go back from") from error
                return  # an adapter that has to have the gradient by x
        by_parameters = {name: value for name, value in right.items() if name not in ("x", "memory")}
        if text := _apart(by_parameters, found, far):
            raise WrongWayBack(f"{said}: {text} off")


class _Watch:
    """Watches the outermost calls of the adapter's modules: what they are given, and what comes back to their output.

    `view`: made of the gradient that comes back, and goes on in its place. `detached`: x goes in without a gradient.
    """

    def __init__(self, adapter: Adapter, view: View | None = None, *, detached: bool = False) -> None:
        self._torch: Any = sys.modules["torch"]
        self._view, self._detached, self._depth, self._hooks = view, detached, 0, ExitStack()
        self._modules = {id(part): part for value in vars(adapter).values() for part in self._parts(value)}
        self.given: list[tuple[str, Any, Any]] = []
        """Name, tensor, and what it was."""
        self.outputs: list[Any] = []
        self.seen = False
        """Whether a gradient came back."""

    def __enter__(self) -> "_Watch":
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
        """Raises WrongWayBack for the first tensor that is other than it was."""
        for name, tensor, was in self.given:
            if not self._torch.equal(tensor.detach(), was):
                raise WrongWayBack(f"it writes into {name}, which the caller goes on with")

    def _enter(self, module: Any, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        self._depth += 1
        if self._depth > 1 or self.outputs:  # a part, or what is computed again on the way back
            return None
        if self._detached:
            given = tuple(self._without_gradient(each) for each in given)
            named = {name: self._without_gradient(each) for name, each in named.items()}
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

    def _without_gradient(self, value: Any) -> Any:
        return value.detach() if isinstance(value, self._torch.Tensor) else value


def _arguments(module: Any, given: tuple[Any, ...], named: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The arguments of a call, each by its name."""
    names = [*inspect.signature(module.forward).parameters]
    yield from zip([*names, *map(str, range(len(names), len(given)))], given, strict=False)
    yield from named.items()


def _as_it_is(g: Any) -> Any:
    return g


def _transposed_part(g: Any) -> Any:
    """[B, S, D], whose numbers lie as [S + 1, B, D + 3] does."""
    larger = g.new_full((g.shape[1] + 1, g.shape[0], *g.shape[2:-1], g.shape[-1] + 3), 7.0)
    part = larger[1:, ..., 2:-1].transpose(0, 1)
    part.copy_(g)
    return part


def _apart(right: Mapping[str, Array], found: Mapping[str, Array], far: float) -> str:
    """Says which gradient is farthest off, and how far; "" where none is."""
    sizes = {name: float(np.linalg.norm(value)) for name, value in right.items()}
    least = _FLOOR * max(sizes.values(), default=0.0) or 1.0
    for name, value in right.items():
        distance = float(np.linalg.norm(found[name] - value)) / max(sizes[name], least)
        if not distance <= far:
            return f"that by {name} is {distance:.2g} of its size"
    return ""
