"""The feed-forward network (E-8), of parameters hidden: kernel [D, F], bias [F]; output: kernel [F, D], bias [D]; and
gate, as hidden, if it has one (E-19)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
from jax import Array

from encoder_conformance.impls.bases.tap import Tap
from encoder_conformance.impls.jax_pure.attention import Masks
from encoder_conformance.impls.jax_pure.dropout import Drop, Sites
from encoder_conformance.impls.jax_pure.primitives import Tree, linear

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,  # E-6
    "gelu": partial(jax.nn.gelu, approximate=False),  # E-7, by erf; JAX's default is the tanh approximation
    "gelu_tanh": partial(jax.nn.gelu, approximate=True),  # E-10
    "silu": jax.nn.silu,  # E-11
    "quick_gelu": lambda x: x * jax.nn.sigmoid(1.702 * x),  # E-18
}


@dataclass(frozen=True)
class FeedForward:
    activation: str
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation = {self.activation!r}, not one of {', '.join(ACTIVATIONS)}")

    def __call__(self, p: Tree, x: Array, masks: Masks, tap: Tap[Array], drop: Drop) -> Array:
        """[B, S, D]. It computes each position by itself, and looks at no mask."""
        activation = ACTIVATIONS[self.activation]
        if "gate" in p:
            gate = tap("ffn_activation", activation(tap("ffn_gate", linear(p["gate"], x))))
            h = tap("ffn_gated", gate * tap("ffn_hidden", linear(p["hidden"], x)))
        else:
            h = tap("ffn_activation", activation(tap("ffn_hidden", linear(p["hidden"], x))))  # [B, S, F]
        return tap("ffn_output", linear(p["output"], drop("ffn_activation", self.dropout, h)))

    def sites(self, p: Tree, x: Array) -> Sites:
        return {"ffn_activation": (self.dropout, (*x.shape[:2], p["hidden"]["kernel"].shape[-1]))}
