"""The adapter of a library's layer on JAX: its parameters are a tree, and its call a function, compiled for each shape.

A library says how its block is made and called (`made`), and under which names it holds its parameters.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.tree_util import keystr, tree_flatten_with_path, tree_map_with_path

from encoder_conformance import Adapter, Array, Environment, Fresh, Masks, ParameterMap, Recent, RunRequest, Tensors
from encoder_conformance.impls.bases.jax_layers.process import make_room, set_up

Tree = Any
Key: TypeAlias = jax.Array | None
"""The key that dropout is drawn from; None outside of training."""


@dataclass(frozen=True)
class Block:
    """`fresh` gives the parameters as the library initialises them; `apply` calls the block with x [B, S, D] and a
    mask, [B or 1, H or 1, S or 1, S] and true where a query may attend to a key; `intermediates` calls it so in eval
    mode, and gives what the library shows beside the output, in the form that its own adapter reads."""

    fresh: Callable[[jax.Array], Tree]
    apply: Callable[[Tree, jax.Array, jax.Array | None, Key], Any]
    intermediates: Callable[[Tree, jax.Array, jax.Array | None], Any] | None = None


@dataclass(frozen=True)
class Compiled:
    """A block with its programs, compiled for each shape when that is first asked.

    It holds all that `made` makes of a layer: a block that was kept is not made again when it is asked again."""

    block: Block
    forward: Callable[..., Any]
    backward: Callable[..., Any]
    intermediates: Callable[..., Any] | None
    shapes: Tree
    """The parameters without their numbers."""

    @classmethod
    def of(cls, block: Block) -> "Compiled":
        taken_back = jax.jit(partial(backward, block.apply), static_argnums=0)
        intermediates = None if block.intermediates is None else jax.jit(block.intermediates)
        shapes = jax.eval_shape(block.fresh, jax.random.key(0))
        return cls(block, jax.jit(block.apply), taken_back, intermediates, shapes)


LAYERS_KEPT = 32
"""The number of blocks that keep their programs: a layer that is built again is not compiled again."""


class JaxLayers(Adapter):
    packages: tuple[str, ...]
    """The distributions whose versions the report has, beside JAX's and NumPy's."""
    parameters: ParameterMap
    """The map of the paths in the tree of parameters, joined by dots."""
    heads: int

    def __init__(self) -> None:
        self.compiled = Recent[Compiled](LAYERS_KEPT)

    @abstractmethod
    def made(self, layer: Mapping[str, Any], dtype: str) -> Block:
        """The block of this layer. Raises what the library does for one that cannot be.

        It sets nothing on the adapter, which asks it once for a layer and may build another in between.
        """

    def start(self, device: str, threads: int) -> Environment:
        set_up(device, threads)
        versions = {name: version(name) for name in (*self.packages, "jax", "numpy")}
        return Environment(versions, {"threads": threads, "jax_enable_x64": True, **self.choices})

    def build(self, layer: dict[str, Any], parameters: Tensors, dtype: str) -> Tensors:
        make_room()
        compiled = self.compiled.get((layer, dtype), lambda: Compiled.of(self.made(layer, dtype)))
        self.block, self.forward, self.backward = compiled.block, compiled.forward, compiled.backward
        self.intermediates = compiled.intermediates
        own = self.parameters.to_own(parameters, layer)
        self.params = tree_map_with_path(lambda path, leaf: placed(name_of(path), leaf, own), compiled.shapes)
        self.heads = layer["attention"]["num_heads"]
        return self.held(self.params)

    def held(self, tree: Tree) -> Tensors:
        return self.parameters.to_spec(flat(tree))

    def initialise(self, seed: int) -> Fresh:
        self.params = self.block.fresh(jax.random.key(seed))
        return Fresh(self.held(self.params), self.parameters.spec_names(flat(self.params)))

    def output(self, x: Array, masks: Masks, run: RunRequest) -> Array:
        x = run.batch_first(x)
        return run.as_given(np.asarray(self.forward(self.params, x, self.mask(masks), self.key(run))))

    def gradients(self, x: Array, masks: Masks, run: RunRequest, cotangent: Array) -> Tensors:
        x, cotangent = run.batch_first(x), run.batch_first(cotangent)
        given = x, self.mask(masks), self.key(run)
        by_params, by_x = self.backward(run.checkpoint, self.params, given, cotangent)
        return {"x": run.as_given(np.asarray(by_x)), **self.held(by_params)}

    def mask(self, masks: Masks) -> Array | None:
        return masks.joined(self.heads)

    def key(self, run: RunRequest) -> Key:
        return jax.random.key(run.seed) if run.mode == "train" else None

    def refusal(self, operation: str, error: Exception) -> str | None:
        if operation == "build" and isinstance(error, AttributeError):  # jax.nn has no activation of that name
            return "configuration"
        if operation == "run" and isinstance(error, TypeError) and "shape" in str(error):  # as JAX has it
            return "shape"
        return super().refusal(operation, error)


def activation(name: str, *, exact: bool = True) -> Callable[[jax.Array], jax.Array]:
    """jax.nn's by its name, as a user writes it; its `gelu` is the one by tanh unless it is told to be exact."""
    if name == "gelu" and exact:
        return exact_gelu
    return jax.nn.gelu if name == "gelu_tanh" else getattr(jax.nn, name)


exact_gelu: Callable[[jax.Array], jax.Array] = partial(jax.nn.gelu, approximate=False)


def backward(
    apply: Callable[..., Any], checkpoint: bool, params: Tree, given: tuple[Any, Any, Key], cotangent: jax.Array
) -> Any:
    """The gradients with respect to the parameters and to x, of `given`: x [B, S, D], its mask and dropout's key.

    With `checkpoint`, activations are computed again, and not kept.
    """
    x, mask, key = given
    taken = jax.checkpoint(apply) if checkpoint else apply
    return jax.vjp(lambda params, x: taken(params, x, mask, key), params, x)[1](cotangent)


def placed(name: str, leaf: Any, own: Tensors) -> jax.Array:
    value = own[name]
    if value.shape != leaf.shape or value.dtype != leaf.dtype:  # a map that is wrong; no layer refuses anything here
        raise RuntimeError(
            f"{name} is {leaf.dtype} {leaf.shape} in the library, and given as {value.dtype} {value.shape}"
        )
    held: jax.Array = jax.device_put(value)
    return held


def name_of(path: Any) -> str:
    return keystr(path, simple=True, separator=".")


def flat(tree: Tree) -> Tensors:
    return {name_of(path): np.asarray(leaf) for path, leaf in tree_flatten_with_path(tree)[0]}
