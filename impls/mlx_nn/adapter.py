"""Drives mlx.nn.TransformerEncoderLayer, with the norms and biases that the layer asks for put in their places."""

from importlib.metadata import version
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

from encoder_conformance import Adapter, Array, Environment, Masks, ParameterMap, RunRequest, Take, Tensors, serve

ACTIVATIONS = {"relu": nn.relu, "gelu": nn.gelu, "gelu_tanh": nn.gelu_approx, "silu": nn.silu}
LINEAR = {f"attention.{name}_proj": f"attention.{name}" for name in ("query", "key", "value")}
LINEAR |= {"attention.out_proj": "attention.output", "linear1": "feed_forward.hidden", "linear2": "feed_forward.output"}
NORMS = {"ln1": "norm1", "ln2": "norm2"}
PARAMETERS = ParameterMap(
    {f"{own}.weight": Take(f"{name}.weight", transpose=True) for own, name in LINEAR.items()}
    | {f"{own}.bias": Take(f"{name}.bias") for own, name in LINEAR.items()}
    | {f"{own}.weight": Take(f"{name}.gain") for own, name in NORMS.items()}
    | {f"{own}.bias": Take(f"{name}.shift") for own, name in NORMS.items()}
)


class MlxNn(Adapter):
    map = PARAMETERS

    def start(self, device: str, threads: int) -> Environment:
        mx.set_default_device(mx.cpu)
        return Environment({"mlx": version("mlx"), "numpy": np.__version__})

    def build(self, layer: dict[str, Any], parameters: Tensors, dtype: str) -> Tensors:
        norm, attention, feed_forward = layer["norm"], layer["attention"], layer["feed_forward"]
        D, F, H, activation = layer["d_model"], feed_forward["d_ff"], attention["num_heads"], feed_forward["activation"]
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation {activation!r} is none of {', '.join(ACTIVATIONS)}")
        encoder = nn.TransformerEncoderLayer(D, H, F, 0.0, ACTIVATIONS[activation], norm["placement"] == "pre")
        encoder.attention = nn.MultiHeadAttention(D, H, bias=attention["qkv_bias"])
        encoder.attention.out_proj = nn.Linear(D, D, bias=attention["output_bias"])
        encoder.linear1 = nn.Linear(D, F, bias=feed_forward["bias"])
        encoder.linear2 = nn.Linear(F, D, bias=feed_forward["bias"])
        kind = nn.LayerNorm if norm["kind"] == "layer_norm" else nn.RMSNorm
        encoder.ln1, encoder.ln2 = kind(D, eps=norm["epsilon"]), kind(D, eps=norm["epsilon"])
        encoder.load_weights([(name, own(value)) for name, value in PARAMETERS.to_own(parameters, layer).items()])
        self.encoder, self.heads = encoder, H
        return to_spec(encoder.parameters())

    def output(self, x: Array, masks: Masks, run: RunRequest) -> Array:
        x = run.batch_first(x)
        return run.as_given(np.array(self.encoder(own(x), self.mask(masks, x.dtype))))

    def gradients(self, x: Array, masks: Masks, run: RunRequest, cotangent: Array) -> Tensors:
        x, by_output, held = run.batch_first(x), own(run.batch_first(cotangent)), self.encoder.parameters()

        def loss(parameters: Any, given: Any) -> Any:
            self.encoder.update(parameters)
            return (self.encoder(given, self.mask(masks, x.dtype)) * by_output).sum()

        by, by_x = mx.grad(loss, argnums=(0, 1))(held, own(x))
        self.encoder.update(held)
        return {"x": run.as_given(np.array(by_x)), **to_spec(by)}

    def mask(self, masks: Masks, dtype: Any) -> Any:
        """Bool as it is; where there is a bias of the scores, one that is added."""
        allowed, bias = masks.joined(self.heads), masks.added(self.heads)
        if bias is None:
            return own(allowed)
        return own((bias if allowed is None else np.where(allowed, bias, -np.inf)).astype(dtype))


def own(array: Array | None) -> Any:
    return None if array is None else mx.array(array, dtype=getattr(mx, array.dtype.name.replace("bool", "bool_")))


def to_spec(tree: Any) -> Tensors:
    return PARAMETERS.to_spec({name: np.array(value) for name, value in tree_flatten(tree)})


if __name__ == "__main__":
    serve(MlxNn())
