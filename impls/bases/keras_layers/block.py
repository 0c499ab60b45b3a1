"""A Transformer's block of Keras' own layers, put together as its documentation's example does."""

from functools import partial
from typing import Any

import keras
import numpy as np
from keras import layers

KINDS = {"layer_norm": "LayerNormalization", "rms_norm": "RMSNormalization"}
"""By name: before 3.9 Keras has no RMSNormalization, and its LayerNormalization can be judged all the same."""


class Block:
    """`layer` is the specification's; with `own_epsilon` the norms keep Keras' default. Weights by path in `held`."""

    def __init__(self, layer: dict[str, Any], dtype: str, own_epsilon: bool) -> None:
        keras.config.set_dtype_policy(dtype)
        attention, ffn, norm, rates = layer["attention"], layer["feed_forward"], layer["norm"], layer["dropout"]
        D, H = layer["d_model"], attention["num_heads"]
        epsilon = {} if own_epsilon else {"epsilon": norm["epsilon"]}
        by_tanh = partial(keras.activations.gelu, approximate=True)
        activation = by_tanh if ffn["activation"] == "gelu_tanh" else ffn["activation"]
        self.pre = norm["placement"] == "pre"
        make_norm = getattr(layers, KINDS[norm["kind"]])
        self.norm1, self.norm2 = (make_norm(name=name, **epsilon) for name in ("norm1", "norm2"))
        inside = {"dropout": rates["attention_weights"], "use_bias": attention["qkv_bias"], "name": "attention"}
        self.attention = layers.MultiHeadAttention(H, key_dim=D // H, **inside)
        self.hidden = layers.Dense(ffn["d_ff"], activation=activation, use_bias=ffn["bias"], name="hidden")
        self.widened = layers.Dense(D, use_bias=ffn["bias"], name="output")
        self.dropouts = {place: layers.Dropout(rate) for place, rate in rates.items()}
        self(np.zeros((1, 1, D), dtype), None, False)  # Keras makes the weights at the first call
        every = [self.norm1, self.norm2, self.attention, self.hidden, self.widened, *self.dropouts.values()]
        # RMSNormalization calls its gain scale where LayerNormalization calls it gamma.
        self.held = {w.path.replace("/scale", "/gamma"): w for part in every for w in part.weights}
        weights = {id(weight) for weight in self.held.values()}
        self.seeds = [state for part in every for state in part.variables if id(state) not in weights]

    def __call__(self, x: Any, mask: Any, train: bool, weights: bool = False) -> Any:
        """The output; with `weights`, (attention weights, output)."""
        scores = None

        def attend(x: Any) -> Any:
            nonlocal scores
            found = self.attention(x, x, attention_mask=mask, training=train, return_attention_scores=weights)
            weighed, scores = found if weights else (found, None)
            return self.dropouts["attention_output"](weighed, training=train)

        def feed(x: Any) -> Any:
            hidden = self.dropouts["ffn_activation"](self.hidden(x), training=train)
            return self.dropouts["ffn_output"](self.widened(hidden), training=train)

        x = x + attend(self.norm1(x)) if self.pre else self.norm1(x + attend(x))
        x = x + feed(self.norm2(x)) if self.pre else self.norm2(x + feed(x))
        return (scores, x) if weights else x
