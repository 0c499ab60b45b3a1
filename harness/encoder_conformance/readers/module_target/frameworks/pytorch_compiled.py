"""PyTorch's modules in what they are wrapped in: compiled code, which their copies keep, and the module inside."""

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from types import CellType, FunctionType, MethodType
from typing import Any

import torch
from torch import nn

_COMPILED = "_orig_mod"
_WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)
_RECOMPILED = 256
"""The shapes, masks and formats for which code is compiled; PyTorch calls the eager module after 8 by itself."""


def wrappers(module: nn.Module) -> tuple[str, ...]:
    """What the module or parts of it are called through, the outermost first: compiled code, or copies on devices."""
    found = [type(each).__name__ for each in module.modules() if isinstance(each, _WRAPPERS)]
    found += [f"torch.compile with the backend {_backend(context)}" for _, _, _, context in _compiled(module)]
    return tuple(dict.fromkeys(found))


def inside(module: nn.Module) -> nn.Module:
    """The module in its wrappers. It has the same parameters."""
    dynamo = sys.modules.get("torch._dynamo")  # its import takes as long as PyTorch's, and what is compiled has made it
    compiled = () if dynamo is None else (dynamo.OptimizedModule,)
    while isinstance(module, (*_WRAPPERS, *compiled)):
        module = module.module if isinstance(module, _WRAPPERS) else getattr(module, _COMPILED)
    return module


def plain_name(name: str) -> str:
    """The name of a parameter without the wrappers of parts."""
    return name.replace(f"{_COMPILED}.", "")


def copy_of(module: nn.Module) -> nn.Module:
    """A copy whose parts are compiled as those of the module are, and whose functions are of its own parts: a plain one
    would call the module's own code."""
    found = list(_compiled(module))
    held = (value for part in module.modules() for value in vars(part).values() if isinstance(value, torch.Tensor))
    computed = {id(value): value.detach().clone() for value in held if not value.is_leaf}  # by a hook, as weight_norm's
    memo = {**computed, **{id(context): context for _, _, _, context in found}}
    copied: nn.Module = deepcopy(module, memo)
    for part in copied.modules():
        held_functions = [(name, each) for name, each in vars(part).items() if isinstance(each, FunctionType)]
        vars(part).update({name: _rebound(each, memo) for name, each in held_functions})
    counterparts = dict(zip(map(id, module.modules()), copied.modules(), strict=True))
    for part, name, code, context in found:
        vars(counterparts[id(part)])[name] = context(_code_of(counterparts[id(_owner(code))], code))
    return copied


def _rebound(function: FunctionType, memo: Mapping[int, Any]) -> FunctionType:
    """The function with copies of what its variables are: a function is copied as itself, and minGPT's blocks have one
    of their own parts."""
    cells = [(cell, memo.get(id(held), held)) for cell in function.__closure__ or () for held in _contents(cell)]
    if len(cells) != len(function.__closure__ or ()) or all(held is cell.cell_contents for cell, held in cells):
        return function
    closure = tuple(CellType(held) for _, held in cells)
    made = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, closure)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _contents(cell: CellType) -> tuple[Any, ...]:
    """() of a variable that is not set yet."""
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


def _owner(code: object) -> object:
    """The part whose code it is: of a method, or of a function that PyTorch puts around a module of its own."""
    return code.__self__ if isinstance(code, MethodType) else getattr(code, "__wrapped__", None)


def _code_of(owner: nn.Module, like: Any) -> Any:
    if isinstance(like, MethodType):
        return MethodType(like.__func__, owner)
    return torch._dynamo.external_utils.wrap_inline(owner)


def is_compiled(module: nn.Module) -> bool:
    return any(True for _ in _compiled(module))


def as_given(module: nn.Module) -> AbstractContextManager[Any]:
    """Compiled code is what is called, for each of its shapes, and what cannot be compiled is an error."""
    return compiled_for_each_shape() if is_compiled(module) else nullcontext()


def compiled_for_each_shape() -> AbstractContextManager[Any]:
    """No eager module is called after many shapes."""
    patched: AbstractContextManager[Any] = torch._dynamo.config.patch(
        recompile_limit=_RECOMPILED, accumulated_recompile_limit=_RECOMPILED, fail_on_recompile_limit_hit=True
    )
    return patched


def bare(module: nn.Module) -> AbstractContextManager[Any]:
    """The module's own code is called, and no compiled one."""
    return torch.compiler.set_stance("force_eager") if is_compiled(module) else nullcontext()


def forward_of(module: nn.Module) -> Callable[..., Any]:
    """What has the signature of its forward pass: that of TorchScript is in a schema."""
    own: Callable[..., Any] = module.forward
    if not isinstance(module, torch.jit.ScriptModule):
        return module.__call__ if _has_its_own_call(module) else own

    def forward() -> None: ...

    _, *arguments = module.forward.schema.arguments
    parameters = (
        inspect.Parameter(each.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=each.default_value)
        if each.has_default_value()
        else inspect.Parameter(each.name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        for each in arguments
    )
    forward.__signature__ = inspect.Signature(list(parameters))  # type: ignore[attr-defined]
    return forward


def _has_its_own_call(module: nn.Module) -> bool:
    """Whether its class says in a __call__ of its own what a call takes, and does not hand on whatever it is given."""
    if type(module).__call__ is nn.Module.__call__:
        return False
    parameters = inspect.signature(module.__call__).parameters.values()
    return any(each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in parameters)


def _compiled(module: nn.Module) -> Iterator[tuple[nn.Module, str, Any, Any]]:
    """Each part, its attribute that is the compiled code of a part, that code, and what compiles."""
    parts = {id(each) for each in module.modules()}
    for part in module.modules():
        for name, value in vars(part).items():
            code = getattr(value, "_torchdynamo_orig_callable", None)
            if id(_owner(code)) in parts:
                yield part, name, code, _context(value)


def _context(function: Any) -> Any:
    held = inspect.getclosurevars(function).nonlocals.values()
    return next(each for each in held if isinstance(each, torch._dynamo.eval_frame._TorchDynamoContext))


def _backend(context: Any) -> str:
    found = torch._dynamo.eval_frame.innermost_backend(context.callback)
    return str(getattr(found, "compiler_name", None) or getattr(found, "__name__", type(found).__name__))
