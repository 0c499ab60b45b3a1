"""The parameters of an encoder layer: names, shapes, and how each is drawn (clauses R-1 and P-5).

Weights are [in, out]: a projection is `x @ weight + bias`. The table is the only place that knows this.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from harness.spec.layer import Layer

Size = Literal["d_model", "projection", "d_ff"]


@dataclass(frozen=True)
class Parameter:
    """One parameter: `sizes` names its dimensions; `drawn` the portable pattern that its values follow."""

    name: str
    sizes: tuple[Size, ...]
    drawn: Literal["weight", "bias", "gain"]
    held: Callable[["Layer"], bool]
    """Whether a layer has it."""

    def shape(self, layer: "Layer") -> tuple[int, ...]:
        shared = layer.attention.projections == "shared_by_heads"
        projection = layer.head_dim if shared else layer.d_model
        known = {"d_model": layer.d_model, "projection": projection, "d_ff": layer.feed_forward.d_ff}
        return tuple(known[size] for size in self.sizes)


def _norm(name: str) -> tuple[Parameter, Parameter]:
    return (
        Parameter(f"{name}.gain", ("d_model",), "gain", lambda layer: True),
        Parameter(f"{name}.shift", ("d_model",), "bias", lambda layer: layer.norm.kind == "layer_norm"),
    )


def _linear(name: str, fan_in: Size, fan_out: Size, biased: Callable[["Layer"], bool]) -> tuple[Parameter, Parameter]:
    return (
        Parameter(f"{name}.weight", (fan_in, fan_out), "weight", lambda layer: True),
        Parameter(f"{name}.bias", (fan_out,), "bias", biased),
    )


PARAMETERS: tuple[Parameter, ...] = (
    *_norm("norm1"),
    *_linear("attention.query", "projection", "projection", lambda layer: layer.attention.qkv_bias),
    *_linear("attention.key", "projection", "projection", lambda layer: layer.attention.qkv_bias),
    *_linear("attention.value", "projection", "projection", lambda layer: layer.attention.qkv_bias),
    *_linear("attention.output", "d_model", "d_model", lambda layer: layer.attention.output_bias),
    *_norm("norm2"),
    *_linear("feed_forward.hidden", "d_model", "d_ff", lambda layer: layer.feed_forward.bias),
    *_linear("feed_forward.output", "d_ff", "d_model", lambda layer: layer.feed_forward.bias),
)
PARAMETER_NAMES: tuple[str, ...] = tuple(parameter.name for parameter in PARAMETERS)
"""Every name that a layer's parameters may have."""


def parameters_of(layer: "Layer") -> tuple[Parameter, ...]:
    """The parameters that a layer has, in the order in which it uses them."""
    return tuple(parameter for parameter in PARAMETERS if parameter.held(layer))
