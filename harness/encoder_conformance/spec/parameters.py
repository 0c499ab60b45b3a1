"""The parameters of an encoder: names, shapes and draw patterns (clauses R-1, R-2 and P-5).

Weights are [in, out]: a projection is `x @ weight + bias`. Only the table below encodes this.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Literal

from encoder_conformance.platform.clean import first_names

if TYPE_CHECKING:
    from encoder_conformance.spec.layer import Layer

Size = Literal["d_model", "projection", "d_ff", "vocabulary"]


@dataclass(frozen=True)
class Parameter:
    """One parameter. `sizes` names its dimensions, `drawn` the portable pattern of its values."""

    name: str
    sizes: tuple[Size, ...]
    drawn: Literal["weight", "bias", "gain", "embedding"]
    held: Callable[["Layer"], bool]
    """Whether a layer has the parameter."""

    def shape(self, layer: "Layer") -> tuple[int, ...]:
        shared = layer.attention.projections == "shared_by_heads"
        projection = layer.head_dim if shared else layer.d_model
        size_of = {"d_model": layer.d_model, "projection": projection, "d_ff": layer.feed_forward.d_ff}
        if layer.embedding is not None:
            size_of["vocabulary"] = layer.embedding.vocabulary
        return tuple(size_of[name] for name in self.sizes)


def _norm(name: str, held: Callable[["Layer"], bool] = lambda layer: True) -> tuple[Parameter, Parameter]:
    return (
        Parameter(f"{name}.gain", ("d_model",), "gain", held),
        Parameter(f"{name}.shift", ("d_model",), "bias", lambda layer: held(layer) and layer.norm.kind == "layer_norm"),
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
"""The parameters of one encoder layer. In a stack their names begin with the layer's prefix (clause R-2)."""

EMBEDDING = Parameter(
    "embedding.weight", ("vocabulary", "d_model"), "embedding", lambda layer: layer.embedding is not None
)
FINAL_NORM = _norm("final_norm", lambda layer: layer.stack.final_norm)

PARAMETER_NAMES: tuple[str, ...] = tuple(parameter.name for parameter in (EMBEDDING, *PARAMETERS, *FINAL_NORM))
"""Every parameter name, without the layer prefix of a stack."""


def prefix(number: int) -> str:
    """The prefix of the parameter names of layer `number` of a stack, from 0 (clause R-2)."""
    return f"layers.{number}."


@lru_cache(maxsize=4096)
def without_prefix(name: str) -> tuple[str, str]:
    """Split a parameter's name into its layer prefix, "" if there is none, and its name within that layer."""
    if not name.startswith("layers."):
        return "", name
    word, number, bare = name.split(".", 2)
    return f"{word}.{number}.", bare


def parameters_of(layer: "Layer") -> tuple[Parameter, ...]:
    """The parameters of a layer or stack, in the order of use."""
    part = "attention." if layer.part == "attention" else ""
    of_one = tuple(parameter for parameter in PARAMETERS if parameter.held(layer) and parameter.name.startswith(part))
    if not layer.is_stack:
        return of_one
    numbered = (replace(p, name=prefix(number) + p.name) for number in range(layer.stack.layers) for p in of_one)
    before = (EMBEDDING,) if EMBEDDING.held(layer) else ()
    return (*before, *numbered, *(parameter for parameter in FINAL_NORM if parameter.held(layer)))


def parameter_count(layer: "Layer") -> int:
    """The number of elements of all parameters together."""
    return sum(prod(parameter.shape(layer)) for parameter in parameters_of(layer))


def unlike(layer: "Layer", shapes: Mapping[str, tuple[int, ...]]) -> str:
    """The difference of tensors of these names and shapes from the parameters of `layer`; "" if they do not."""
    expected = {parameter.name: parameter.shape(layer) for parameter in parameters_of(layer)}
    if missing := sorted(set(expected) - set(shapes)):
        return f"{first_names(missing, 4)} missing"
    if extra := sorted(set(shapes) - set(expected)):
        return f"{first_names(extra, 4)} too many"
    for name, shape in expected.items():
        if shapes[name] != shape:
            return f"{name} is {list(shapes[name])}, and the layer's is {list(shape)}"
    return ""
