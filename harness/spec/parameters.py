"""The parameters of an encoder: names, shapes, and how each is drawn (clauses R-1, R-2 and P-5).

Weights are [in, out]: a projection is `x @ weight + bias`. The table is the only place that knows this.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from encoder_conformance.spec.layer import Layer

Size = Literal["d_model", "projection", "d_ff", "vocabulary"]


@dataclass(frozen=True)
class Parameter:
    """One parameter: `sizes` names its dimensions; `drawn` the portable pattern that its values follow."""

    name: str
    sizes: tuple[Size, ...]
    drawn: Literal["weight", "bias", "gain", "embedding"]
    held: Callable[["Layer"], bool]
    """Whether a layer has it."""

    def shape(self, layer: "Layer") -> tuple[int, ...]:
        shared = layer.attention.projections == "shared_by_heads"
        projection = layer.head_dim if shared else layer.d_model
        known = {"d_model": layer.d_model, "projection": projection, "d_ff": layer.feed_forward.d_ff}
        if layer.embedding is not None:
            known["vocabulary"] = layer.embedding.vocabulary
        return tuple(known[size] for size in self.sizes)


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
"""Of one encoder layer. In a stack each layer has its own, and their names begin with its prefix (clause R-2)."""

EMBEDDING = Parameter(
    "embedding.weight", ("vocabulary", "d_model"), "embedding", lambda layer: layer.embedding is not None
)
FINAL_NORM = _norm("final_norm", lambda layer: layer.stack.final_norm)

PARAMETER_NAMES: tuple[str, ...] = tuple(parameter.name for parameter in (EMBEDDING, *PARAMETERS, *FINAL_NORM))
"""Every name that a parameter may have, without the prefix of a layer of a stack."""


def prefix(number: int) -> str:
    """What the names of layer `number` of a stack begin with (clause R-2)."""
    return f"layers.{number}."


def without_prefix(name: str) -> tuple[str, str]:
    """A parameter's name as its layer's prefix, "" where it has none, and what it is in that layer."""
    if not name.startswith("layers."):
        return "", name
    word, number, bare = name.split(".", 2)
    return f"{word}.{number}.", bare


def parameters_of(layer: "Layer") -> tuple[Parameter, ...]:
    """The parameters that a layer or stack has, in the order in which it uses them."""
    part = "attention." if layer.part == "attention" else ""
    each = tuple(parameter for parameter in PARAMETERS if parameter.held(layer) and parameter.name.startswith(part))
    if not layer.is_stack:
        return each
    numbered = (replace(p, name=prefix(number) + p.name) for number in range(layer.stack.layers) for p in each)
    before = (EMBEDDING,) if EMBEDDING.held(layer) else ()
    return (*before, *numbered, *(parameter for parameter in FINAL_NORM if parameter.held(layer)))


def parameter_count(layer: "Layer") -> int:
    """How many numbers all its parameters are."""
    return sum(prod(parameter.shape(layer)) for parameter in parameters_of(layer))


def unlike(layer: "Layer", shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Why tensors of these names and shapes are not the parameters of `layer`; "" if they are."""
    due = {parameter.name: parameter.shape(layer) for parameter in parameters_of(layer)}
    if missing := sorted(set(due) - set(shapes)):
        return f"{_some(missing)} missing"
    if extra := sorted(set(shapes) - set(due)):
        return f"{_some(extra)} too many"
    for name, shape in due.items():
        if shapes[name] != shape:
            return f"{name} is {list(shapes[name])}, and the layer's is {list(shape)}"
    return ""


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
