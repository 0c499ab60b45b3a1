"""A module on JAX as a function of its parameters, which are the leaves of a tree: what NNX, Linen, Equinox and plain
functions have in common."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from jax.sharding import reshard
from jax.tree_util import keystr, tree_flatten_with_path

from encoder_conformance.protocol.arguments import Layout
from encoder_conformance.protocol.module_description import Kept
from encoder_conformance.readers.module_target.arranging import Arrangement
from encoder_conformance.readers.module_target.calling import in_training
from encoder_conformance.readers.module_target.calling_lines import SoughtLines, line_in
from encoder_conformance.readers.module_target.dropping import said_by
from encoder_conformance.readers.module_target.forms_of_x import Arrays
from encoder_conformance.readers.module_target.frameworks.jax_compiled import Compiled
from encoder_conformance.readers.module_target.frameworks.jax_export import exported
from encoder_conformance.readers.module_target.frameworks.jax_lines import LIBRARIES, LinesByValue, frames_of
from encoder_conformance.readers.module_target.frameworks.jax_steps import beyond
from encoder_conformance.readers.module_target.frameworks.jax_widened import narrow_steps, widened
from encoder_conformance.readers.module_target.live import (
    Feeds,
    HeldModule,
    LiveModule,
    NothingDrawn,
    Seen,
    Signature,
    TakesItems,
    joined,
)
from encoder_conformance.readers.module_target.parts import Tree as ModuleTree
from encoder_conformance.readers.module_target.parts import calls, walk
from encoder_conformance.readers.module_target.remembering import State, kept_by_function
from encoder_conformance.readers.onnx_file.tracing.features import Feature
from encoder_conformance.spec.axes import Array

ITEM = "SD"
"""The form of x of a module that takes one item, and is mapped over the batch, as are its masks."""
SEED = 1
"""Of the key that dropout is drawn from, in training."""
Tree = Any
Masks = Mapping[str, Any]
Keep = Callable[[str, str, Any], None]
"""(path of a submodule, "input" or "output", what that takes or gives)."""
Called = Callable[..., Any]
"""A module with its parameters, as its owner calls it."""


@dataclass(frozen=True)
class Functional:
    """`bind`: (tree of parameters, who is told of the submodules) → the module. `parameters`: a tree of arrays.
    `parts`: for their attributes. `shown`: whether `bind` tells of them.

    A module's copies in every dtype are run by its programs, which are compiled.
    """

    bind: Callable[[Tree, Keep | None], Called]
    parameters: Tree
    signature: Signature
    type_name: str
    parts: tuple[object, ...] = ()
    idle_parts: tuple[str, ...] = ()
    """Those that would hold parameters and made none, since no call reaches them."""
    shown: bool = True
    training: Callable[[Tree], Called] | None = None
    """The module with dropout on, where `told` is given; None where it is not known how."""
    watch: Callable[[Called, Keep], Called] | None = None
    """The same module, which tells of its submodules, whatever it is in; None where `bind` alone knows how."""
    drops: Mapping[str, float] = field(default_factory=dict)
    """Submodule that drops → its rate."""
    told_in_training: Mapping[str, Any] = field(default_factory=dict)
    """The arguments that turn dropout on, and the key that it is drawn from."""
    told: Mapping[str, Any] = field(default_factory=dict)
    """What every call is told."""
    wide: bool = False
    """Whether it computes without narrow formats that it casts to by itself."""
    held: Tree = None
    """What it holds beside its parameters, in a tree of arrays."""
    step: Callable[[Tree, Tree, Callable[[Called], Any]], tuple[Any, Tree]] | None = None
    """(parameters, what is held, who calls the module) → what that returns, and what is held after it."""

    @cached_property
    def widened(self) -> "Functional":
        return replace(self, wide=True)

    @cached_property
    def forward(self) -> Compiled:
        """(tree, feeds) → the output."""
        return Compiled(self.output)

    @cached_property
    def backward(self) -> Compiled:
        """(tree, feeds, cotangent) → the gradients by the tree and by x."""

        def gradients(tree: Tree, feeds: Tree, cotangent: jax.Array) -> Any:
            def output(tree: Tree, x: jax.Array) -> Any:
                return self.output(tree, {**feeds, "x": x})

            answer, pulled_back = jax.vjp(output, tree, feeds["x"])
            lies = jax.typeof(answer).sharding
            return pulled_back(cotangent if jax.typeof(cotangent).sharding == lies else reshard(cotangent, lies))

        return Compiled(gradients)

    @cached_property
    def watched(self) -> Callable[[frozenset[str] | None], Compiled]:
        """Paths of parts, None for all → (tree, feeds) → what those take and give, and the output."""
        return cache(lambda only: Compiled(partial(self.seen, only)))

    def seen(self, only: frozenset[str] | None, tree: Tree, feeds: Tree) -> tuple[dict[Any, jax.Array], jax.Array]:
        """An array of the inside of a mapped or scanned part is refused where all is compiled, which then is not; and
        left out where it is called as it comes."""
        seen: dict[Any, jax.Array]
        if self.wide:
            seen, output = widened(partial(replace(self, wide=False).seen, only))(tree, feeds)
            return seen, output
        seen = {}
        traced = isinstance(feeds["x"], jax.core.Tracer)

        def keep(name: str, side: str, value: Any) -> None:
            if only is None or name in only:
                for index, each in enumerate(value if isinstance(value, (tuple, list)) else (value,)):
                    if isinstance(each, jax.Array) and (traced or not isinstance(each, jax.core.Tracer)):
                        seen[name, side, index] = each

        output = self.output(tree, feeds, keep)
        return seen, output

    def output(self, tree: Tree, feeds: Tree, keep: Keep | None = None) -> Any:
        """The tensor of the answer that has the shape of x."""
        if self.wide:
            return widened(replace(self, wide=False).output)(tree, feeds)
        masks = {name: value for name, value in feeds.items() if name != "x"}
        module = self.bind(tree, keep)
        if self.signature.arrangement.form == ITEM:
            return jax.vmap(lambda x, masks: self.called(module, x[None], masks)[0])(feeds["x"], masks)
        return self.called(module, feeds["x"], masks)

    def called(self, module: Called, x: jax.Array, masks: Masks) -> Any:
        """The output for x [B, S, D]; B is 1 where it takes one item."""
        return self.signature.called(module, x, {**self.told, **masks}, ARRAYS)

    def arranged(self, arrangement: Arrangement) -> "Functional":
        signature = self.signature.arranged(arrangement)
        return replace(self, signature=signature, shown=self.shown and arrangement.form != ITEM)

    def takes(self, x: Array) -> bool:
        """Whether it gives something of the shape of x, as far as shapes alone decide."""
        try:
            jax.eval_shape(self.output, self.parameters, {"x": jnp.asarray(x)})
        except (jax.errors.JAXTypeError, jax.errors.JAXIndexError):
            return True
        except Exception:  # whatever it does with what is not its own
            return False
        return True


class JaxModule(HeldModule):
    may_take_items: TakesItems = "mapped"
    draws_of_keys = True
    given_in: tuple[str, ...] = ()
    """What compiled it already."""

    def __init__(self, of: Functional, dtype: str = "float32") -> None:
        found, self._structure = tree_flatten_with_path(of.parameters)
        names = (keystr(path, simple=True, separator=".").lstrip(".") for path, _ in found)
        super().__init__(of.signature, names, (np.asarray(value).astype(dtype) for _, value in found))
        self.of, self.dtype, self.type_name = of, dtype, of.type_name
        self.idle_parts = of.idle_parts
        self.formats = {name: str(value.dtype) for name, (_, value) in zip(self.names, found, strict=True)}

    @property
    def program(self) -> Functional:
        """Where it computes in a format of its own, its copies in others compute in theirs."""
        return self.of.widened if self.own_format and self.dtype != self.own_format else self.of

    def call(self, feeds: Feeds) -> Array:
        with wide(self.dtype):
            return np.asarray(self.program.forward(self.tree(), arrays(feeds)))

    def backward(self, feeds: Feeds, cotangent: Array) -> tuple[Array, Array]:
        """The gradients by x, in one shape with the cotangent, and by all elements of its parameters, [n]."""
        with wide(self.dtype):
            by_tree, by_x = self.program.backward(self.tree(), arrays(feeds), jnp.asarray(cotangent))
            return np.asarray(by_x), joined(map(np.asarray, jax.tree.leaves(by_tree)))

    def in_training(self, feeds: Feeds) -> LiveModule:
        if self.of.training is None:
            return super().in_training(feeds)
        of = replace(self.of, bind=self._bound_in_training, shown=False, told=self.of.told_in_training)
        with wide(self.dtype):
            traced = str(jax.make_jaxpr(of.output)(self.tree(), arrays(feeds)))
        if not any(drawn in traced for drawn in ("random_bits", "threefry", "rng_bit_generator")):
            raise NothingDrawn  # and nothing of it is compiled
        made = JaxModule(of, self.dtype)
        made.own_format = self.own_format
        made.assign(self.flat())
        return made

    def _bound_in_training(self, tree: Tree, keep: Keep | None) -> Called:
        assert self.of.training is not None
        live = self.of.training(tree)
        return live if keep is None or self.of.watch is None else self.of.watch(live, keep)

    def drops_uncalled(self, feeds: Feeds) -> Mapping[str, float]:
        if self.of.watch is None:
            return {}
        of, called = replace(self.of, bind=self._bound_in_training, told=self.of.told_in_training), set[str]()
        with wide(self.dtype):
            jax.make_jaxpr(lambda tree: of.output(tree, arrays(feeds), lambda path, *_: called.add(path)))(self.tree())
        return {path: rate for path, rate in self.of.drops.items() if path not in called}

    def kept(self, feeds: Feeds) -> Kept | None:
        """Of what it holds beside its parameters: each call begins with what was held when it was given."""
        held, structure = tree_flatten_with_path(self.of.held)
        if self.of.step is None or not held:
            return None
        inner, names = self.of.step, [keystr(path, simple=True, separator=".") for path, _ in held]

        def step(values: State, feeds: Feeds) -> tuple[Array, State]:
            given = jax.tree.unflatten(structure, [jnp.asarray(values[name]) for name in names])
            x = jnp.asarray(feeds["x"])
            output, after = inner(self.tree(), given, lambda module: self.of.called(module, x, {}))
            return np.asarray(output), dict(zip(names, map(np.asarray, jax.tree.leaves(after)), strict=True))

        values = (np.asarray(value) for _, value in held)
        return kept_by_function(step, dict(zip(names, values, strict=True)), feeds)

    def watched(self, feeds: Feeds, only: frozenset[str] | None = None) -> tuple[Seen, Array]:
        if not self.of.shown:
            return {}, self.call(feeds)
        with wide(self.dtype):
            seen, output = self.program.watched(only)(self.tree(), arrays(feeds))
            return {place: np.asarray(value) for place, value in seen.items()}, np.asarray(output)

    def tree(self) -> Tree:
        return jax.tree.unflatten(self._structure, [jnp.asarray(value) for value in self.values])

    def in_dtype(self, dtype: str) -> "JaxModule":
        made = JaxModule(self.of, dtype)
        made.own_format = self.own_format
        if dtype == self.own_format:
            formats = zip(made.names, made.values, strict=True)
            made.values = [value.astype(made.formats[name]) for name, value in formats]
        made.assign(self.flat())
        return made

    @property
    def wrappers(self) -> tuple[str, ...]:
        return self.given_in

    def ways(self) -> Mapping[str, LiveModule]:
        """Whatever it is, it is asked compiled."""
        made = _StepByStep(self.of, self.dtype)
        made.values, made.own_format = self.values, self.own_format
        return {"compiled by jax.jit and step by step": made}

    def arranged(self, arrangement: Arrangement) -> "JaxModule":
        made = JaxModule(self.of.arranged(arrangement), self.dtype)
        made.values, made.own_format, made.given_in = self.values, self.own_format, self.given_in
        return made

    def takes(self, x: Array) -> bool:
        """Before it is compiled, which takes longer than all else."""
        return self.of.takes(x) and super().takes(x)

    def narrow_inside(self, feeds: Feeds) -> Mapping[str, str]:
        """By `dtype` of a module of Flax, or by a cast."""
        program = jax.make_jaxpr(self.program.output)(self.tree(), arrays(feeds)).jaxpr
        steps = reversed([*narrow_steps(program)])  # the first has the last word
        return {name: line_in(frames_of(step), LIBRARIES) or "" for name, step in steps}

    def beyond(self, x: Array, layout: Layout) -> Mapping[Feature, str]:
        return beyond(jax.make_jaxpr(self.program.output)(self.tree(), arrays({"x": x})))

    def export(self, x_shape: tuple[int, ...]) -> onnx.ModelProto:
        tree = self.tree()
        return exported(lambda x: self.program.output(tree, {"x": x}), x_shape)

    def sought_lines(self, model: onnx.ModelProto, x_shape: tuple[int, ...]) -> SoughtLines:
        tree = self.tree()
        return LinesByValue(lambda x: self.program.output(tree, {"x": x}), model, x_shape)

    def lines(self, feeds: Feeds) -> Mapping[str, tuple[str, ...]]:
        """Of the steps that read each, as JAX traced it."""
        tree = self.tree()
        leaves, structure = jax.tree.flatten(tree)
        fed = arrays(feeds)
        program = jax.make_jaxpr(lambda given: self.program.output(jax.tree.unflatten(structure, given), fed))(leaves)
        readers = dict[int, list[str]]()
        for step in program.jaxpr.eqns:
            for read in step.invars:
                readers.setdefault(id(read), []).append(line_in(frames_of(step), LIBRARIES))
        found = zip(self.names, (readers.get(id(each), []) for each in program.jaxpr.invars), strict=True)
        return {name: told for name, lines in found if (told := tuple(filter(None, lines)))}

    def objects(self) -> Iterator[object]:
        return iter(self.of.parts)


class _StepByStep(JaxModule):
    """A module none of whose functions is compiled."""

    def call(self, feeds: Feeds) -> Array:
        with wide(self.dtype), jax.disable_jit():
            return np.asarray(self.program.output(self.tree(), arrays(feeds)))


def _beside(value: Array | jax.Array, x: jax.Array) -> jax.Array:
    """An array of any shape beside x [..., S, D]: numbers in its format."""
    made = jnp.asarray(value)
    if jnp.issubdtype(made.dtype, jnp.complexfloating):
        return made.astype(jnp.complex128 if x.dtype == jnp.float64 else jnp.complex64)
    return made.astype(x.dtype) if jnp.issubdtype(made.dtype, jnp.floating) else made


ARRAYS = Arrays(_beside, lambda value: isinstance(value, jax.Array))


def arrays(feeds: Feeds) -> dict[str, jax.Array]:
    return {name: jnp.asarray(value) for name, value in feeds.items()}


def wide(dtype: str) -> AbstractContextManager[Any]:
    """Computes with numbers of 64 bits for float64 alone: they change what a module computes in others."""
    return jax.enable_x64(True) if dtype == "float64" else nullcontext()


def functional_of(
    module: Any,
    parts: ModuleTree,
    made: Callable[[Tree], Any],
    parameters: Tree,
    signature: Signature,
    trained: Callable[[Tree], Any],
) -> Functional:
    """The function of a module that is an object; `made` gives it other parameters, and `trained` one in training."""

    def watch(live: Called, keep: Keep) -> Called:
        return lambda *by_place, **by_name: calls(parts, live, keep, partial(live, *by_place, **by_name))

    def bind(tree: Tree, keep: Keep | None) -> Called:
        live: Called = made(tree)
        return live if keep is None else watch(live, keep)

    kind, inside = type(module), tuple(part for _, part in walk(parts, module))
    name = f"{kind.__module__}.{kind.__qualname__}"
    told, drops = in_training(module.__call__, jax.random.key(SEED)), said_by(walk(parts, module))[0]
    found = Functional(bind, parameters, signature, name, inside, training=trained)
    return replace(found, told_in_training=told, watch=watch, drops=drops)


def batched(functional: Functional) -> Functional:
    """The function itself where it takes x [3, 5, d_model], or nothing that is tried; else it takes one item [S, D], as
    most modules of Equinox, and is mapped over the batch."""
    sizes = [size for leaf in jax.tree.leaves(functional.parameters) for size in np.shape(leaf)]
    widths = sorted(set(sizes), key=sizes.count, reverse=True)
    by_item = functional.arranged(replace(functional.signature.arrangement, form=ITEM))
    tried = (each for each in (functional, by_item) for width in widths if each.takes(np.zeros((3, 5, width), "f4")))
    return next(tried, functional)
