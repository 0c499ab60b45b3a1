"""The parameters of a model that what it gives one of its layers, beside x, is made of."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

Made = Callable[[], Mapping[str, Any]]
"""What the model gives beside x, made anew."""
_MOST = 8
"""Of more than so many what is given is no table, but made of what the model has computed before."""

_LARGEST = 1 << 17
"""Elements: a table by distance has fewer, and a large model's matrices, which need not be copied, have more."""


def parameters_beside(model: nn.Module, layer: nn.Module, made: Made) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of those of the model that what it gives is made of: of all of them, and of those that get no gradient
    of it. One that the model keeps from training, beside others that it trains, is a constant of it, as a table of
    sinusoids is."""
    known = {id(value) for value in layer.parameters()}
    trained = any(value.requires_grad for value in model.parameters())
    others = {
        name: value
        for name, value in model.named_parameters()
        if id(value) not in known and (value.requires_grad or not trained)
    }
    for value in others.values():
        value.requires_grad_(True)
    traced = _by_gradient(others, made)
    tables = {name: value for name, value in others.items() if name not in traced and value.numel() <= _LARGEST}
    silent = _by_moving(tables, made)
    found = {*traced, *silent}
    return tuple(name for name in others if name in found), tuple(silent)


def _by_gradient(others: Mapping[str, Tensor], made: Made) -> list[str]:
    with torch.enable_grad():
        given = [each for each in leaves(made()) if each.requires_grad]
        if not (given and others):
            return []
        found = torch.autograd.grad([each.sum() for each in given], [*others.values()], allow_unused=True)
    return [name for name, gradient in zip(others, found, strict=True) if gradient is not None]


def _by_moving(others: Mapping[str, Tensor], made: Made) -> list[str]:
    """Those that change what is given, and by which it has no gradient: it was made where none is kept."""
    before = _numbers(made)
    if not before:
        return []

    def changing(names: Sequence[str]) -> list[str]:
        with _moved([others[name] for name in names]):
            now = _numbers(made)
        if not names or (len(now) == len(before) and all(map(torch.equal, now, before))):
            return []
        middle = len(names) // 2
        return list(names) if len(names) == 1 else [*changing(names[:middle]), *changing(names[middle:])]

    try:
        found = changing([*others])
    except Exception:  # whatever the model does with other parameters
        return []
    return found if len(found) <= _MOST else []


def _numbers(made: Made) -> list[Tensor]:
    with torch.no_grad():
        return [each.clone() for each in leaves(made()) if each.is_floating_point()]


@contextmanager
def _moved(values: Sequence[Tensor]) -> Iterator[None]:
    kept = [value.detach().clone() for value in values]
    with torch.no_grad():
        for value in values:
            value.add_(1)
    try:
        yield
    finally:
        with torch.no_grad():
            for value, own in zip(values, kept, strict=True):
                value.copy_(own)


def leaves(values: Any) -> Iterator[Tensor]:
    """The tensors in what is given, however it is nested."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, Mapping):
        for each in values.values():
            yield from leaves(each)
    elif isinstance(values, (list, tuple)):
        for each in values:
            yield from leaves(each)
