"""`conform check` on layers of Keras and JAX: formats, compiled code as it was given, and parameters that are one."""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox
import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
import tensorflow as tf
from flax import linen, nnx

from encoder_conformance.commands.check.findings import findings_of
from encoder_conformance.protocol.module_description import ModuleDescription
from encoder_conformance.readers.module_target.describing import described
from encoder_conformance.readers.module_target.examining import examine
from encoder_conformance.readers.module_target.frameworks import framework_of
from encoder_conformance.readers.module_target.probing import first_x

HERE = Path(__file__).parent
JAX: dict[str, Any] = runpy.run_path(str(HERE / "bare_jax.py"))
KERAS: dict[str, Any] = runpy.run_path(str(HERE / "bare_keras.py"))
D, H, Block = KERAS["D"], KERAS["H"], KERAS["Block"]


def shown(given: object) -> ModuleDescription:
    keras.utils.set_random_seed(0)
    return described(examine(given))


def said(description: ModuleDescription) -> str:
    return "\n".join(each.message for each in findings_of(description))


# ------------------------------------------------------------------------------- formats


def in_bfloat16(*narrow: str) -> Any:
    """The function with those of its parameters in bfloat16; without a name all."""
    held = JAX["parameters"]()
    cast = jax.tree.map(lambda value: value.astype(jnp.bfloat16), held)
    return JAX["layer"], {name: cast[name] if name in narrow or not narrow else held[name] for name in held}


def test_arrays_in_bfloat16_are_asked_in_that_too() -> None:
    found = shown(in_bfloat16())
    assert (found.as_given, found.dtypes) == ("bfloat16", ("float64", "float32", "bfloat16"))


def test_arrays_in_several_formats_are_named() -> None:
    """In JAX an x in bfloat16 goes on in float32 from the first wide array on."""
    found = shown(in_bfloat16("up", "down"))
    assert found.as_given == "float32"
    assert set(found.formats) == {"float32", "bfloat16"}
    assert "bfloat16 (up.b and 3 more)" in said(found) or "bfloat16 (down.b and 3 more)" in said(found)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", pytest.param("bfloat16", marks=pytest.mark.release)])
def test_a_layer_of_keras_is_read_in_float32_and_asked_by_its_policy_too(policy: str) -> None:
    keras.config.set_dtype_policy(policy)
    try:
        layer = Block()
    finally:
        keras.config.set_dtype_policy("float32")
    found = shown(layer)
    assert found.proof is not None
    assert found.proof.holds
    assert (found.as_given, found.dtypes) == ("bfloat16", ("float32", "bfloat16"))
    assert {each.dtype_policy.name for each in (layer, layer.attention, layer.up)} == {policy}, "and stays as it is"


# ------------------------------------------------------------------------------- compiled code


class MaskLostInGraph(Block):  # type: ignore[misc]
    def call(self, x: Any, mask: Any = None, training: bool | None = None) -> Any:
        return super().call(x, mask if tf.executing_eagerly() else None)


class InFunction(Block):  # type: ignore[misc]
    @tf.function(jit_compile=True)  # type: ignore[untyped-decorator]
    def call(self, x: Any, mask: Any = None) -> Any:
        return super().call(x, mask, training=False)


class MaskLostInFunction(Block):  # type: ignore[misc]
    @tf.function  # type: ignore[untyped-decorator]
    def call(self, x: Any, mask: Any = None) -> Any:
        return super().call(x, mask if tf.executing_eagerly() else None, training=False)


def built(layer: Any) -> Any:
    """With its weights: those that are made in compiled code are not those that it computes with."""
    tf.config.run_functions_eagerly(True)
    layer(np.zeros((1, 2, D), np.float32))
    tf.config.run_functions_eagerly(False)
    return layer


def compiled(kind: Callable[[], Any], **how: Any) -> Any:
    x, mask = keras.Input((None, D), name="x"), keras.Input((None,), dtype="bool", name="mask")
    model = keras.Model([x, mask], kind()(x, mask=mask))
    model.compile(**how)
    return model


def ways(description: ModuleDescription) -> list[tuple[str, tuple[str, ...]]]:
    return [(each.way, each.masks) for each in description.other_answers]


MASK = ("mask",)
COMPILED: dict[str, tuple[Callable[[], Any], tuple[str, ...], list[tuple[str, tuple[str, ...]]]]] = {
    "model": (lambda: compiled(Block, jit_compile=True), ("predict, compiled with jit_compile",), []),
    "function": (lambda: built(InFunction()), ("tf.function with jit_compile",), []),
    "wrong in a function": (
        lambda: built(MaskLostInFunction()),
        ("tf.function",),
        [("tf.function, and its own code,", MASK)],
    ),
}


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_code_of_keras_is_asked_and_compared_with_the_layer_s_own(name: str) -> None:
    made, wrappers, apart = COMPILED[name]
    found = shown(made())
    assert found.proof is not None
    assert found.proof.holds
    assert found.wrappers == wrappers
    assert ways(found) == apart


def test_a_function_of_jax_is_asked_compiled_and_step_by_step() -> None:
    def lost(p: Any, x: jax.Array, mask: Any = None) -> jax.Array:
        return JAX["layer"](p, x, mask if isinstance(x, jax.core.Tracer) else None)  # type: ignore[no-any-return]

    assert ways(shown((lost, JAX["parameters"]()))) == [("compiled by jax.jit and step by step", MASK)]
    right = jax.jit(lambda p, x, mask=None: JAX["layer"](p, x, mask))
    assert not ways(shown((right, JAX["parameters"]())))


@pytest.mark.release
def test_a_module_of_equinox_whose_call_was_compiled_is_read() -> None:
    found = shown(equinox.filter_jit(JAX["Equinox"]()))
    assert found.wrappers == ("equinox.filter_jit",)
    assert found.proof is not None
    assert found.proof.holds
    assert not found.other_answers


# ------------------------------------------------------------------------------- two parameters that are one


def test_two_parameters_that_are_one_array_are_named() -> None:
    held = JAX["parameters"]()
    del held["wk"]
    found = shown(((lambda p, x, mask=None: JAX["layer"]({**p, "wk": p["wq"]}, x, mask)), held))
    assert found.proof is not None
    assert found.proof.holds
    assert "attention.query.weight and attention.key.weight are the same numbers: wq.w" in said(found)


class OneFeedForward(Block):  # type: ignore[misc]
    """down's kernel is up's, transposed."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.down = None

    def build(self, shape: Any) -> None:
        self.shift = self.add_weight((D,), name="shift")

    def call(self, x: Any, mask: Any = None, training: bool | None = None) -> Any:
        y = self.norm1(x)
        x = x + self.attention(y, y, attention_mask=None if mask is None else mask[:, None, :])
        hidden = self.up(self.norm2(x))
        return x + keras.ops.matmul(hidden, keras.ops.transpose(self.up.kernel)) + self.shift


def test_two_parameters_of_keras_that_are_one_are_named() -> None:
    found = shown(built(OneFeedForward()))
    due = "feed_forward.hidden.weight and feed_forward.output.weight are the same numbers, one transposed"
    assert due in said(found)


@pytest.mark.release
@pytest.mark.parametrize("exchanged", [False, True])
def test_a_map_that_does_another_s_work_is_told_by_the_attribute_that_it_is(exchanged: bool) -> None:
    found = shown(KERAS["ByAttribute"](exchanged))
    assert [own for own, _, _ in found.misnamed] == (["wk.kernel", "wq.kernel"] if exchanged else [])


# ------------------------------------------------------------------------------- Flax


class Narrow(linen.Module):
    """A post-norm layer that computes in bfloat16, whatever it is given."""

    @linen.compact
    def __call__(self, x: jax.Array, mask: jax.Array | None = None) -> jax.Array:
        narrow: dict[str, Any] = {"dtype": jnp.bfloat16}
        y = linen.MultiHeadDotProductAttention(H, deterministic=True, **narrow)(x, x, mask=mask)
        x = linen.LayerNorm(epsilon=1e-6, **narrow)(x + y)
        y = linen.Dense(D, **narrow)(linen.relu(linen.Dense(24, **narrow)(x)))
        return linen.LayerNorm(epsilon=1e-6, **narrow)(x + y)


@pytest.mark.release
def test_a_module_of_linen_that_computes_in_bfloat16_is_read_in_float32_and_asked_in_that_too() -> None:
    found = shown(Narrow())
    assert found.as_given == "bfloat16"
    assert found.dtypes == ("float32", "bfloat16")
    assert found.proof is not None
    assert found.proof.holds
    assert not [each for each in findings_of(found) if each.severity == "error"], said(found)


class NarrowBranches(nnx.Module):
    """Its branches compute in bfloat16; x skips them in the format that it has, and the answer is in that."""

    def __init__(self) -> None:
        narrow: dict[str, Any] = {"dtype": jnp.bfloat16, "rngs": nnx.Rngs(0)}
        self.norm1, self.norm2 = nnx.RMSNorm(D, **narrow), nnx.RMSNorm(D, **narrow)
        self.attention = nnx.MultiHeadAttention(H, D, decode=False, **narrow)
        self.up, self.down = nnx.Linear(D, 24, **narrow), nnx.Linear(24, D, **narrow)

    def __call__(self, x: jax.Array, mask: jax.Array | None = None) -> jax.Array:
        x = x + self.attention(self.norm1(x), mask=mask)
        return x + self.down(nnx.silu(self.up(self.norm2(x))))


@pytest.mark.release
def test_a_module_whose_branches_compute_in_bfloat16_is_read_in_float32_and_asked_in_that_too() -> None:
    """The format of its answer in float32 does not tell that."""
    found = shown(NarrowBranches())
    assert found.as_given == "bfloat16"
    assert found.dtypes[-1] == "bfloat16"
    assert found.proof is not None
    assert found.proof.holds
    assert not [each for each in findings_of(found) if each.severity == "error"], said(found)


class NarrowAttention(NarrowBranches):
    """Its attention alone computes in bfloat16, whatever x is."""

    def __init__(self) -> None:
        super().__init__()
        rngs = nnx.Rngs(0)
        self.norm1, self.norm2 = nnx.RMSNorm(D, rngs=rngs), nnx.RMSNorm(D, rngs=rngs)
        self.up, self.down = nnx.Linear(D, 24, rngs=rngs), nnx.Linear(24, D, rngs=rngs)


@pytest.mark.release
def test_a_module_of_which_a_part_computes_in_bfloat16_is_told_so() -> None:
    found = shown(NarrowAttention())
    assert "it casts to bfloat16 inside, whatever x is" in said(found)
    assert "RuntimeTypeError" not in said(found)


class NarrowScores(nnx.Module):
    """The product of its queries and keys is in bfloat16, and a compiler leaves out the cast back."""

    def __init__(self) -> None:
        rngs = nnx.Rngs(0)
        self.norm1, self.norm2 = nnx.LayerNorm(D, rngs=rngs), nnx.LayerNorm(D, rngs=rngs)
        self.q, self.k, self.v, self.o = (nnx.Linear(D, D, rngs=rngs) for _ in range(4))
        self.up, self.down = nnx.Linear(D, 24, rngs=rngs), nnx.Linear(24, D, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        y = self.norm1(x)
        q, k, v = (m(y).reshape(*y.shape[:2], H, -1).swapaxes(1, 2) for m in (self.q, self.k, self.v))
        product = q.astype(jnp.bfloat16) @ k.astype(jnp.bfloat16).swapaxes(2, 3)
        weights = jax.nn.softmax(product.astype(jnp.float32) / jnp.sqrt(D // H), axis=-1)
        x = x + self.o((weights @ v).swapaxes(1, 2).reshape(x.shape))
        return x + self.down(jax.nn.gelu(self.up(self.norm2(x)), approximate=False))


def test_a_cast_that_a_compiler_leaves_out_is_no_second_answer() -> None:
    """Compiled and step by step it is as far apart as bfloat16 rounds."""
    found = shown(NarrowScores())
    assert found.other_answers == ()
    assert "it casts to bfloat16 inside" in said(found)


@pytest.mark.release
def test_a_module_that_nnx_compiled_is_asked_and_the_one_in_it_is_read() -> None:
    found = shown(nnx.jit(JAX["Nnx"]()))
    assert found.wrappers == ("nnx.jit",)
    assert found.proof is not None
    assert found.proof.holds
    assert not [each for each in findings_of(found) if each.severity == "error"], said(found)


class Compiled(JAX["Nnx"]):
    @nnx.jit
    def __call__(self, x: jax.Array, mask: jax.Array | None = None) -> jax.Array:
        answer: jax.Array = super().__call__(x, mask)
        return answer


class Averaging(JAX["Nnx"]):
    def __init__(self) -> None:
        super().__init__()
        self.mean = nnx.BatchStat(jnp.zeros(D))

    def __call__(self, x: jax.Array, mask: jax.Array | None = None) -> jax.Array:
        self.mean.value = 0.9 * self.mean.value + 0.1
        return super().__call__(x - self.mean.value, mask)


class Counting(linen.Module):
    @linen.compact
    def __call__(self, x: jax.Array, mask: jax.Array | None = None) -> jax.Array:
        calls = self.variable("stats", "calls", lambda: jnp.zeros((), jnp.int32))
        calls.value = calls.value + 1
        return JAX["Linen"]()(x, mask, train=False)


class Summing(Block):
    def __init__(self) -> None:
        super().__init__()
        self.total = self.add_weight(shape=(), initializer="zeros", trainable=False, name="total")

    def call(self, x: Any, mask: Any = None, training: bool | None = None) -> Any:
        self.total.assign_add(0.5)
        return super().call(x + self.total, mask, training)


@pytest.mark.release
def test_a_module_of_nnx_whose_call_is_compiled_is_read() -> None:
    found = shown(Compiled())
    assert found.proof is not None
    assert found.proof.holds
    assert not [each for each in findings_of(found) if each.severity == "error"], said(found)


KEPT = {"Averaging": (Averaging, ("mean",), True), "Counting": (Counting, ("stats.calls",), False)}


@pytest.mark.release
@pytest.mark.parametrize("name", [*KEPT, "Summing"])
def test_what_a_call_leaves_behind_is_named_in_every_framework(name: str) -> None:
    made, names, depends = KEPT.get(name, (Summing, ("total",), True))
    module = made()
    framework = framework_of(module)
    assert framework is not None
    live = framework.live(module)
    kept = live.kept({"x": first_x(live)})
    assert kept is not None
    assert [each.rpartition("summing.")[2] for each in kept.names] == [*names]
    assert (kept.once, kept.apart > 0) == (False, depends)
