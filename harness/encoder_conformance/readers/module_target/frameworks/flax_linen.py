"""Flax Linen: nn.Module, by itself, bound to its variables, or in a pair with them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from inspect import ismethod
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.errors import ModifyScopeVariableError

from encoder_conformance.readers.module_target.calling import (
    in_training,
    is_of_evaluation,
)
from encoder_conformance.readers.module_target.frameworks.jax_framework import JaxFramework, pair_of
from encoder_conformance.readers.module_target.frameworks.jax_tree import (
    SEED,
    Called,
    Functional,
    JaxModule,
    Keep,
)
from encoder_conformance.readers.module_target.frameworks.linen_made import (
    call_of,
    initialised,
    modules_in,
    variables_of_ids,
    widths_of_x,
)
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.parts import Tree
from encoder_conformance.readers.module_target.supplies import ToldOf
from encoder_conformance.readers.module_target.told import with_told
from encoder_conformance.readers.module_target.whole import WholeModule

_HOLDING = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.Dense, nn.DenseGeneral)
"""Linen's own modules that hold parameters by what they were given in a layer."""


class _Part(tuple[nn.Module, Mapping[str, Any]]):
    """A submodule and its variables. `every`: all of the module that was called, by their paths in it."""

    path: tuple[str, ...]
    every: Mapping[tuple[str, ...], "_Part"]


class _Parts:
    """Submodules of Linen come into being in a call: it is called, in shapes alone, and they are noted."""

    def children(self, module: Any) -> Mapping[str, Any]:
        path, every = (module.path, module.every) if isinstance(module, _Part) else ((), _called(module))
        return {other[-1]: part for other, part in every.items() if other[:-1] == path}

    def is_container(self, module: Any) -> bool:
        return type(_module_of(module)).__name__ == "Sequential"

    def matrices(self, module: Any) -> int:
        return sum(np.ndim(leaf) >= 2 for leaf in jax.tree.leaves(FRAMEWORK.arrays(module)))


def _told(keep: Keep) -> AbstractContextManager[Any]:
    """`keep` is told what each submodule takes and gives."""

    def intercept(call: Callable[..., Any], given: Any, named: Any, context: Any) -> Any:
        answer = call(*given, **named)
        if context.method_name == "__call__" and context.module.path:
            keep(".".join(context.module.path), "input", given)
            keep(".".join(context.module.path), "output", answer)
        return answer

    told: AbstractContextManager[Any] = nn.intercept_methods(intercept)
    return told


def _called(module: Any) -> Mapping[tuple[str, ...], _Part]:
    """Its submodules by their paths, in the order in which they are called. Empty if it takes neither x nor ids."""
    unbound, variables = _split(module)
    signature = call_of(unbound)
    for shape in (*((3, 5, width) for width in widths_of_x(unbound)), (3, 5)):
        x = jnp.zeros(shape, jnp.float32 if len(shape) == 3 else jnp.int32)
        found: dict[tuple[str, ...], nn.Module] = {}

        def note(call: Callable[..., Any], given: Any, named: Any, context: Any) -> Any:
            if context.method_name == "__call__" and context.module.path:
                found.setdefault(context.module.path, context.module.clone(parent=None, name=None))  # noqa: B023
            return call(*given, **named)

        try:
            held = variables or unbound.init(jax.random.key(0), x, **signature.fixed)
            with nn.intercept_methods(note):
                jax.eval_shape(lambda x: unbound.apply(held, x, **signature.fixed), x)  # noqa: B023
        except Exception:  # whatever a module does with inputs that are not its own
            continue
        every: dict[tuple[str, ...], _Part] = {}
        for path, part in found.items():
            every[path] = _Part((part, {name: _at(tree, path) for name, tree in held.items()}))
            every[path].path, every[path].every = path, every
        return every
    return {}


def _at(tree: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        tree = tree.get(name, {})
    return tree


class _Linen(JaxFramework):
    name = "Flax Linen"
    packages = ("flax", "jax")
    tree: Tree = _Parts()

    def owns(self, found: object) -> bool:
        return isinstance(_module_of(found), nn.Module)

    def refuse_unfit(self, module: Any) -> None:
        """Its variables are made when it is first called."""

    def arrays(self, module: Any) -> Any:
        return (_split(module)[1] or {}).get("params", {})

    def built(self, module: Any, told: ToldOf) -> Any:
        unbound, variables = _split(module)
        if variables is not None:
            return module
        signature = call_of(unbound)
        return unbound, initialised(unbound, with_told(signature, told(signature.x)))

    def call_of(self, module: Any) -> tuple[Callable[..., Any], int]:
        return _split(module)[0].__call__, 0

    def whole(self, module: Any) -> WholeModule:
        """Of a model whose variables are not made yet, and which takes ids, with those that it makes of them."""
        unbound, variables = _split(module)
        of_ids = variables_of_ids(unbound, call_of(unbound)) if variables is None else None
        return super().whole(module if of_ids is None else (unbound, of_ids))

    def live(self, module: Any) -> LiveModule:
        unbound, variables = _split(module)
        kind, signature = type(unbound), call_of(unbound)
        if variables is None:
            variables = initialised(unbound, signature)
        rest = {name: tree for name, tree in variables.items() if name not in ("params", "intermediates")}

        def bind(tree: Any, keep: Keep | None) -> Called:
            """The module with these parameters. What it writes is written in vain."""
            held = {"params": tree, **rest}

            def called(*given: Any, **named: Any) -> Any:
                with _told(keep) if keep else nullcontext():
                    try:
                        return unbound.apply(held, *given, **named)
                    except ModifyScopeVariableError:
                        return unbound.apply(held, *given, **named, mutable=list(rest))[0]

            return called

        def step(tree: Any, held: Any, call: Callable[[Called], Any]) -> tuple[Any, Any]:
            """What it returns, and what it holds after it."""
            after: dict[str, Any] = {}

            def called(*given: Any, **named: Any) -> Any:
                answer, written = unbound.apply({"params": tree, **held}, *given, **named, mutable=list(held))
                after.update(written)
                return answer

            return call(called), after

        name, parts = f"{kind.__module__}.{kind.__qualname__}", tuple(modules_in(unbound))
        idle = tuple(_idle_parts(unbound.bind(variables)))
        training = _training(unbound, rest)
        found = Functional(bind, variables["params"], signature, name, parts, idle_parts=idle, training=training)
        return JaxModule(replace(found, held=rest, step=step, told_in_training=in_training(unbound.__call__)))


def _training(unbound: Any, rest: Mapping[str, Any]) -> Callable[[Any], Called]:
    """The module with these parameters, in training."""
    trained = unbound.clone(deterministic=False) if hasattr(unbound, "deterministic") else unbound

    def training(tree: Any) -> Called:
        rngs = {"dropout": jax.random.key(SEED)}
        return partial(trained.apply, {"params": tree, **rest}, rngs=rngs)

    return training


def _pair_of(found: Any) -> Any:
    """The module and its variables, out of whatever holds both: a pair in either order, a functools.partial of its
    `apply`, or what is trained. Whatever else stays."""
    if isinstance(found, partial):
        both = (found.func, *found.args) if is_of_evaluation(found.keywords) else ()
    else:
        both = pair_of(found) or ()
    module = _applied(both[0]) if len(both) == 2 and isinstance(both[1], Mapping) else None
    return found if module is None else (module, both[1])


def _applied(function: Any) -> nn.Module | None:
    """The module whose `apply` it is, compiled or not; a module itself."""
    if isinstance(function, nn.Module):
        return function
    method = function if ismethod(function) else getattr(function, "__wrapped__", function)
    module = getattr(method, "__self__", None)
    return module if isinstance(module, nn.Module) and method.__name__ == "apply" else None


def _module_of(found: object) -> object:
    """The module itself, out of a pair of it and its variables, too."""
    found = _pair_of(found)
    return found[0] if isinstance(found, tuple) and found else found


def _split(module: Any) -> tuple[nn.Module, Mapping[str, Any] | None]:
    module = _pair_of(module)
    if isinstance(module, tuple):
        variables = module[1]
        return module[0], variables if "params" in variables else {"params": variables}
    if module.scope is not None:
        unbound, variables = module.unbind()
        return unbound, variables
    return module, None


def _idle_parts(bound: nn.Module) -> Iterator[str]:
    """The paths of parts that `setup` makes, that hold parameters where they are called, and that hold none."""
    hasattr(bound, "")  # a look for what it has not runs its setup
    for part in [value for name, value in vars(bound).items() if name != "parent" and isinstance(value, nn.Module)]:
        if _holds_parameters(part) and "params" not in part.variables:
            yield ".".join(part.path)
        yield from _idle_parts(part)


def _holds_parameters(part: nn.Module) -> bool:
    """Whether a call of it makes some: a norm without a gain and a shift has none."""
    bare = not getattr(part, "use_scale", True) and not getattr(part, "use_bias", False)
    return isinstance(part, _HOLDING) and not bare


FRAMEWORK = _Linen()
