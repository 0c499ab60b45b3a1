"""Drives the JAX encoder: a jitted function for each check, compiled once for each layer, dtype and shape."""

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr, tree_flatten_with_path

from encoder_conformance import (
    Adapter,
    Array,
    Environment,
    Fresh,
    Masks,
    ParameterMap,
    RunRequest,
    Take,
    Tensors,
    serve,
    timed,
)
from encoder_conformance.impls.bases import own_names
from encoder_conformance.impls.bases.jax_layers.process import make_room, set_up
from encoder_conformance.impls.jax_pure.attention import Masks as LayerMasks
from encoder_conformance.impls.jax_pure.building import encoder_of
from encoder_conformance.impls.jax_pure.initial import initial
from encoder_conformance.impls.jax_pure.primitives import Tree
from encoder_conformance.impls.jax_pure.softmax import MaskedSoftmax
from encoder_conformance.impls.jax_pure.stages import Whole, encoder_stage, encoder_stages


def parameter_map(layer: dict[str, Any]) -> ParameterMap:
    """Projections are kept by heads, kernel [D, H, d] and bias [H, d]; those that heads share as they are. Tables and
    norms of a stack keep their names."""
    shapes: dict[str, tuple[str, ...]] = {"attention.output.weight": ("num_heads", "head_dim", "d_model")}
    if layer["attention"]["projections"] != "shared_by_heads":
        for part, heads in (("query", "num_heads"), ("key", "kv_heads"), ("value", "kv_heads")):
            shapes[f"attention.{part}.weight"] = ("d_model", heads, "head_dim")
            shapes[f"attention.{part}.bias"] = (heads, "head_dim")
    own = {"weight": "kernel", "attention_output_norm": "norm_after1", "ffn_output_norm": "norm_after2"}
    own |= {table: table for table in ("embedding.weight", "token_type_embedding.weight", "position_embedding.weight")}
    return own_names.parameter_map(own, lambda name: Take(name, shape=shapes.get(name)))


def encoder(whole: Whole, params: Tree, *given: Any, **named: Any) -> jax.Array:
    """The output, of its arguments."""
    return whole(params, *given, **named)


forward = jax.jit(encoder, static_argnums=0)
forward_stages = jax.jit(encoder_stages, static_argnums=0)
one_stage = jax.jit(encoder_stage, static_argnums=(0, 1))


Inputs = tuple[jax.Array, LayerMasks, jax.Array | None]
"""x [B, S, D] or token ids [B, S], its masks, and what dropout is drawn from."""


@partial(jax.jit, static_argnums=(0, 1))
def backward(whole: Whole, again: bool, params: Tree, inputs: Inputs, cotangent: jax.Array) -> Any:
    """The gradients by the parameters and by x; by token ids there is none, and None stands for it."""
    return linearised(whole, again, params, *inputs)(cotangent)


@partial(jax.jit, static_argnums=0)
def backward_across(
    whole: Whole, params: Tree, x: jax.Array, memory: jax.Array, masks: LayerMasks, cotangent: jax.Array
) -> Any:
    """The gradients of attention alone: by the parameters, by x and by the memory."""
    return jax.vjp(partial(whole, masks=masks), params, x, memory)[1](cotangent)


def linearised(
    whole: Whole, again: bool, params: Tree, x: jax.Array, masks: LayerMasks, key: jax.Array | None = None
) -> Callable[[jax.Array], Any]:
    """The way back, by parameters and x, with what it keeps. `again`: activations are computed again, and not kept."""
    pure = partial(jax.checkpoint(whole) if again else whole, masks=masks, key=key)
    if jnp.issubdtype(x.dtype, jnp.integer):
        pull_back = jax.vjp(lambda params: pure(params, x), params)[1]
        return lambda cotangent: (*pull_back(cotangent), None)
    return jax.vjp(pure, params, x)[1]


class JaxPure(Adapter):
    def start(self, device: str, threads: int) -> Environment:
        set_up(device, threads)
        if self.choices.get("optimize") == "none":
            jax.config.update("jax_disable_most_optimizations", True)
        settings: dict[str, str | int | bool] = {
            "threads": threads,
            "jax_enable_x64": jax.config.jax_enable_x64,
            "platform": jax.default_backend(),
            "compilation_cache": jax.config.jax_compilation_cache_dir or "none",
            **self.choices,
        }
        return Environment({"jax": jax.__version__, "numpy": np.__version__}, settings)

    def build(self, layer: dict[str, Any], parameters: Tensors, dtype: str) -> Tensors:
        make_room()
        self.encoder, self.softmax = encoder_of(layer), MaskedSoftmax.of(layer)
        self.heads, self.drops = layer["attention"]["num_heads"], any(layer["dropout"].values())
        self.map, self.dtype = parameter_map(layer), dtype
        self.skips_padding = ((layer["embedding"] or {}).get("position_table") or {}).get("counted") == "valid"
        self.params = jax.device_put(nested(self.map.to_own(parameters, layer)))
        return self.map.to_spec(flat(self.params))

    def output(self, x: Array, masks: Masks, run: RunRequest) -> Array:
        x = run.batch_first(x)
        given = self.given(x, masks, run)
        if run.memory is None:
            found = forward(self.encoder, self.params, x, given, key=self.key(run))
        else:
            found = forward(self.encoder, self.params, x, run.memory, given)
        return run.as_given(np.asarray(found))

    def stages(self, x: Array, masks: Masks, run: RunRequest) -> Tensors:
        given = self.given(x, masks, run, stated=True)
        return flat(forward_stages(self.encoder, self.params, x, given, self.key(run), run.memory))

    def gradients(self, x: Array, masks: Masks, run: RunRequest, cotangent: Array) -> Tensors:
        x, cotangent = run.batch_first(x), run.batch_first(cotangent)
        given = self.given(x, masks, run, stated=True)
        if run.memory is None:
            inputs = x, given, self.key(run)
            by_params, by_x = backward(self.encoder, run.checkpoint, self.params, inputs, cotangent)
            by_inputs = {} if by_x is None else {"x": run.as_given(np.asarray(by_x))}
        else:
            by_params, by_x, by_memory = backward_across(self.encoder, self.params, x, run.memory, given, cotangent)
            by_inputs = {"x": run.as_given(np.asarray(by_x)), "memory": np.asarray(by_memory)}
        return {**by_inputs, **self.map.to_spec(flat(by_params))}

    def initialise(self, seed: int) -> Fresh:
        self.params = initial(self.params, jax.random.key(seed))
        held = flat(self.params)
        return Fresh(self.map.to_spec(held), self.map.spec_names(held))

    def key(self, run: RunRequest) -> jax.Array | None:
        """The key that dropout is drawn from: none outside training, and none where nothing is dropped."""
        return jax.random.key(run.seed) if run.mode == "train" and self.drops else None

    def given(self, x: Array, masks: Masks, run: RunRequest, *, stated: bool = False) -> LayerMasks:
        """The masks for x [B, S, ...], every one of them whole where there is any: one program serves all forms.

        With `stated` they are all there, a mask that allows everything and a bias of 0 where none is given: gradients
        and stages are compiled once for a shape, and not for each of the four things that may be given with it, as by
        a user who trains on batches of which some are masked. The output is asked as it comes, without a mask where
        none is given.
        """
        (B, S), heads = x.shape[:2], self.heads
        T = S if run.memory is None else run.memory.shape[1]
        every = B, heads, S, T
        allowed, bias, valid = masks.joined(heads), masks.added(heads), masks.valid()
        padding_id = None if masks.padding_id is None else np.int64(masks.padding_id)
        positions = None if run.positions is None else run.positions[..., 0]
        types = None if run.token_types is None else run.batch_first(run.token_types)
        if allowed is None and bias is None and not stated:
            return LayerMasks(padding_id=padding_id, positions=positions, types=types)
        if bias is None and stated:
            bias = np.zeros((1, 1, 1, 1), self.dtype)
        allowed = np.ones(every, np.bool_) if allowed is None else widened(allowed, every)
        valid = np.ones((B, T), np.bool_) if valid is None else widened(valid, (B, T))
        bias = None if bias is None else widened(bias.astype(self.dtype), every)
        counted = valid if self.skips_padding else None
        return LayerMasks(allowed, bias, self.softmax.needed(allowed, valid), padding_id, positions, counted, types)

    def profile(self, x: Array, masks: Masks, run: RunRequest, repeats: int) -> Tensors:
        """Each stage compiled by itself, from the stages that it needs: what is compiled as a whole has none."""
        given = self.encoder, self.params, jax.device_put(x), self.given(x, masks, run)
        stages = forward_stages(*given)
        work = {name: partial(one_stage, name, *given, stages) for name in stages}
        return {name: timed(lambda stage=stage: stage().block_until_ready(), repeats) for name, stage in work.items()}


def widened(mask: Array, due: tuple[int, ...]) -> Array:
    """Its axes of 1 as wide as is due. That another size is wrong is for the layer to say."""
    return np.broadcast_to(mask, [n if size == 1 else size for size, n in zip(mask.shape, due, strict=True)])


def nested(named: Tensors) -> Tree:
    """{"norm1.gain": …} to {"norm1": {"gain": …}}."""
    tree: Tree = {}
    for name, value in named.items():
        *path, leaf = name.split(".")
        reduce(lambda branch, step: branch.setdefault(step, {}), path, tree)[leaf] = value
    return tree


def flat(tree: Tree) -> Tensors:
    """The way back of `nested`."""
    leaves, _ = tree_flatten_with_path(tree)
    return {keystr(path, simple=True, separator="."): np.asarray(leaf) for path, leaf in leaves}


if __name__ == "__main__":
    serve(JaxPure())
