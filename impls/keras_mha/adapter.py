"""Keras' MultiHeadAttention, LayerNormalization and Dense, put together as Keras' example of a Transformer does."""

import os
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from harness.adapter import Adapter, Environment, Masks, ParameterMap, Take, Tensors, cache_folder, serve
from harness.adapter.base import Array

IN, BIAS, OUT = ("d_model", "num_heads", "head_dim"), ("num_heads", "head_dim"), ("num_heads", "head_dim", "d_model")
TAKES = {"attention/attention_output/kernel": Take("attention.output.weight", shape=OUT)}
TAKES["attention/attention_output/bias"] = Take("attention.output.bias")
for own, name, shape in (("kernel", "weight", IN), ("bias", "bias", BIAS)):
    TAKES |= {
        f"attention/{part}/{own}": Take(f"attention.{part}.{name}", shape=shape) for part in ("query", "key", "value")
    }
    TAKES |= {f"{linear}/{own}": Take(f"feed_forward.{linear}.{name}") for linear in ("hidden", "output")}
for norm in ("norm1", "norm2"):
    TAKES |= {f"{norm}/gamma": Take(f"{norm}.gain"), f"{norm}/beta": Take(f"{norm}.shift")}
PARAMETERS = ParameterMap(TAKES)


class KerasLayers(Adapter):
    def start(self, device: str, threads: int) -> Environment:
        if device != "cpu":
            raise ValueError(f"asked for {device}, but this adapter runs on the cpu only")
        backend = os.environ["KERAS_BACKEND"] = self.choices["backend"]  # which Keras reads when it is imported
        os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_ENABLE_X64": "1", "PJRT_NPROC": str(threads)}
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache_folder("jax") or ""))
        self.keras, self.framework = import_module("keras"), import_module(backend)
        if backend == "tensorflow":
            self.framework.config.threading.set_intra_op_parallelism_threads(threads)
        versions = {"keras": self.keras.__version__, backend: self.framework.__version__, "numpy": np.__version__}
        return Environment(versions, {"threads": threads, **self.choices})

    def build(self, layer: dict[str, Any], parameters: Tensors, dtype: str) -> Tensors:
        self.layer, layers, attention, F = layer, self.keras.layers, layer["attention"], layer["feed_forward"]
        self.keras.config.set_dtype_policy(dtype)
        norm, rates, H = layer["norm"], layer["dropout"], attention["num_heads"]
        by_tanh = partial(self.keras.activations.gelu, approximate=True)
        Norm = layers.LayerNormalization if norm["kind"] == "layer_norm" else layers.RMSNormalization
        epsilon = {} if self.choices["defaults"] == "own" else {"epsilon": norm["epsilon"]}
        self.norm1, self.norm2 = Norm(name="norm1", **epsilon), Norm(name="norm2", **epsilon)
        self.attention = layers.MultiHeadAttention(
            H, key_dim=layer["d_model"] // H, dropout=rates["attention_weights"], use_bias=attention["qkv_bias"],
            name="attention",
        )  # fmt: skip
        activation = by_tanh if F["activation"] == "gelu_tanh" else F["activation"]
        self.hidden = layers.Dense(F["d_ff"], activation=activation, use_bias=F["bias"], name="hidden")
        self.widened = layers.Dense(layer["d_model"], use_bias=F["bias"], name="output")
        self.dropouts = {place: layers.Dropout(rate) for place, rate in rates.items()}
        every = [self.norm1, self.norm2, self.attention, self.hidden, self.widened, *self.dropouts.values()]
        self.block(np.zeros((1, 1, layer["d_model"]), dtype), None, False)  # Keras makes the weights at the first call
        # RMSNormalization calls its gain scale where LayerNormalization calls it gamma.
        self.held = {w.path.replace("/scale", "/gamma"): w for layer in every for w in layer.weights}
        self.seeds = [v for layer in every for v in layer.variables if all(v is not w for w in self.held.values())]
        for name, value in PARAMETERS.to_own(parameters, self.layer).items():
            self.held[name].assign(value)
        if self.choices["backend"] == "jax":
            self.framework.clear_caches()
            self.compiled = self.framework.jit(self.stateless, static_argnums=(3, 4))
        return PARAMETERS.to_spec({name: np.asarray(weight) for name, weight in self.held.items()})

    def block(self, x: Any, mask: Any, train: bool, weights: bool = False) -> Any:
        def attend(x: Any) -> Any:
            found = self.attention(x, x, attention_mask=mask, training=train, return_attention_scores=weights)
            weighed, self.scores = found if weights else (found, None)
            return self.dropouts["attention_output"](weighed, training=train)

        def feed(x: Any) -> Any:
            hidden = self.dropouts["ffn_activation"](self.hidden(x), training=train)
            return self.dropouts["ffn_output"](self.widened(hidden), training=train)

        pre = self.layer["norm"]["placement"] == "pre"
        x = x + attend(self.norm1(x)) if pre else self.norm1(x + attend(x))
        x = x + feed(self.norm2(x)) if pre else self.norm2(x + feed(x))
        return (self.scores, x) if weights else x

    def stateless(self, values: Any, x: Any, *told: Any) -> Any:
        with self.keras.StatelessScope(list(zip([*self.held.values(), *self.seeds], values, strict=True))):
            return self.block(x, *told)

    def forward(self, x: Any, masks: Masks, weights: bool = False) -> Any:
        for number, state in enumerate(self.seeds):
            state.assign([self.seed, number])
        told = self.mask(masks), self.mode == "train", weights
        if self.choices["backend"] == "tensorflow":
            return self.block(x, *told)
        return self.compiled([variable.value for variable in (*self.held.values(), *self.seeds)], x, *told)

    def mask(self, masks: Masks) -> Array | None:
        return masks.joined(self.layer["attention"]["num_heads"])

    def output(self, x: Array, masks: Masks) -> Array:
        return np.asarray(self.forward(x, masks))

    def weights(self, x: Array, masks: Masks) -> Tensors:
        found = map(np.asarray, self.forward(x, masks, weights=True))
        return dict(zip(("attention_weights", "output"), found, strict=True))

    def gradients(self, x: Array, masks: Masks, cotangent: Array) -> Tensors:
        values = [weight.value for weight in self.held.values()]
        if self.choices["backend"] == "tensorflow":
            with self.framework.GradientTape() as tape:
                tape.watch(given := self.framework.constant(x))
                output = self.forward(given, masks)
            by_x, *by = tape.gradient(output, [given, *values], output_gradients=cotangent)
        else:
            told, seeds = (self.mask(masks), self.mode == "train"), [seed.value for seed in self.seeds]
            whole = partial(self.framework.vjp, lambda x, *held: self.compiled([*held, *seeds], x, *told, False))
            by_x, *by = whole(x, *values)[1](cotangent)
        by = map(np.asarray, by)
        return {"x": np.asarray(by_x), **PARAMETERS.to_spec(dict(zip(self.held, by, strict=True)))}

    def refusal(self, operation: str, error: Exception) -> str | None:
        if operation == "run" and "shape" in str(error):  # TensorFlow's InvalidArgumentError, JAX's TypeError
            return "shape"
        return super().refusal(operation, error)


if __name__ == "__main__":
    serve(KerasLayers())
