"""Keras' MultiHeadAttention, LayerNormalization and Dense, put together as Keras' example of a Transformer does."""

import os
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from encoder_conformance import Adapter, Array, Environment, Fresh, Masks, RunRequest, Tensors, serve
from encoder_conformance.impls.bases.keras_layers.parameters import PARAMETERS


class KerasLayers(Adapter):
    def start(self, device: str, threads: int) -> Environment:
        backend = os.environ["KERAS_BACKEND"] = self.choices["backend"]  # which Keras reads when it is imported
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
        if backend == "jax":
            from encoder_conformance.impls.bases.jax_layers.process import set_up

            set_up(device, threads)
        self.keras, self.framework = import_module("keras"), import_module(backend)
        if backend == "tensorflow":
            self.framework.config.threading.set_intra_op_parallelism_threads(threads)
        versions = {"keras": self.keras.__version__, backend: self.framework.__version__, "numpy": np.__version__}
        return Environment(versions, {"threads": threads, **self.choices})

    def build(self, layer: dict[str, Any], parameters: Tensors, dtype: str) -> Tensors:
        from encoder_conformance.impls.bases.keras_layers.block import Block  # now that the backend is chosen

        self.heads = layer["attention"]["num_heads"]
        self.made = partial(Block, layer, dtype, own_epsilon=self.choices["defaults"] == "own")
        self.block = self.made()
        self.held, self.seeds = self.block.held, self.block.seeds
        for name, value in PARAMETERS.to_own(parameters, layer).items():
            self.held[name].assign(value)
        if self.choices["backend"] == "jax":
            self.framework.clear_caches()
            self.compiled = self.framework.jit(self.stateless, static_argnums=(3, 4))
        return PARAMETERS.to_spec({name: np.asarray(weight) for name, weight in self.held.items()})

    def initialise(self, seed: int) -> Fresh:
        self.keras.utils.set_random_seed(seed)
        held = {name: np.asarray(weight) for name, weight in self.made().held.items()}
        return Fresh(PARAMETERS.to_spec(held), PARAMETERS.spec_names(held))

    def stateless(self, values: Any, x: Any, *told: Any) -> Any:
        with self.keras.StatelessScope(list(zip([*self.held.values(), *self.seeds], values, strict=True))):
            return self.block(x, *told)

    def forward(self, x: Any, masks: Masks, run: RunRequest, weights: bool = False) -> Any:
        for number, state in enumerate(self.seeds):
            state.assign([run.seed, number])
        told = masks.joined(self.heads), run.mode == "train", weights
        if self.choices["backend"] == "tensorflow":
            return self.block(x, *told)
        return self.compiled([variable.value for variable in (*self.held.values(), *self.seeds)], x, *told)

    def output(self, x: Array, masks: Masks, run: RunRequest) -> Array:
        return np.asarray(self.forward(x, masks, run))

    def weights(self, x: Array, masks: Masks, run: RunRequest) -> Tensors:
        found = map(np.asarray, self.forward(x, masks, run, weights=True))
        return dict(zip(("attention_weights", "output"), found, strict=True))

    def gradients(self, x: Array, masks: Masks, run: RunRequest, cotangent: Array) -> Tensors:
        values = [weight.value for weight in self.held.values()]
        if self.choices["backend"] == "tensorflow":
            with self.framework.GradientTape() as tape:
                tape.watch(given := self.framework.constant(x))
                output = self.forward(given, masks, run)
            by_x, *by = tape.gradient(output, [given, *values], output_gradients=cotangent)
        else:
            told, seeds = (masks.joined(self.heads), run.mode == "train"), [seed.value for seed in self.seeds]
            whole = partial(self.framework.vjp, lambda x, *held: self.compiled([*held, *seeds], x, *told, False))
            by_x, *by = whole(x, *values)[1](cotangent)
        return {"x": np.asarray(by_x), **PARAMETERS.to_spec(dict(zip(self.held, map(np.asarray, by), strict=True)))}

    def refusal(self, operation: str, error: Exception) -> str | None:
        if operation == "run" and "shape" in str(error):  # TensorFlow's InvalidArgumentError, JAX's TypeError
            return "shape"
        return super().refusal(operation, error)


if __name__ == "__main__":
    serve(KerasLayers())
