"""What a module of PyTorch computes inside: each operator that it calls, in which part, and what that gives."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves

from encoder_conformance.impls.bases.torch_module.tensors import to_numpy
from encoder_conformance.protocol.steps import TracedStep
from encoder_conformance.readers.module_target.frameworks.torch_dispatch import SeesOperators
from encoder_conformance.readers.module_target.noted_steps import StepsOfObjects
from encoder_conformance.spec.axes import Array


class _Operators(SeesOperators):
    """Records the operators that are called, of tensors that are given and of those that are made of them."""

    def __init__(self, noted: StepsOfObjects) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._noted = noted

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        answer = func(*args, **(kwargs or {}))
        part = self.parts[-1] if self.parts else ""
        made = [each for each in tree_leaves(answer) if isinstance(each, Tensor)]
        self._noted.called(func.overloadpacket.__name__, part, tree_leaves((args, kwargs)), made)
        return answer


@contextmanager
def _told_parts(module: nn.Module, operators: _Operators) -> Iterator[None]:
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


def _numbers(tensor: Tensor) -> Array | None:
    """A copy: a tensor that is written into later shows what it is now."""
    return to_numpy(tensor.detach()).copy() if tensor.is_floating_point() else None


def traced(module: nn.Module, tensors: Mapping[str, Any]) -> tuple[list[TracedStep], dict[str, Array]]:
    """The steps of a call with arguments by name, and the values of floating-point numbers by the number of their
    step."""
    own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return traced_call(lambda: module(**tensors), module, own, tensors)


def traced_call(
    call: Callable[[], object], module: Any, parameters: Mapping[str, Tensor], tensors: Mapping[str, Any]
) -> tuple[list[TracedStep], dict[str, Array]]:
    """As `traced`, of whatever calls the module with its `parameters` and, as inputs, `tensors`. The parts of what is
    no nn.Module are not told."""
    noted = StepsOfObjects((each.numel() for each in parameters.values()), Tensor.numel, _numbers)
    operators = _Operators(noted)
    for name, value in tensors.items():
        for each in tree_leaves(value):
            if isinstance(each, Tensor):
                noted.give(each, name, "input")
    for path, tensor in parameters.items():
        noted.give(tensor, path, "parameter")
    with ExitStack() as entered:
        entered.enter_context(torch.no_grad())
        if isinstance(module, nn.Module):
            entered.enter_context(_told_parts(module, operators))
        entered.enter_context(_in_parts())
        entered.enter_context(operators)
        call()
    return noted.steps, noted.values
