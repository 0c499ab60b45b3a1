"""What no golden shows of an adapter's layer: asked in the worker, once a layer.

How x, masks and an incoming gradient lie in memory, and what is written into, does not cross the wire. Nothing is
imported: the way back is asked of a torch.nn.Module alone, of an adapter that has imported PyTorch.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from encoder_conformance.adapter.base import Adapter, Tensors
from encoder_conformance.adapter.masks import Array, Masks
from encoder_conformance.adapter.request import RunRequest
from encoder_conformance.adapter.views import refuse_reading_in_a_row
from encoder_conformance.adapter.watching import FAR, View, Watch, WrongInMemory

_LARGEST = 1 << 12
"""Elements of x: a small question shows as much."""
_FLOOR = 1e-2
"""The least size of a gradient, of all together: that by the key's bias is rounding alone."""


class WrongWayBack(WrongInMemory):
    """The way back of a layer is wrong."""


class WayBack:
    """The adapter of one worker, and of which layers it was asked."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter, self.layer, self.asked = adapter, "", set[tuple[str, ...]]()

    def run(self, check: str, x: Array, masks: Masks, run: RunRequest, cotangent: Array | None) -> Tensors:
        """The adapter's answer. Raises WrongInMemory, where a layer that is asked so for the first time shows it.

        The answer is of a run that nothing watches: PyTorch leaves its fast paths where a hook is.
        """
        answer = self.adapter.run_check(check, x, masks, run, cotangent)
        if x.size > _LARGEST or run.mode != "eval":
            return answer
        if check == "output" and check in answer:  # an answer without it is refused for that
            self._ask_of_inputs(answer["output"], x, masks, run)
        if check == "output":
            return answer
        key = self.layer, check
        if "torch" not in sys.modules or key in self.asked:
            return answer
        if check == "gradients" and cotangent is not None and cotangent.dtype.name in FAR:
            far = FAR[cotangent.dtype.name]
            plain, seen = self._viewed(lambda: self.adapter.gradients(x, masks, run, cotangent), _as_it_is, _as_it_is)
            repeats = seen and not _apart(answer, plain, far)
            if repeats or not seen:  # else it is NaN, or random, of which its own answer tells; or there is no module
                self.asked.add(key)
            if repeats:
                self._ask(plain, lambda: self.adapter.gradients(x, masks, run, cotangent), far)
        return answer

    def _ask_of_inputs(self, answer: Array, x: Array, masks: Masks, run: RunRequest) -> None:
        """Whether x and masks are written into, and read as they lie: once a layer, and for each kind of masks."""
        given = "padding" * (masks.padding is not None), "attention" * (masks.attention is not None)
        if (key := (self.layer, "output", *given)) not in self.asked:
            self.asked.add(key)
            if "torch" in sys.modules:
                with Watch(self.adapter) as watch:
                    self.adapter.output(x, masks, run)
                watch.refuse_written()
            refuse_reading_in_a_row(self.adapter, answer, x, masks, run)

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
            except WrongInMemory:
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
        with Watch(self.adapter, lambda g: view(values(g).detach().clone())) as watch:
            found = gradients()
        watch.refuse_written()
        return found, watch.seen

    def _ask_without_x(self, right: Tensors, gradients: Callable[[], Tensors], far: float) -> None:
        said = "its gradient is lost where x needs none, as in a first layer"
        with Watch(self.adapter, detached=True) as watch:
            try:
                found = gradients()
            except Exception as error:
                if watch.outputs and not watch.outputs[0].requires_grad:
                    raise WrongWayBack(f"{said}: the output has none to go back from") from error
                return  # an adapter that has to have the gradient by x
        by_parameters = {name: value for name, value in right.items() if name not in ("x", "memory")}
        if text := _apart(by_parameters, found, far):
            raise WrongWayBack(f"{said}: {text} off")


def _as_it_is(g: Any) -> Any:
    return g


def _transposed_part(g: Any) -> Any:
    """[B, S, D], whose numbers lie as [S + 1, B, D + 3] does."""
    larger = g.new_full((g.shape[1] + 1, g.shape[0], *g.shape[2:-1], g.shape[-1] + 3), 7.0)
    part = larger[1:, ..., 2:-1].transpose(0, 1)
    part.copy_(g)
    return part


def _apart(right: Mapping[str, Array], found: Mapping[str, Array], far: float) -> str:
    """Says which gradient is the first that is off, and how far; "" where none is."""
    sizes = {name: float(np.linalg.norm(value)) for name, value in right.items()}
    least = _FLOOR * max(sizes.values(), default=0.0) or 1.0
    for name, value in right.items():
        distance = float(np.linalg.norm(found[name] - value)) / max(sizes[name], least)
        if not distance <= far:
            return f"that by {name} is {distance:.2g} of its size"
    return ""
