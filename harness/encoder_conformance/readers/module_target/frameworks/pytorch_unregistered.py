"""Finds the weights that a PyTorch module holds and does not register: in lists, mappings, objects and closures."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

_DEEPEST = 4
"""Containers in one another that are looked through."""
_MOST = 512
_OWN = frozenset(vars(nn.Module()))
"""Attributes that every module has."""


@dataclass(frozen=True)
class HeldTensor:
    """A tensor of floats by attribute path. `shared`: a copy of the module has the same one, as that of a closure."""

    path: str
    value: Tensor
    shared: bool

    @property
    def is_weight(self) -> bool:
        return isinstance(self.value, nn.Parameter)

    def changes(self, output: Callable[[], Tensor], right: Tensor) -> bool:
        """Whether an output that was `right` depends on it. It is afterwards as it was."""
        before = self.value.detach().clone()
        with torch.no_grad():
            self.value.copy_(torch.sin(torch.arange(before.numel())).reshape(before.shape))
            try:
                return not torch.equal(output(), right)
            finally:
                self.value.copy_(before)


def unregistered(module: nn.Module) -> list[HeldTensor]:
    """The weights and other tensors that are none of its parameters and buffers, each once."""
    known = {id(value) for value in (*module.parameters(), *module.buffers())}
    found = []
    for each in islice(_held(module), _MOST):
        if id(each.value) not in known and each.value.is_floating_point() and each.value.numel() > 1:
            known.add(id(each.value))
            found.append(each)
    return found


def _held(module: nn.Module) -> Iterator[HeldTensor]:
    seen = {id(each) for each in module.modules()}
    for prefix, part in module.named_modules():
        for name, value in vars(part).items():
            if name not in _OWN:
                yield from _inside(value, f"{prefix}.{name}" if prefix else name, seen, _DEEPEST)


def _inside(value: Any, path: str, seen: set[int], deepest: int) -> Iterator[HeldTensor]:
    if isinstance(value, Tensor):
        yield HeldTensor(path, value, shared=False)
    elif id(value) not in seen and deepest > 0:
        seen.add(id(value))
        if isinstance(value, nn.Module):
            yield from (HeldTensor(f"{path}.{name}", each, shared=False) for name, each in value.named_parameters())
            yield from (replace(each, path=f"{path}.{each.path}") for each in _held(value))
        for name, part in _parts(value):
            for each in _inside(part, f"{path}{name}", seen, deepest - 1):
                yield replace(each, shared=each.shared or isinstance(value, FunctionType))


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What a container, a function or an object holds, and how it is got at."""
    if isinstance(value, Mapping):
        yield from ((f"[{key!r}]", each) for key, each in value.items())
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from ((f"[{number}]", each) for number, each in enumerate(value))
    elif isinstance(value, partial):
        yield from (("", each) for each in (value.func, value.args, value.keywords))
    elif isinstance(value, MethodType):
        yield "", value.__self__
    elif isinstance(value, FunctionType):
        yield from ((f", its variable {name}", each) for name, each in inspect.getclosurevars(value).nonlocals.items())
    elif hasattr(value, "__dict__") and not isinstance(value, (type, ModuleType, nn.Module)):
        yield from ((f".{name}", each) for name, each in vars(value).items())
