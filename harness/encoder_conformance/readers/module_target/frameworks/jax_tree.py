"""A module on JAX as a function of its parameters, which are the leaves of a tree: what NNX, Linen, Equinox and plain
functions have in common."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from jax.interpreters import partial_eval as pe
from jax.tree_util import keystr, tree_flatten_with_path

from encoder_conformance.protocol.description import Kept
from encoder_conformance.readers.module_target.calling import in_training
from encoder_conformance.readers.module_target.frameworks.jax_widened import widened
from encoder_conformance.readers.module_target.live import (
    Feeds,
    HeldModule,
    LiveModule,
    Seen,
    Signature,
    joined,
    like_x,
)
from encoder_conformance.readers.module_target.parts import Tree as ModuleTree
from encoder_conformance.readers.module_target.parts import calls, walk
from encoder_conformance.readers.module_target.remembering import State, kept_by_function
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.spec.axes import Array

_QUICKLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""Each program runs a few times on small numbers: to optimise it takes half as long again, and saves nothing."""
SEED = 1
"""Of the key that dropout is drawn from, in training."""
Tree = Any
Masks = Mapping[str, jax.Array]
Keep = Callable[[str, str, Any], None]
"""(path of a submodule, "input" or "output", what that takes or gives)."""
Apply = Callable[[Tree, jax.Array, Masks, Keep | None], Any]
"""(tree of parameters, x, masks, who is told of the submodules) → what the module returns."""


class Compiled:
    """A function, compiled once for each shape: step by step each step is compiled, which takes twice as long.

    One that looks at numbers on its way cannot be compiled, and is called as it comes.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self._compiled = function, jax.jit(function, compiler_options=_QUICKLY)
        self._compiles = True

    def __call__(self, *given: Any) -> Any:
        if self._compiles:
            try:
                return self._compiled(*given)
            except (jax.errors.JAXTypeError, jax.errors.JAXIndexError):
                answer = self._function(*given)  # which raises, too, where what it was given is wrong
                self._compiles = False
                return answer
        return self._function(*given)


@dataclass(frozen=True)
class Functional:
    """`parameters`: a tree of arrays. `parts`: for their attributes. `shown`: whether `apply` tells of them.

    A module's copies in every dtype are run by its programs, which are compiled.
    """

    apply: Apply
    parameters: Tree
    signature: Signature
    type_name: str
    parts: tuple[object, ...] = ()
    shown: bool = True
    training: Apply | None = None
    """`apply` with dropout on, drawn from one key; None where that is not known."""
    wide: bool = False
    """Whether it computes without narrow formats that it casts to by itself."""
    held: Tree = None
    """What it holds beside its parameters, in a tree of arrays."""
    step: Callable[[Tree, Tree, jax.Array], tuple[Any, Tree]] | None = None
    """(parameters, what is held, x) → what the module returns, and what is held after it; None where it is nothing."""

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

            return jax.vjp(output, tree, feeds["x"])[1](cotangent)

        return Compiled(gradients)

    @cached_property
    def watched(self) -> Callable[[frozenset[str] | None], Compiled]:
        """Paths of parts, None for all → (tree, feeds) → what those take and give, and the output."""
        return cache(lambda only: Compiled(partial(self._seen, only)))

    def _seen(self, only: frozenset[str] | None, tree: Tree, feeds: Tree) -> tuple[dict[Any, jax.Array], jax.Array]:
        """An array of the inside of a mapped or scanned part is refused where all is compiled, which then is not; and
        left out where it is called as it comes."""
        seen: dict[Any, jax.Array]
        if self.wide:
            seen, output = widened(partial(replace(self, wide=False)._seen, only))(tree, feeds)
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
        answer = self.apply(tree, feeds["x"], masks, keep)
        return like_x(answer, feeds["x"], lambda value: isinstance(value, jax.Array))


class JaxModule(HeldModule):
    given_in: tuple[str, ...] = ()
    """What compiled it already."""

    def __init__(self, of: Functional, dtype: str = "float32") -> None:
        found, self._structure = tree_flatten_with_path(of.parameters)
        names = (keystr(path, simple=True, separator=".").lstrip(".") for path, _ in found)
        super().__init__(of.signature, names, (np.asarray(value).astype(dtype) for _, value in found))
        self.of, self.dtype, self.type_name = of, dtype, of.type_name
        self.formats = {name: str(value.dtype) for name, (_, value) in zip(self.names, found, strict=True)}

    @property
    def _program(self) -> Functional:
        """Where it computes in a format of its own, its copies in others compute in theirs."""
        return self.of.widened if self.own_format and self.dtype != self.own_format else self.of

    def call(self, feeds: Feeds) -> Array:
        with wide(self.dtype):
            return np.asarray(self._program.forward(self._tree(), _arrays(feeds)))

    def backward(self, feeds: Feeds, cotangent: Array) -> tuple[Array, Array]:
        """The gradients by x, in one shape with the cotangent, and by all elements of its parameters, [n]."""
        with wide(self.dtype):
            by_tree, by_x = self._program.backward(self._tree(), _arrays(feeds), jnp.asarray(cotangent))
            return np.asarray(by_x), joined(map(np.asarray, jax.tree.leaves(by_tree)))

    def in_training(self, feeds: Feeds) -> LiveModule:
        if self.of.training is None:
            return super().in_training(feeds)
        of = replace(self.of, apply=self.of.training, shown=False)
        with wide(self.dtype):
            traced = str(jax.make_jaxpr(of.output)(self._tree(), _arrays(feeds)))
        if not any(drawn in traced for drawn in ("random_bits", "threefry", "rng_bit_generator")):
            raise NotImplementedError  # and nothing of it is compiled
        made = JaxModule(of, self.dtype)
        made.assign(self.flat())
        return made

    def kept(self, feeds: Feeds) -> Kept | None:
        """Of what it holds beside its parameters: each call begins with what was held when it was given."""
        held, structure = tree_flatten_with_path(self.of.held)
        if self.of.step is None or not held:
            return None
        inner, names = self.of.step, [keystr(path, simple=True, separator=".") for path, _ in held]

        def step(values: State, feeds: Feeds) -> tuple[Array, State]:
            given = jax.tree.unflatten(structure, [jnp.asarray(values[name]) for name in names])
            answer, after = inner(self._tree(), given, jnp.asarray(feeds["x"]))
            output = like_x(answer, feeds["x"], lambda value: isinstance(value, jax.Array))
            return np.asarray(output), dict(zip(names, map(np.asarray, jax.tree.leaves(after)), strict=True))

        values = (np.asarray(value) for _, value in held)
        return kept_by_function(step, dict(zip(names, values, strict=True)), feeds)

    def watched(self, feeds: Feeds, only: frozenset[str] | None = None) -> tuple[Seen, Array]:
        if not self.of.shown:
            return {}, self.call(feeds)
        with wide(self.dtype):
            seen, output = self._program.watched(only)(self._tree(), _arrays(feeds))
            return {place: np.asarray(value) for place, value in seen.items()}, np.asarray(output)

    def _tree(self) -> Tree:
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

    def export(self, x_shape: tuple[int, ...]) -> onnx.ModelProto:
        tree = self._tree()
        return exported(lambda x: self._program.output(tree, {"x": x}), x_shape)

    def objects(self) -> Iterator[object]:
        return iter(self.of.parts)


class _StepByStep(JaxModule):
    """A module none of whose functions is compiled."""

    def call(self, feeds: Feeds) -> Array:
        with wide(self.dtype), jax.disable_jit():
            return np.asarray(self._program.output(self._tree(), _arrays(feeds)))


def _arrays(feeds: Feeds) -> dict[str, jax.Array]:
    return {name: jnp.asarray(value) for name, value in feeds.items()}


def exported(function: Callable[[jax.Array], jax.Array], x_shape: tuple[int, ...]) -> onnx.ModelProto:
    """Exports by jax2onnx what JAX traces: it has forms of its own for functions of libraries, and not for all choices.

    Raises ExecutionError if it is not installed.
    """
    try:
        from jax2onnx import to_onnx
    except ImportError:
        raise ExecutionError("jax2onnx is not installed") from None
    given = jax.ShapeDtypeStruct(x_shape, jnp.float32)
    program, held = _needed(jax.make_jaxpr(function)(given))
    model: onnx.ModelProto = to_onnx(lambda x: jax.core.eval_jaxpr(program, held, x)[0], [given])
    return model


def _needed(traced: Any) -> tuple[Any, list[Any]]:
    """The program of x without what its result does not need, and its constants: a compiled part is given its random
    keys, which no exporter takes, though it draws nothing."""
    program, needed, _ = pe.dce_jaxpr_consts(traced.jaxpr, [True] * len(traced.jaxpr.outvars), instantiate=True)
    return program, [constant for constant, is_needed in zip(traced.consts, needed, strict=True) if is_needed]


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

    def apply(tree: Tree, x: jax.Array, masks: Masks, keep: Keep | None) -> Any:
        """The answer to x [B, S, D] and masks, as the module takes them."""
        live, (by_place, by_name) = made(tree), signature.given(x, masks)
        call = partial(live, *by_place, **by_name)
        return calls(parts, live, keep, call) if keep else call()

    def training(tree: Tree, x: jax.Array, masks: Masks, _: Keep | None) -> Any:
        """The answer to x [B, S, D] and masks, in training."""
        told = in_training(module.__call__, jax.random.key(SEED))
        by_place, by_name = signature.given(x, {**told, **masks})
        return trained(tree)(*by_place, **by_name)

    kind, inside = type(module), tuple(part for _, part in walk(parts, module))
    name = f"{kind.__module__}.{kind.__qualname__}"
    return Functional(apply, parameters, signature, name, inside, training=training)


def batched(functional: Functional) -> Functional:
    """The function itself where it takes x [3, 5, d_model]; else it takes one item [S, D], as most modules of Equinox,
    and is mapped over the batch, as are its masks."""
    sizes = [size for leaf in jax.tree.leaves(functional.parameters) for size in np.shape(leaf)]

    def plain(tree: Tree, x: jax.Array) -> Any:
        return functional.apply(tree, x, {}, None)

    for width in sorted(set(sizes), key=sizes.count, reverse=True):
        try:
            answer = jax.eval_shape(plain, functional.parameters, jnp.zeros((3, 5, width)))
        except Exception:  # whatever it does with a shape that is not its own
            continue
        if any(np.shape(leaf) == (3, 5, width) for leaf in jax.tree.leaves(answer)):
            return functional

    def apply(tree: Tree, x: jax.Array, masks: Masks, keep: Keep | None) -> Any:
        """The answers to x [B, S, D] and masks, item by item."""
        return jax.vmap(lambda x, masks: functional.apply(tree, x, masks, keep))(x, masks)

    def training(tree: Tree, x: jax.Array, masks: Masks, _: Keep | None) -> Any:
        """The answer to x [B, S, D] and masks, in training."""
        assert functional.training is not None
        trained = functional.training
        return jax.vmap(lambda x, masks: trained(tree, x, masks, None))(x, masks)

    return replace(functional, apply=apply, shown=False, training=functional.training and training)
