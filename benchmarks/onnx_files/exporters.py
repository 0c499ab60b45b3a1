"""Each exporter, as its users call it: a module and a path in, a file out. All axes of batch and sequence are free."""

import logging
import os
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.onnx_files.modules import D

AXES = {0: "batch", 1: "sequence"}


def quiet() -> None:
    """Exporters print pages, and transformers imports every framework that is here, unless it is told."""
    os.environ.update(USE_TF="0", USE_FLAX="0", USE_JAX="0", HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.backends.mha.set_fastpath_enabled(False)


def torchscript(module: nn.Module, path: Path, opset: int = 17) -> Path:
    """`torch.onnx.export` of a layer of x and a mask, by tracing."""
    given = torch.randn(2, 7, D), torch.ones(2, 7, dtype=torch.bool)
    return traced(module, path, given, ["x", "mask"], ["y"], opset)


def traced(
    module: nn.Module, path: Path, given: tuple[Any, ...], inputs: list[str], outputs: list[str], opset: int = 17,
    axes: dict[int, str] = AXES,
) -> Path:  # fmt: skip
    free = dict.fromkeys((*inputs, outputs[0]), axes)
    torch.onnx.export(
        module, given, path, opset_version=opset, dynamo=False, input_names=inputs, output_names=outputs,
        dynamic_axes=free,
    )  # fmt: skip
    return path


def dynamo(module: nn.Module, path: Path, opset: int = 18) -> Path:
    """`torch.onnx.export` of a layer of x and a mask, by torch.export."""
    given = torch.randn(2, 7, D), torch.zeros(2, 7, dtype=torch.bool)
    free = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence")}
    torch.onnx.export(
        module, given, path, opset_version=opset, dynamo=True, verbose=False, dynamic_shapes=(free, free),
        input_names=["x", "mask"], output_names=["y"], external_data=False,
    )  # fmt: skip
    return path


def optimums(name: str, folder: Path, task: str = "feature-extraction", **options: Any) -> Path:
    """`optimum-cli export onnx` of a model of transformers with random weights, that lies in a folder."""
    from optimum.exporters.onnx import main_export

    from benchmarks.onnx_files import published

    source = folder / "transformers"
    published.model(name).save_pretrained(source)
    main_export(str(source), folder / "out", task=task, do_validation=False, no_post_process=True, **options)
    return folder / "out" / "model.onnx"


def keras_own(placement: str, path: Path) -> Path:
    """`Model.export` of Keras 3."""
    import numpy as np

    model = functional(placement)
    model([np.zeros((1, 2, D), np.float32), np.ones((1, 2), bool)])  # it exports only what was called once
    model.export(str(path), format="onnx", verbose=False)
    return path


def tf2onnxs(placement: str, path: Path) -> Path:
    import tensorflow as tf
    import tf2onnx

    model = functional(placement)
    signature = [
        tf.TensorSpec((None, None, D), tf.float32, name="x"), tf.TensorSpec((None, None), tf.bool, name="mask")
    ]  # fmt: skip
    called = tf.function(lambda x, mask: model([x, mask]), input_signature=signature)
    tf2onnx.convert.from_function(called, input_signature=signature, opset=17, output_path=str(path))
    return path


def functional(placement: str) -> Any:
    """A layer of Keras' own parts."""
    import keras
    import numpy as np
    from keras import layers

    x, mask = keras.Input((None, D), name="x"), keras.Input((None,), dtype="bool", name="mask")
    attention = layers.MultiHeadAttention(4, D // 4)
    norm1, norm2 = layers.LayerNormalization(), layers.LayerNormalization()
    hidden, output = layers.Dense(48, activation="relu"), layers.Dense(D)

    def attended(h: Any) -> Any:
        return attention(h, h, attention_mask=keras.ops.expand_dims(mask, 1))

    if placement == "pre":
        r = layers.Add()([x, attended(norm1(x))])
        y = layers.Add()([r, output(hidden(norm2(r)))])
    else:
        r = norm1(layers.Add()([x, attended(x)]))
        y = norm2(layers.Add()([r, output(hidden(r))]))
    model = keras.Model([x, mask], y)
    draw = np.random.default_rng(0)
    model.set_weights([draw.normal(size=w.shape, scale=0.3).astype(np.float32) for w in model.get_weights()])
    return model


def jax2onnxs(placement: str, path: Path, opset: int = 18) -> Path:
    """A module of Flax Linen."""
    import flax.linen as fnn
    import jax
    import jax.numpy as jnp
    import onnx
    from jax import export
    from jax2onnx import to_onnx

    class Layer(fnn.Module):
        @fnn.compact
        def __call__(self, x: Any, valid: Any) -> Any:
            attention = fnn.MultiHeadDotProductAttention(num_heads=4, qkv_features=D, name="attention")
            norm1, norm2 = fnn.LayerNorm(name="norm1"), fnn.LayerNorm(name="norm2")
            hidden, output = fnn.Dense(48, name="hidden"), fnn.Dense(D, name="output")
            mask = valid[:, None, None, :]
            if placement == "pre":
                h = norm1(x)
                x = x + attention(h, h, mask=mask)
                return x + output(fnn.gelu(hidden(norm2(x))))
            x = norm1(x + attention(x, x, mask=mask))
            return norm2(x + output(fnn.gelu(hidden(x))))

    module = Layer()
    tree = module.init(jax.random.key(0), jnp.zeros((2, 5, D)), jnp.ones((2, 5), bool))["params"]
    leaves, shape = jax.tree.flatten(tree)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    drawn = [0.3 * jax.random.normal(key, leaf.shape) for key, leaf in zip(keys, leaves, strict=True)]
    tree = jax.tree.unflatten(shape, drawn)
    B, S = export.symbolic_shape("B, S")
    given = [jax.ShapeDtypeStruct((B, S, D), jnp.float32), jax.ShapeDtypeStruct((B, S), jnp.bool_)]
    made = to_onnx(lambda x, valid: module.apply({"params": tree}, x, valid), inputs=given, opset=opset)
    onnx.save(made, path)
    return path
