"""A Keras model that somebody exported: MultiHeadAttention, LayerNormalization and Dense, by Keras and by tf2onnx."""

from pathlib import Path
from types import ModuleType
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf2onnx
from keras import layers

D, H, F = 24, 3, 40


def functional(placement: str) -> tuple[Any, dict[str, Any]]:
    """The model of x and a mask, and its layers."""
    x, mask = keras.Input((None, D), name="x"), keras.Input((None,), dtype="bool", name="mask")
    made = {
        "attention": layers.MultiHeadAttention(H, D // H),
        **{name: layers.LayerNormalization() for name in ("norm1", "norm2")},
        **{"hidden": layers.Dense(F, activation="relu"), "output": layers.Dense(D)},
    }

    def attention(h: Any) -> Any:
        return made["attention"](h, h, attention_mask=keras.ops.expand_dims(mask, 1))

    def feed_forward(h: Any) -> Any:
        return made["output"](made["hidden"](h))

    if placement == "pre":
        r = layers.Add()([x, attention(made["norm1"](x))])
        y = layers.Add()([r, feed_forward(made["norm2"](r))])
    else:
        r = made["norm1"](layers.Add()([x, attention(x)]))
        y = made["norm2"](layers.Add()([r, feed_forward(r)]))
    model = keras.Model([x, mask], y)
    draw = np.random.default_rng(0)
    model([np.zeros((2, 5, D), np.float32), np.ones((2, 5), np.bool_)])
    model.set_weights([draw.normal(size=w.shape, scale=0.3).astype(np.float32) for w in model.get_weights()])
    return model, made


def parameters(made: dict[str, Any]) -> dict[str, Any]:
    """In the specification's names."""
    held = iter(made["attention"].get_weights())  # kernels [D, H, d], the output's [H, d, D], each before its bias
    found = {}
    for name in ("query", "key", "value", "output"):
        found |= {f"attention.{name}.weight": next(held).reshape(D, D), f"attention.{name}.bias": next(held).reshape(D)}
    for norm in ("norm1", "norm2"):
        found |= dict(zip((f"{norm}.gain", f"{norm}.shift"), made[norm].get_weights(), strict=True))
    for name in ("hidden", "output"):
        names = f"feed_forward.{name}.weight", f"feed_forward.{name}.bias"
        found |= dict(zip(names, made[name].get_weights(), strict=True))
    return found


@pytest.mark.parametrize("exporter", ["keras", "tf2onnx"])
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_a_keras_model(strangers: ModuleType, tmp_path: Path, placement: str, exporter: str) -> None:
    model, made = functional(placement)
    path = tmp_path / "model.onnx"
    if exporter == "keras":
        model.export(path, format="onnx", verbose=False)
    else:
        signature = [
            tf.TensorSpec((None, None, D), tf.float32, name="x"),
            tf.TensorSpec((None, None), tf.bool, name="mask"),
        ]
        function = tf.function(lambda x, mask: model([x, mask]), input_signature=signature)
        tf2onnx.convert.from_function(function, input_signature=signature, opset=17, output_path=str(path))
    seen = strangers.looked_into(path, "attend")
    [loose] = seen.findings.found
    assert (loose.phase, loose.severity) == ("dimensions", "warning"), "each size is a symbol of its own, in and out"
    strangers.assert_holds(
        seen,
        parameters(made),
        norm={"placement": placement, "kind": "layer_norm", "epsilon": float(np.float32(1e-3))},
        attention__num_heads=H,
        attention__fully_masked_row="uniform",
        feed_forward={"d_ff": F, "activation": "relu", "bias": True},
    )
    started, _, _ = strangers.adapter(path)
    strangers.assert_hides_padding(started, D)
