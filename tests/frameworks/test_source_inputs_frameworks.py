"""Token ids and a mask, given to whole models of Keras and JAX as the sources of files that were made of them."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

KERAS = '''
import keras
import numpy as np
import tensorflow as tf
import tf2onnx
from keras import layers, ops


class Block(layers.Layer):
    """Attention and a gated network, which no layer of the specification is."""

    def __init__(self):
        super().__init__()
        self.words, self.attention = layers.Embedding(50, 16), layers.MultiHeadAttention(2, 8)
        self.norm1, self.norm2 = layers.LayerNormalization(epsilon=1e-5), layers.LayerNormalization(epsilon=1e-5)
        self.gate, self.up, self.down = layers.Dense(32, activation="silu"), layers.Dense(32), layers.Dense(16)

    def call(self, ids, mask):
        x = self.words(ids)
        h = self.norm1(x)
        x = x + self.attention(h, h, attention_mask=ops.cast(mask, "bool")[:, None, :])
        h = self.norm2(x)
        return x + self.down(self.gate(h) * self.up(h))


def filled(model):
    model(FED) if isinstance(model, Mapped) else model(*FED.values()) if isinstance(model, Subclassed) else None
    draw = np.random.default_rng(0)
    model.set_weights([draw.normal(size=w.shape, scale=0.3).astype("f4") for w in model.get_weights()])
    return model


FED = {name: np.ones((2, 5), "i4") for name in ("input_ids", "attention_mask")}


def ports():
    kinds = {"input_ids": "int32", "attention_mask": "bool"}
    return [keras.Input((None,), dtype=kind, name=name) for name, kind in kinds.items()]


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def call(self, tokens, valid, training=False):
        return self.block(tokens, valid)


class Mapped(Subclassed):
    def call(self, inputs):
        return {"hidden": self.block(inputs["input_ids"], inputs["attention_mask"])}


def listed():
    ids, mask = ports()
    return filled(keras.Model([ids, mask], Block()(ids, mask)))


def mapping():
    ids, mask = ports()
    y = Block()(ids, mask)
    return filled(keras.Model({"input_ids": ids, "attention_mask": mask}, {"pooled": y[:, 0], "hidden": y}))


def subclassed():
    return filled(Subclassed())


def mapped():
    return filled(Mapped())


if __name__ == "__main__":
    model = subclassed()
    told = [tf.TensorSpec((None, None), kind, name=name) for name, kind in zip(FED, (tf.int32, tf.bool))]
    function = tf.function(lambda ids, mask: {"hidden": model(ids, mask)}, input_signature=told)
    tf2onnx.convert.from_function(function, input_signature=told, opset=17, output_path="model.onnx")
'''
JAX = """
import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import onnx
from flax import nnx
from jax import export
from jax2onnx import to_onnx


class Linen(nn.Module):
    @nn.compact
    def __call__(self, ids, mask, deterministic=True):
        x = nn.Embed(50, 16)(ids)
        h = nn.LayerNorm(epsilon=1e-5)(x)
        x = x + nn.MultiHeadDotProductAttention(2, qkv_features=16)(h, h, mask=(mask > 0)[:, None, None, :])
        h = nn.LayerNorm(epsilon=1e-5)(x)
        return x + nn.Dense(16)(nn.silu(nn.Dense(32)(h)) * nn.Dense(32)(h))


def linen():
    ids = jnp.ones((2, 5), jnp.int32)
    return Linen(), Linen().init(jax.random.key(0), ids, ids)


class Nnx(nnx.Module):
    def __init__(self, rngs):
        self.words, self.norm1 = nnx.Embed(50, 16, rngs=rngs), nnx.LayerNorm(16, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(2, 16, decode=False, rngs=rngs)
        self.gate, self.up = nnx.Linear(16, 32, rngs=rngs), nnx.Linear(16, 32, rngs=rngs)
        self.down = nnx.Linear(32, 16, rngs=rngs)

    def __call__(self, ids, mask):
        x = self.words(ids)
        h = self.norm1(x)
        x = x + self.attention(h, mask=(mask > 0)[:, None, None, :])
        return {"hidden": x + self.down(nnx.silu(self.gate(x)) * self.up(x))}


def on_nnx():
    return Nnx(nnx.Rngs(0))


class OfOneItem(eqx.Module):
    words: eqx.nn.Embedding
    qkv: eqx.nn.Linear
    up: eqx.nn.Linear
    down: eqx.nn.Linear

    def __init__(self):
        keys = jax.random.split(jax.random.key(0), 4)
        self.words, self.qkv = eqx.nn.Embedding(50, 16, key=keys[0]), eqx.nn.Linear(16, 48, key=keys[1])
        self.up, self.down = eqx.nn.Linear(16, 64, key=keys[2]), eqx.nn.Linear(32, 16, key=keys[3])

    def __call__(self, ids, mask):
        x = self.words.weight[ids]
        q, k, v = jnp.split(jax.vmap(self.qkv)(x), 3, -1)
        x = x + jax.nn.softmax(jnp.where(mask[None, :] > 0, q @ k.T / 4, -1e9), -1) @ v
        gate, up = jnp.split(jax.vmap(self.up)(x), 2, -1)
        return x + jax.vmap(self.down)(jax.nn.silu(gate) * up)


def equinox():
    return OfOneItem()


def apply(p, mask, ids):
    x = p["words"][ids]
    s = jnp.where(mask[:, None, :] > 0, (x @ p["q"]) @ jnp.swapaxes(x, 1, 2), -1e9)
    x = x + jax.nn.softmax(s, -1) @ x
    return x + jax.nn.silu(x @ p["q"]) * x


def function():
    words, q = (jax.random.normal(jax.random.key(rows), (rows, 16)) / 2 for rows in (50, 16))
    return apply, {"words": words, "q": q}


if __name__ == "__main__":
    given = [jax.ShapeDtypeStruct(export.symbolic_shape("B, S"), jnp.int32)] * 2
    (module, variables), of_one, (_, held) = linen(), equinox(), function()
    calls = {
        "linen": lambda ids, mask: module.apply(variables, ids, mask),
        "on_nnx": on_nnx(),
        "equinox": lambda ids, mask: jax.vmap(of_one)(ids, mask),
        "function": lambda ids, mask: apply(held, mask, ids),
    }
    for name, call in calls.items():
        onnx.save(to_onnx(call, inputs=given, opset=18), f"{name}.onnx")
"""


@pytest.fixture(scope="module")
def of_keras(exported: Callable[[str], Path]) -> Path:
    return exported(KERAS)


@pytest.fixture(scope="module")
def of_jax(exported: Callable[[str], Path]) -> Path:
    return exported(JAX)


def validated(conform: Callable, folder: Path, file: str, source: str, out: Path) -> tuple[int, dict[str, Any]]:
    told = ("--runtime", "onnxruntime", "--out", out)
    ended = conform("validate", folder / file, "--against", f"{folder / 'source.py'}:{source}", *told)
    results = [*out.rglob("validation.json")]
    assert results, ended.stdout + ended.stderr
    return ended.status, json.loads(results[0].read_text())


@pytest.mark.parametrize("source", ["listed", "mapping", "subclassed", "mapped"])
def test_a_model_of_keras(conform: Callable, of_keras: Path, tmp_path: Path, source: str) -> None:
    status, result = validated(conform, of_keras, "model.onnx", source, tmp_path / "out")
    assert (status, result["whole"]["agrees"]) == (0, True), result["findings"]
    assert "3 x 20, holes" in result["whole"]["cases"], "padding was asked"
    assert not [each for each in result["findings"] if each["kind"] == "no-float64"]


@pytest.mark.parametrize("backend", ["jax", "tensorflow", "torch"])
def test_a_step_that_a_model_of_keras_does_not_make_is_named(
    conform: Callable, of_keras: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.setenv("KERAS_BACKEND", backend)
    model = onnx.load(of_keras / "model.onnx")
    [sigmoid] = [node for node in model.graph.node if node.op_type == "Sigmoid"]
    sigmoid.op_type = "HardSigmoid"
    onnx.save(model, of_keras / f"{backend}.onnx")
    status, result = validated(conform, of_keras, f"{backend}.onnx", "listed", tmp_path / "out")
    assert (status, result["whole"]["agrees"]) == (1, False)
    [apart] = [each["about"] for each in result["findings"] if each["kind"] == "first-step-apart"]
    assert apart["made_by"] == f"HardSigmoid '{sigmoid.name}'"


@pytest.mark.parametrize("backend", ["jax", "tensorflow", "torch"])
def test_a_model_of_keras_computes_in_float64_what_its_file_is_held_to(of_keras: Path, backend: str) -> None:
    """Keras makes float32 of two numbers of float64 on JAX and PyTorch, unless it is kept from it."""
    code = """
        import numpy as np
        from source import FED, listed
        from encoder_conformance.readers.module_target.frameworks.keras_whole import WholeKeras

        [value] = WholeKeras(listed()).disturbed("float64", None, 0.0).outputs(FED).values()
        print((value != value.astype(np.float32)).all())
    """
    told = {**os.environ, "KERAS_BACKEND": backend}
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=of_keras, env=told, capture_output=True, text=True
    )
    assert ended.stdout.strip() == "True", ended.stderr


@pytest.mark.parametrize("source", ["linen", "on_nnx", "equinox", "function"])
def test_a_module_on_jax(conform: Callable, of_jax: Path, tmp_path: Path, source: str) -> None:
    """jax2onnx names the inputs in_0 and in_1."""
    status, result = validated(conform, of_jax, f"{source}.onnx", source, tmp_path / "out")
    assert (status, result["whole"]["agrees"]) == (0, True), result["findings"]


def test_another_model_is_apart(conform: Callable, of_jax: Path, tmp_path: Path) -> None:
    status, result = validated(conform, of_jax, "linen.onnx", "on_nnx", tmp_path / "out")
    assert (status, result["whole"]["agrees"]) == (1, False)


FRAMES = """
import jax
import onnx
from flax import nnx
from jax2onnx import to_onnx


class Frames(nnx.Module):
    def __init__(self, **told):
        rngs = nnx.Rngs(0)
        self.first = nnx.Linear(12, 32, rngs=rngs)
        self.norm1, self.norm2 = nnx.LayerNorm(32, rngs=rngs, **told), nnx.LayerNorm(32, rngs=rngs, **told)
        self.attention = nnx.MultiHeadAttention(4, 32, decode=False, rngs=rngs)
        self.up, self.down = nnx.Linear(32, 64, rngs=rngs), nnx.Linear(64, 32, rngs=rngs)

    def __call__(self, frames):
        x = self.first(frames)
        x = x + self.attention(self.norm1(x))
        return x + self.down(nnx.gelu(self.up(self.norm2(x))))


def fast():
    return Frames()


def exact():
    return Frames(use_fast_variance=False)


if __name__ == "__main__":
    onnx.save(to_onnx(fast(), [("B", "T", 12)]), "fast.onnx")
"""


@pytest.fixture(scope="module")
def of_frames(exported: Callable[[str], Path]) -> Path:
    return exported(FRAMES)


@pytest.mark.parametrize(("source", "status"), [("fast", 0), ("exact", 1)])
def test_flaxs_variance_behind_a_map_is_its_sources_where_that_makes_the_same_sums(
    conform: Callable, of_frames: Path, tmp_path: Path, source: str, status: int
) -> None:
    """Flax's LayerNorm takes E[x²] − E[x]² unless it is told not to; no input that the map takes shows it."""
    ended, result = validated(conform, of_frames, "fast.onnx", source, tmp_path / "out")
    assert (ended, result["whole"]["agrees"]) == (status, True), result["findings"]
    assert bool([each for each in result["findings"] if each["severity"] == "error"]) == bool(status)


COUNTED = """
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp


class OfIds(eqx.Module):
    words: eqx.nn.Embedding
    segments: eqx.nn.Embedding
    qkv: eqx.nn.Linear

    def __call__(self, token_ids, segment_ids, mask):
        with Path(__file__).with_name("calls").open("a") as calls:
            print(file=calls)
        x = jax.vmap(self.words)(token_ids) + jax.vmap(self.segments)(segment_ids)
        q, k, v = jnp.split(jax.vmap(self.qkv)(x), 3, -1)
        return x + jax.nn.softmax(jnp.where(mask[None, :] > 0, q @ k.T / 4, -1e9), -1) @ v


def model():
    one, two, three = jax.random.split(jax.random.key(0), 3)
    words, segments = eqx.nn.Embedding(100, 16, key=one), eqx.nn.Embedding(2, 16, key=two)
    return OfIds(words, segments, eqx.nn.Linear(16, 48, key=three))
"""


def test_a_model_of_ids_is_not_called_with_numbers_in_every_way(conform: Callable, tmp_path: Path) -> None:
    """Each call of a module on JAX is traced anew: two thousand of them take minutes."""
    (tmp_path / "source.py").write_text(COUNTED)
    ended = conform("check", f"{tmp_path / 'source.py'}:model", "--out", tmp_path / "out")
    assert ended.status == 2, ended.stdout + ended.stderr
    assert "scalar index" in ended.stderr
    assert len((tmp_path / "calls").read_text()) < 500
