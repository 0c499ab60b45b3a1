"""Flax Linen: nn.Module, by itself, bound to its variables, or in a pair with them."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from inspect import ismethod
from itertools import chain, islice
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.errors import ModifyScopeVariableError

from encoder_conformance.readers.module_target.argument_names import WIDTH, feed_forward_last
from encoder_conformance.readers.module_target.arranging import Arrangement
from encoder_conformance.readers.module_target.bundles import ReadOf, unpacked
from encoder_conformance.readers.module_target.calling import (
    in_training,
    is_of_evaluation,
    refuse_uncalled,
    signature_of,
)
from encoder_conformance.readers.module_target.errors import BadTarget, last_frames, mending, places_of
from encoder_conformance.readers.module_target.frameworks.jax_framework import JaxFramework, pair_of
from encoder_conformance.readers.module_target.frameworks.jax_tree import (
    ARRAYS,
    SEED,
    Called,
    Functional,
    JaxModule,
    Keep,
)
from encoder_conformance.readers.module_target.furthest import Reached
from encoder_conformance.readers.module_target.lengths import LENGTHS, lengths_said
from encoder_conformance.readers.module_target.live import USUAL_WIDTHS, LiveModule, Signature
from encoder_conformance.readers.module_target.parts import Tree
from encoder_conformance.readers.module_target.probing import AS_MUCH, to_be_said
from encoder_conformance.readers.module_target.returned import OtherShape
from encoder_conformance.readers.module_target.supplies import ToldOf
from encoder_conformance.readers.module_target.told import with_told
from encoder_conformance.readers.module_target.ways_to_call import ways_to_call
from encoder_conformance.readers.onnx_file.interface.probe_runs import BATCH, SEQUENCE

_HOLDING = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.Dense, nn.DenseGeneral)
"""Linen's own modules that hold parameters by what they were given in a layer."""
_MOST_WAYS = 60
"""Ways to call a module that are tried to make its variables."""
_MOST_LONG = 2
"""Those that are tried at each other length."""
_OF_SEQUENCE = re.compile(rf"\b{SEQUENCE}\b")
"""What stands in a problem that is about the number of positions."""
_OTHERWISE_MADE = "name a pair of the module and its variables, or a function that makes one"


class _Problem(NamedTuple):
    """What a call raised, and how far it came."""

    reached: Reached
    said: str
    mend: str = ""
    gives_another: bool = False
    """Whether it came to its end, and gave another shape than that of x."""


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
    signature = _call_of(unbound)
    for shape in (*((3, 5, width) for width in _widths(unbound)), (3, 5)):
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
        signature = _call_of(unbound)
        return unbound, _initialised(unbound, with_told(signature, told(signature.x)))

    def call_of(self, module: Any) -> tuple[Callable[..., Any], int]:
        return _split(module)[0].__call__, 0

    def live(self, module: Any) -> LiveModule:
        unbound, variables = _split(module)
        kind, signature = type(unbound), _call_of(unbound)
        if variables is None:
            variables = _initialised(unbound, signature)
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

        name, parts = f"{kind.__module__}.{kind.__qualname__}", tuple(_modules(unbound))
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


def _call_of(module: nn.Module) -> Signature:
    refuse_uncalled(module)
    return signature_of(module.__call__, f"{type(module).__name__}.__call__")


def _initialised(module: nn.Module, signature: Signature) -> Mapping[str, Any]:
    """Its variables, for the first width that it takes and gives, called in the first way that it takes: with its
    masks, too, where it does not do without. x has another number of positions where what it raises for 5 is about
    them. Raises BadTarget, with what is raised where it comes furthest."""
    problems: list[_Problem] = []
    lengths = dict.fromkeys((*lengths_said(_modules(module)), *LENGTHS))
    for length, most in ((SEQUENCE, _MOST_WAYS), *((each, _MOST_LONG) for each in lengths)):
        if length != SEQUENCE and not any(_OF_SEQUENCE.search(each.said) for each in problems):
            break
        if (variables := _variables_of(module, signature, length, most, problems)) is not None:
            return variables
        bundled = _bundled(module, signature) if length == SEQUENCE else None
        if bundled and (variables := _variables_of(module, bundled, length, most, problems)) is not None:
            return variables
    best = problems[0] if problems else _Problem(Reached(), "it has none")
    for each in problems:
        best = each if each.reached.is_beyond(best.reached) else best
    hint = AS_MUCH if best.gives_another else to_be_said(signature, _OTHERWISE_MADE)
    raise BadTarget(f"it cannot be initialised with x [3, 5, d_model]: {best.said}", best.mend or hint)


def _variables_of(
    module: nn.Module, signature: Signature, length: int, most: int, problems: list[_Problem]
) -> Mapping[str, Any] | None:
    """Its variables for an x of this length; None where it takes none in `most` ways. `problems` are told what it
    raises."""
    for way, width in _ways_and_widths(module, signature, most):
        x = jnp.zeros((3, length, width), jnp.float32)
        made = partial(_made, module, replace(signature, arrangement=way))
        try:
            jax.eval_shape(made, x)
        except jax.errors.JAXTypeError:  # where numbers decide, which are not known
            pass
        except Exception as error:  # whatever a module does with what is not its own
            problems.append(_problem_of(error))
            continue
        try:
            variables = made(x)
        except Exception as error:
            problems.append(_problem_of(error))
            continue
        if variables.get("params"):
            return variables
    return None


def _bundled(module: nn.Module, signature: Signature) -> Signature | None:
    """How it is called where it takes x out of a mapping or a tuple; None where it is none such."""
    for width in _widths(module):
        asked = ReadOf(jnp.zeros((BATCH, SEQUENCE, width), jnp.float32), attributes=False)
        try:
            module.init(jax.random.key(0), asked)
        except Exception as error:  # whatever a module does with a mapping of nothing
            if found := unpacked(str(error), signature.arrangement):
                return replace(signature, arrangement=found)
        if found := asked.keys_for(signature.arrangement):
            return replace(signature, arrangement=found)
    return None


def _ways_and_widths(module: nn.Module, signature: Signature, most: int) -> list[tuple[Arrangement, int]]:
    """The likeliest first. What stands beside x has its width most often, and a map takes what has any other, of which
    its variables are then made."""
    widths = list(_widths(module))
    ways = (islice(ways_to_call(signature, widths, missed, keys=True), most) for missed in ((), signature.masks))

    def is_of_another(way: Arrangement, width: int) -> bool:
        return any(each.kind == "condition" and each.number != width for each in way.beside.values())

    every = [(way, width) for way in chain.from_iterable(ways) for width in widths]
    return sorted(every, key=lambda each: is_of_another(*each))


def _problem_of(error: Exception) -> _Problem:
    if isinstance(error, OtherShape):
        return _Problem(Reached(), str(error), gives_another=True)
    return _Problem(Reached(places_of(error)), last_frames(error), mending(error, nn.Module))


def _made(module: nn.Module, signature: Signature, x: jax.Array) -> Mapping[str, Any]:
    """The variables of a module that gives something of the shape of x."""
    variables: dict[str, Any] = {}

    def called(*given: Any, **named: Any) -> Any:
        answer, made = module.init_with_output(jax.random.key(0), *given, **named)
        variables.update(made)
        return answer

    signature.called(called, x, {}, ARRAYS)
    return variables


def _widths(module: nn.Module) -> Iterable[int]:
    """Widths of x: what its configuration calls so, then the numbers among its fields and those of its parts, the
    largest first, and d_ff last."""
    held = [each for part in _modules(module) for each in vars(part).items()]
    fields = [each for each in held if _is_size(each[1])]
    said = [size for _, value in held for name, size in _kept_in(value) if WIDTH.fullmatch(name) and _is_size(size)]
    return feed_forward_last(fields, [*said, *sorted((size for _, size in fields), reverse=True)], USUAL_WIDTHS)


def _is_size(value: object) -> bool:
    return type(value) is int and value > 1


def _kept_in(value: object) -> Iterable[tuple[str, Any]]:
    """What a field that is a configuration has by name, as a mapping or an object of plain attributes."""
    if isinstance(value, Mapping):
        return [(str(name), each) for name, each in value.items()]
    plain = hasattr(value, "__dict__") and not (isinstance(value, (type, nn.Module)) or callable(value))
    return vars(value).items() if plain else ()


def _modules(module: nn.Module) -> Iterator[nn.Module]:
    yield module
    for name in module.__dataclass_fields__:
        value = getattr(module, name, None)
        if name != "parent" and isinstance(value, nn.Module):
            yield from _modules(value)


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
