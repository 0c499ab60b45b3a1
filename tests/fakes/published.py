"""Published encoder layers in NumPy, each with the bug that it was published with, and nothing else wrong."""

from typing import Any

import numpy as np
from scipy.special import erf

from encoder_conformance import Adapter, Environment, Tensors

Array = Any


def norm(x: Array, gain: Array, shift: Array, epsilon: float) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred * centred, -1, keepdims=True) + x.dtype.type(epsilon)) * gain + shift


def softmax(scores: Array) -> Array:
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def gelu(x: Array) -> Array:
    return x * (1 + erf(x / np.sqrt(x.dtype.type(2)))) / 2


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


class Published(Adapter):
    """One layer, pre- or post-norm; subclasses say what its attention is. Shows what a module's hooks would."""

    def start(self, device: str, threads: int) -> Environment:
        return Environment({"numpy": np.__version__})

    def build(self, layer: dict[str, Any], parameters: Tensors, dtype: str) -> Tensors:
        self.layer, self.parameters = layer, parameters
        self.heads, self.epsilon = layer["attention"]["num_heads"], layer["norm"]["epsilon"]
        self.activation = {"relu": relu, "gelu": gelu}[layer["feed_forward"]["activation"]]
        return parameters

    def linear(self, name: str, x: Array) -> Array:
        bias = self.parameters.get(f"{name}.bias")
        y = x @ self.parameters[f"{name}.weight"]
        return y if bias is None else y + bias

    def norm(self, name: str, x: Array) -> Array:
        gain, shift = self.parameters[f"{name}.gain"], self.parameters[f"{name}.shift"]
        return norm(x, gain, shift, self.epsilon)

    def weights(self, scores: Array, mask: Array | None, bias: Array | None, fill: float) -> Array:
        if bias is not None:
            scores = scores + bias
        return softmax(scores if mask is None else np.where(mask, scores, fill))

    def feed_forward(self, x: Array) -> Array:
        return self.linear("feed_forward.output", self.activation(self.linear("feed_forward.hidden", x)))

    def attention(self, x: Array, mask: Array | None, bias: Array | None) -> Array:
        raise NotImplementedError

    def stages(self, x: Array, masks: Any, run: Any) -> Tensors:
        """Of those stages that modules are called for."""
        given = masks.joined(self.heads), masks.added(self.heads)
        if self.layer["norm"]["placement"] == "pre":
            seen = {"norm1": self.norm("norm1", x)}
            seen["attention_output"] = self.attention(seen["norm1"], *given)
            x = x + seen["attention_output"]
            seen["norm2"] = self.norm("norm2", x)
            seen["ffn_output"] = self.feed_forward(seen["norm2"])
            return {**seen, "output": x + seen["ffn_output"]}
        seen = {"attention_output": self.attention(x, *given)}
        seen["norm1"] = self.norm("norm1", x + seen["attention_output"])
        seen["ffn_output"] = self.feed_forward(seen["norm1"])
        seen["norm2"] = self.norm("norm2", seen["norm1"] + seen["ffn_output"])
        return {**seen, "output": seen["norm2"]}

    def output(self, x: Array, masks: Any, run: Any) -> Array:
        return run.as_given(self.stages(run.batch_first(x), masks, run)["output"])


class ProjectionsDeclared(Published):
    """Per-head projections that are declared and never applied; scores over the root of d_model, masked by −1e20."""

    def attention(self, x: Array, mask: Array | None, bias: Array | None) -> Array:
        B, S, D = x.shape
        heads = x.reshape(B, S, self.heads, -1)
        scores = np.einsum("bqhd,bkhd->bhqk", heads, heads) / np.sqrt(x.dtype.type(D))
        weights = self.weights(scores, mask, bias, x.dtype.type(-1e20))
        context = np.einsum("bhqk,bkhd->bqhd", weights, heads).reshape(B, S, D)
        return self.linear("attention.output", context)


class Placeholder(Published):
    """Attention that projects the query, and gives the output projection of that."""

    def attention(self, x: Array, mask: Array | None, bias: Array | None) -> Array:
        return self.linear("attention.output", self.linear("attention.query", x))


class Reshaped(Published):
    """Heads by a reshape to [B, H, S, d] with no transpose, and back likewise, as in Lucid 2.9.0."""

    def attention(self, x: Array, mask: Array | None, bias: Array | None) -> Array:
        B, S, D = x.shape
        made = (self.linear(f"attention.{name}", x) for name in ("query", "key", "value"))
        q, k, v = (each.reshape(B, self.heads, S, -1) for each in made)
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(x.dtype.type(q.shape[-1]))
        weights = self.weights(scores, mask, bias, -np.inf)
        return self.linear("attention.output", (weights @ v).reshape(B, S, D))
