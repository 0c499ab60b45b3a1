"""What a module of PyTorch computes inside: each operator that it calls, in which part, and what that gives."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves

from encoder_conformance.impls.bases.torch_module.tensors import to_numpy
from encoder_conformance.protocol.steps import TracedStep, most_shown, of_parameters
from encoder_conformance.readers.module_target.frameworks.torch_dispatch import SeesOperators
from encoder_conformance.spec.axes import Array


class Operators(SeesOperators):
    """Records the operators that are called, of tensors that are given and of those that are made of them."""

    def __init__(self, most: int) -> None:
        """`most`: elements of the largest value of parameters alone that is shown."""
        super().__init__()
        self._most, self._constant = most, set[str]()
        self.steps: list[TracedStep] = []
        self.values: dict[str, Array] = {}
        self.parts: list[str] = []
        self._names: dict[int, str] = {}
        self._held: list[Tensor] = []
        """Every tensor that has a name: the number of one that is gone would be another's."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        answer = func(*args, **(kwargs or {}))
        takes = tuple(self._names[id(each)] for each in tree_leaves((args, kwargs)) if id(each) in self._names)
        operator = func.overloadpacket.__name__
        made_by = f"{self.parts[-1]}: {operator}" if self.parts and self.parts[-1] else operator
        for each in tree_leaves(answer):
            if isinstance(each, Tensor):
                self._note(each, TracedStep(value="", made_by=made_by, takes=takes, operator=operator))
        return answer

    def give(self, tensor: Tensor, name: str, kind: Literal["input", "parameter"]) -> None:
        """Notes what is there before the call."""
        self._note(tensor, TracedStep(value="", made_by=f"{kind} {name!r}", takes=(), given=kind))

    def _note(self, tensor: Tensor, made: TracedStep) -> None:
        number = str(len(self.steps))
        step = made.model_copy(update={"value": number})
        self.steps.append(step)
        self._names[id(tensor)] = number
        self._held.append(tensor)
        if is_constant := of_parameters(step, self._constant):
            self._constant.add(number)
        is_shown = not is_constant or tensor.numel() <= self._most
        if is_shown and tensor.is_floating_point():  # a copy: one that is written into later shows what it is now
            self.values[number] = to_numpy(tensor.detach()).copy()


@contextmanager
def told_parts(module: nn.Module, operators: Operators) -> Iterator[None]:
    """While a part of the module is called, its path is known."""

    def entering(path: str) -> Callable[..., None]:
        return lambda _module, _given: operators.parts.append(path)

    def leaving(_module: nn.Module, _given: Any, _answer: Any) -> None:
        operators.parts.pop()

    with ExitStack() as entered:
        for path, part in module.named_modules():
            for hook in (part.register_forward_pre_hook(entering(path)), part.register_forward_hook(leaving)):
                entered.callback(hook.remove)
        yield


@contextmanager
def _in_parts() -> Iterator[None]:
    """Attention and whole layers are not computed by one operator each, which shows nothing of its inside."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def traced(module: nn.Module, tensors: dict[str, Tensor]) -> tuple[list[TracedStep], dict[str, Array]]:
    """The steps of a call, and the values of floating-point numbers by the number of their step."""
    own = [*module.named_parameters(), *module.named_buffers()]
    operators = Operators(most_shown(tensor.numel() for _, tensor in own))
    for name, tensor in tensors.items():
        operators.give(tensor, name, "input")
    for path, tensor in own:
        operators.give(tensor, path, "parameter")
    with torch.no_grad(), told_parts(module, operators), _in_parts(), operators:
        module(**tensors)
    return operators.steps, operators.values
