"""The parameters of an encoder layer: names, shapes, and how each is drawn (clauses R-1 and P-5).

Weights are [in, out]: a projection is `x @ weight + bias`. The table is the only place that knows this.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from harness.spec.layer import Layer

Size = Literal["d_model", "d_ff"]


@dataclass(frozen=True)
class Parameter:
    """One parameter: `sizes` names its dimensions; `drawn` the portable pattern that its values follow."""

    name: str
    sizes: tuple[Size, ...]
    drawn: Literal["weight", "bias", "gain"]

    def shape(self, layer: "Layer") -> tuple[int, ...]:
        known = {"d_model": layer.d_model, "d_ff": layer.feed_forward.d_ff}
        return tuple(known[size] for size in self.sizes)


def _linear(name: str, fan_in: Size, fan_out: Size) -> tuple[Parameter, Parameter]:
    return (
        Parameter(f"{name}.weight", (fan_in, fan_out), "weight"),
        Parameter(f"{name}.bias", (fan_out,), "bias"),
    )


def _norm(name: str) -> tuple[Parameter, Parameter]:
    return Parameter(f"{name}.gain", ("d_model",), "gain"), Parameter(f"{name}.shift", ("d_model",), "bias")


PARAMETERS: tuple[Parameter, ...] = (
    *_norm("norm1"),
    *_linear("attention.query", "d_model", "d_model"),
    *_linear("attention.key", "d_model", "d_model"),
    *_linear("attention.value", "d_model", "d_model"),
    *_linear("attention.output", "d_model", "d_model"),
    *_norm("norm2"),
    *_linear("feed_forward.hidden", "d_model", "d_ff"),
    *_linear("feed_forward.output", "d_ff", "d_model"),
)
PARAMETER_NAMES: tuple[str, ...] = tuple(parameter.name for parameter in PARAMETERS)
