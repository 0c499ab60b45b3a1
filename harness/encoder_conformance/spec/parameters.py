"""The parameters of an encoder: names, shapes and draw patterns (clauses R-1, R-2 and P-5).

Weights are [in, out]: a projection is `x @ weight + bias`. The plan (`spec/plan.py`) says who has which.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Literal

from encoder_conformance.platform.clean import first_names
from encoder_conformance.spec.plan import Step, layer_sizes, plan, stack_plan
from encoder_conformance.spec.steps import STEPS

if TYPE_CHECKING:
    from encoder_conformance.spec.layer import Layer

Pattern = Literal["weight", "bias", "gain", "embedding"]


@dataclass(frozen=True)
class Parameter:
    """One parameter. `axes` are the letters of `spec/plan.py`, `drawn` the portable pattern of its values."""

    name: str
    axes: str
    drawn: Pattern

    def shape(self, layer: "Layer") -> tuple[int, ...]:
        sizes = layer_sizes(layer)
        return tuple(sizes[letter] for letter in self.axes.split())


def _parameters(steps: Iterable[Step]) -> dict[str, Parameter]:
    """Name → the parameters of these steps, in order."""
    return {
        name: Parameter(name, axes, "embedding" if axes[0] in "VRUL" else _DRAWN[name.rpartition(".")[2]])
        for step in steps
        for name, axes in step.parameter_axes().items()
    }


_DRAWN: Mapping[str, Pattern] = {"weight": "weight", "bias": "bias", "gain": "gain", "shift": "bias", "vector": "bias"}

PARAMETER_NAMES: tuple[str, ...] = tuple(_parameters(STEPS.values()))
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


@lru_cache(maxsize=64)
def parameters_of(layer: "Layer") -> tuple[Parameter, ...]:
    """The parameters of a layer or stack, each norm's before those of its sub-layer, wherever it is placed.

    In a stack the names of a layer's begin with its prefix (clause R-2).
    """
    as_pre_norm = layer
    if layer.norm.placement == "post":
        as_pre_norm = layer.model_copy(update={"norm": layer.norm.model_copy(update={"placement": "pre"})})
    if not layer.is_stack:
        return tuple(_parameters(plan(as_pre_norm)).values())
    found: list[Parameter] = []
    for step in stack_plan(layer):
        for number in range(layer.stack.layers) if step.form == "layers" else ():
            own = _parameters(plan(as_pre_norm, number)).values()
            found += [replace(parameter, name=prefix(number) + parameter.name) for parameter in own]
        found += _parameters([step]).values()
    return tuple(found)


@lru_cache(maxsize=64)
def parameter_shapes(layer: "Layer") -> Mapping[str, tuple[int, ...]]:
    """Name → the shape of each parameter of a layer or stack, in the order of `parameters_of`."""
    return {parameter.name: parameter.shape(layer) for parameter in parameters_of(layer)}


def parameter_count(layer: "Layer") -> int:
    """The number of elements of all parameters together."""
    count = sum(_count(layer, plan(layer, number)) for number in range(layer.stack.layers))
    return count + _count(layer, stack_plan(layer)) if layer.is_stack else count


def _count(layer: "Layer", steps: Iterable[Step]) -> int:
    return sum(prod(parameter.shape(layer)) for parameter in _parameters(steps).values())


def unlike(layer: "Layer", shapes: Mapping[str, tuple[int, ...]]) -> str:
    """The difference of tensors of these names and shapes from the parameters of `layer`; "" if they do not."""
    expected = parameter_shapes(layer)
    if missing := sorted(set(expected) - set(shapes)):
        return f"{first_names(missing, 4)} missing"
    if extra := sorted(set(shapes) - set(expected)):
        return f"{first_names(extra, 4)} too many"
    for name, shape in expected.items():
        if shapes[name] != shape:
            return f"{name} is {list(shapes[name])}, and the layer's is {list(shape)}"
    return ""
