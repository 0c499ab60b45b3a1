"""What a module of PyTorch holds beside its parameters: buffers, and attributes that are no modules."""

import inspect
import re
import sys
import traceback
from collections.abc import Callable, Container, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from encoder_conformance.platform.paths import PACKAGE
from encoder_conformance.readers.module_target.frameworks.torch_dispatch import SeesOperators
from encoder_conformance.readers.module_target.live import HeldState

_OWN = frozenset(vars(nn.Module()))
"""Attributes that every module has."""
_DEEPEST = 4
_FOREIGN = str(Path(torch.__file__).parent), str(PACKAGE.resolve())
"""Folders whose frames are not the user's."""
_ASSIGNS = r"([-+*/|&@%]|//|\*\*|<<|>>)?=(?!=)"
_CHANGES = r"\.(append|extend|insert|update|setdefault|pop|clear|add)\("
_OF_SEVERAL = r"^\s*\(?[\w\s.,*\[\]]*\.{}\b[\w\s.,*\[\]]*\)?\s*=(?!=)"
_WRITTEN = _OF_SEVERAL + r"|\.{}\b(\[[^\]]*\])*\s*(" + _ASSIGNS + "|" + _CHANGES + ")"
"""An assignment to an attribute of this name or into it, or to several together; or a method that changes a container
there."""


class TorchState(HeldState):
    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._held = {path: _copied(held[name]) for path, held, name in _places(module)}

    def changed(self) -> tuple[str, ...]:
        now = {path: held[name] for path, held, name in _places(self._module)}
        paths = dict.fromkeys((*now, *self._held))
        return tuple(
            path
            for path in paths
            if path not in now or path not in self._held or not _same(now[path], self._held[path], _DEEPEST)
        )

    def restore(self) -> None:
        for path, held, name in list(_places(self._module)):
            if path not in self._held:
                del held[name]
            elif not _same(held[name], self._held[path], _DEEPEST):
                held[name] = _copied(self._held[path])


def _places(module: nn.Module) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Each buffer and attribute: its path, where it lies, and its name there."""
    for prefix, part in module.named_modules():
        attributes = {name: None for name, value in vars(part).items() if name not in _OWN and _is_state(value)}
        for held, names in ((part._buffers, list(part._buffers.keys())), (vars(part), list(attributes))):
            for name in names:
                yield f"{prefix}.{name}" if prefix else name, held, name


def _is_state(value: Any) -> bool:
    return not isinstance(value, (nn.Module, nn.Parameter, type, ModuleType, FunctionType, MethodType))


def _copied(value: Any) -> Any:
    """A copy of it: of what cannot be copied, and of parameters and modules, the same."""
    if not _is_state(value):
        return value
    if isinstance(value, Tensor):
        return value.detach().clone()
    if type(value) in (list, tuple):
        return type(value)(map(_copied, value))
    if type(value) is dict:
        return {key: _copied(each) for key, each in value.items()}
    try:
        copied = deepcopy(value) if _is_plain(value) else value
    except Exception:  # whatever an object does where it is copied
        return value
    # What is not the same as its copy, as a graph of torch.fx, cannot be compared with what it becomes.
    return copied if _same(copied, value, _DEEPEST) else value


def _is_plain(value: Any) -> bool:
    """Whether it is an object of somebody's own class, with attributes, such as a cache."""
    return hasattr(value, "__dict__") and not callable(value)


def _same(one: Any, two: Any, deepest: int) -> bool:
    """Whether they hold the same numbers. Of what has none, and of what lies deeper, nothing is known to differ."""
    if one is two or deepest == 0 or not (_is_state(one) and _is_state(two)):
        return True
    if type(one) is not type(two):
        return False
    if isinstance(one, Tensor):
        if one.shape != two.shape or one.dtype != two.dtype:
            return False
        return bool(torch.equal(one.isnan(), two.isnan()) and torch.equal(one.nan_to_num(), two.nan_to_num()))
    if isinstance(one, Mapping):
        return one.keys() == two.keys() and all(_same(one[key], two[key], deepest - 1) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(two) and all(map(_same, one, two, [deepest - 1] * len(one)))
    if isinstance(one, (bool, int, float, complex, str)):
        return bool(one == two)
    return not _is_plain(one) or _same(vars(one), vars(two), deepest)


def written_by(module: nn.Module, path: str, call: Callable[[], object]) -> str:
    """What changes the buffer or attribute of this path in a call, and where: `add_ in layer.py:12: self.n += 1`; ""
    where neither its storage nor its name tells."""
    prefix, _, name = path.rpartition(".")
    part = module.get_submodule(prefix)
    value = getattr(part, name, None)
    if isinstance(value, Tensor) and (found := write_into(value, call)):
        return found
    return _assigned(part, name, _run_by(call))


def write_into(tensor: Tensor, call: Callable[[], object]) -> str:
    """The first operator of a call that writes into a tensor, and where, as of `written_by`; "" where none is seen."""
    writes = _Writes(tensor)
    with writes:
        call()
    return writes.found


class _Writes(SeesOperators):
    """Notes the first operator that writes into a tensor, or a view of it, and the user's line that calls it."""

    def __init__(self, tensor: Tensor) -> None:
        super().__init__()
        self._storage, self.found = tensor.untyped_storage().data_ptr(), ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for declared, value in zip(func._schema.arguments, args, strict=False):
            written = declared.alias_info is not None and declared.alias_info.is_write
            if written and isinstance(value, Tensor) and value.untyped_storage().data_ptr() == self._storage:
                self.found = self.found or f"{func.overloadpacket.__name__}{_user_line()}"
        return func(*args, **(kwargs or {}))


def _user_line() -> str:
    for frame in reversed(traceback.extract_stack()):
        if not frame.filename.startswith((*_FOREIGN, "<")):
            return f" in {Path(frame.filename).name}:{frame.lineno}, {frame.name}: {frame.line}"
    return ""


def _run_by(call: Callable[[], object]) -> set[CodeType]:
    """The code of the functions that a call runs."""
    run, before = set[CodeType](), sys.getprofile()
    sys.setprofile(lambda frame, event, argument: run.add(frame.f_code))
    try:
        call()
    finally:
        sys.setprofile(before)
    return run


def _assigned(part: nn.Module, name: str, run: Container[CodeType]) -> str:
    """The line of its class that assigns to the attribute, but for those that make it: of what was `run`, if any does,
    for others may only set it back."""
    found = list(_assignments(part, name))
    return next((line for code, line in found if code in run), next((line for _, line in found), ""))


def _assignments(part: nn.Module, name: str) -> Iterator[tuple[CodeType, str]]:
    """Each function of its class that assigns to the attribute, and where."""
    for kind in type(part).__mro__:
        functions = (inspect.unwrap(each) for each in vars(kind).values() if isinstance(each, FunctionType))
        methods = [each for each in functions if isinstance(each, FunctionType)]
        for method in methods if kind is not nn.Module else ():
            try:
                lines, first = inspect.getsourcelines(method)
            except (OSError, TypeError):
                continue
            for number, line in enumerate(lines, first):
                if method.__name__ != "__init__" and re.search(_WRITTEN.replace("{}", re.escape(name)), line):
                    file = Path(inspect.getfile(method)).name
                    yield method.__code__, f"{file}:{number}, {method.__name__}: {line.strip()}"
