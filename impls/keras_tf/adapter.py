"""Drives the Keras encoder on TensorFlow, eagerly, in the precision of its dtype policy."""

import os
from dataclasses import dataclass
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
import tensorflow as tf
from keras import KerasTensor as Tensor

from encoder_conformance import (
    Adapter,
    Array,
    Environment,
    Fresh,
    Masks,
    Recent,
    RunRequest,
    Tensors,
    between_taps,
    serve,
)
from encoder_conformance.impls.bases.own_names import parameter_map
from encoder_conformance.impls.bases.tap import Tap, untapped
from encoder_conformance.impls.keras_tf.building import encoder_of
from encoder_conformance.impls.keras_tf.stack import without_padding

PARAMETERS = parameter_map(
    {
        "weight": "kernel",
        "gain": "gamma",
        "shift": "beta",
        "attention.output": "attention.out",
        "attention_output_norm": "norm_after1",
        "layer_scale1.gain": "layer_scale1.gain",
        "feed_forward.output": "feed_forward.out",
        "ffn_output_norm": "norm_after2",
        "layer_scale2.gain": "layer_scale2.gain",
        "embedding.weight": "embedding.tokens.embeddings",
        "token_type_embedding.weight": "embedding.types.embeddings",
        "position_embedding.weight": "embedding.learned.table",
        "embedding_norm": "embedding.norm",
        "final_norm": "norm",
    },
    joined_by="/",
    of_layer="layer_{}/",
)


LAYERS_KEPT = 16
"""Other parameters are put into an encoder that was made before, for Keras takes 60 ms to make one."""


@dataclass(frozen=True)
class Made:
    encoder: keras.layers.Layer
    held: dict[str, keras.Variable]
    """The weights by our names of them."""

    @classmethod
    def of(cls, layer: dict[str, Any], dtype: str) -> "Made":
        encoder = encoder_of(layer, dtype)
        takes_ids = layer["embedding"] and layer["embedding"]["vocabulary"] is not None
        encoder.build((None, None) if takes_ids else (None, None, layer["d_model"]))
        # The path of a weight is encoder_layer_7/norm1/gamma; the encoder's own name counts up. RMSNormalization calls
        # its gain scale where LayerNormalization calls it gamma.
        paths = [weight.path.partition("/")[2].replace("/scale", "/gamma") for weight in encoder.weights]
        return cls(encoder, dict(zip(paths, encoder.weights, strict=True)))


class KerasTensorFlow(Adapter):
    map = PARAMETERS

    def __init__(self) -> None:
        self.recent = Recent[Made](LAYERS_KEPT)

    def start(self, device: str, threads: int) -> Environment:
        tf.config.set_visible_devices([], "GPU")
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
        versions = {"keras": keras.__version__, "tensorflow": tf.__version__, "numpy": np.__version__}
        return Environment(versions, {"threads": threads, "backend": keras.backend.backend()})

    def build(self, layer: dict[str, Any], parameters: Tensors, dtype: str) -> Tensors:
        self.layer, self.dtype, self.heads = layer, dtype, layer["attention"]["num_heads"]
        self.take(self.recent.get((layer, dtype), lambda: Made.of(layer, dtype)))
        for name, value in PARAMETERS.to_own(parameters, layer).items():
            self.held[name].assign(value)
        return self.parameters()

    def parameters(self) -> Tensors:
        """The parameters that the live layer holds, in the specification's names."""
        return PARAMETERS.to_spec({name: weight.numpy() for name, weight in self.held.items()})

    def initialise(self, seed: int) -> Fresh:
        keras.utils.set_random_seed(seed)
        self.take(Made.of(self.layer, self.dtype))
        trained = [name for name, weight in self.held.items() if weight.trainable]
        return Fresh(self.parameters(), PARAMETERS.spec_names(trained))

    def take(self, made: Made) -> None:
        self.encoder, self.held = made.encoder, made.held

    def output(self, x: Array, masks: Masks, run: RunRequest) -> Array:
        return run.as_given(self.forward(run.batch_first(x), masks, run).numpy())

    def stages(self, x: Array, masks: Masks, run: RunRequest) -> Tensors:
        seen: Tensors = {}

        def tap(name: str, stage: Tensor) -> Tensor:
            seen[name] = stage.numpy()
            return stage

        self.forward(x, masks, run, tap)
        return seen

    def gradients(self, x: Array, masks: Masks, run: RunRequest, cotangent: Array) -> Tensors:
        given, wanted = tf.constant(run.batch_first(x)), {name: w.value for name, w in self.held.items()}
        if given.dtype.is_floating:  # and no token ids
            wanted["x"] = given
        if run.memory is not None:
            wanted["memory"] = memory = tf.constant(run.memory)
        with tf.GradientTape() as tape:
            tape.watch(given)
            if run.memory is not None:
                tape.watch(memory)
                output = self.attended(given, memory, masks)
            elif run.checkpoint:
                output = tf.recompute_grad(lambda x: self.forward(x, masks, run))(given)
            else:
                output = self.forward(given, masks, run)
        by_output = tf.constant(run.batch_first(cotangent))
        found = tape.gradient(output, list(wanted.values()), output_gradients=by_output)
        # Of the embedding it is the rows that were taken, until it is made a tensor.
        by = {name: tf.convert_to_tensor(found).numpy() for name, found in zip(wanted, found, strict=True)}
        by_x = {"x": run.as_given(by.pop("x"))} if "x" in by else {}
        if "memory" in by:
            by_x["memory"] = by.pop("memory")
        return {**by_x, **PARAMETERS.to_spec(by)}

    def profile(self, x: Array, masks: Masks, run: RunRequest, repeats: int) -> Tensors:
        given = tf.constant(x)
        return between_taps(lambda tap: self.forward(given, masks, run, tap), repeats)

    def attended(self, x: Tensor, memory: Tensor, masks: Masks, tap: Tap[Tensor] = untapped) -> Tensor:
        """The output of attention alone."""
        added = masks.added(self.heads)
        bias = None if added is None else tf.cast(added, self.encoder.compute_dtype)
        return self.encoder(x, memory, masks.joined(self.heads), bias, tap=tap)

    def forward(self, x: Tensor, masks: Masks, run: RunRequest, tap: Tap[Tensor] = untapped) -> Tensor:
        if run.memory is not None:
            return self.attended(x, run.memory, masks, tap)
        self.encoder.reseed(run.seed)
        mask, added, valid = masks.joined(self.heads), masks.added(self.heads), masks.valid()
        bias = None if added is None else tf.cast(added, self.encoder.compute_dtype)
        if masks.padding_id is not None:
            mask, valid = without_padding(x, masks.padding_id, mask)
        given = x if run.positions is None else (x, tf.constant(run.positions[..., 0]))
        types = {} if run.token_types is None else {"types": tf.constant(run.batch_first(run.token_types))}
        return self.encoder(given, mask, bias, valid, tap=tap, training=run.mode == "train", **types)


if __name__ == "__main__":
    serve(KerasTensorFlow())
