"""What the lines of an encoder are written by: the layer, its format and opset, and who writes attention and norms."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from encoder_conformance.spec.attention_choices import is_global, theta_of
from encoder_conformance.spec.plan import Step, plan, with_attributes

if TYPE_CHECKING:
    from encoder_conformance.spec.layer import Layer

Lines = list[str]


@dataclass(frozen=True)
class Form:
    """The layer to write, and the operators to write it with."""

    layer: Mapping[str, Any]
    dtype: str
    opset: int
    biased: bool
    """Whether `bias` is added to the scores."""
    attend: Callable[["Form"], Lines]
    """The lines from `query`, `key` and `value`, [B, H, S, d], to context."""
    norm: Callable[["Form", Step], Lines]
    """The lines of a norm."""
    turn: Callable[["Form", Step, str], Lines]
    """The lines of the rotation of a query or a key."""
    repeats: bool
    """Whether `attend` takes as many heads of keys and values as of queries."""
    number: int = 0
    """The layer's in a stack."""

    @property
    def attention(self) -> Mapping[str, Any]:
        attention: Mapping[str, Any] = self.layer["attention"]
        return attention

    @property
    def described(self) -> "Layer":
        """The layer with its keys as attributes."""
        return with_attributes(self.layer)

    @property
    def steps(self) -> tuple[Step, ...]:
        return plan(self.described, self.number)

    def of_number(self, number: int) -> "Form":
        return replace(self, number=number)

    def step(self, form: str) -> Step | None:
        """The first step of this form."""
        return next((step for step in self.steps if step.form == form), None)

    @property
    def window(self) -> Mapping[str, int] | None:
        """The keys before a query and after it that this layer sees (E-26, E-33)."""
        window: Mapping[str, int] | None = self.attention.get("window")
        return None if is_global(self.described, self.number) else window

    @property
    def theta(self) -> float | None:
        """The base of the frequencies of this layer's rotation (E-22, E-33)."""
        return theta_of(self.described, self.number)

    @property
    def reads_positions(self) -> bool:
        return any(self.attention.get(key) for key in ("rope", "position_bias", "window"))

    @property
    def has_gelu(self) -> bool:
        """From opset 20 on GELU is an operator. In float64 it is better written out: ONNX Runtime takes the operator's
        definition, whose √2 and √(2/π) are float32 (onnx/onnx, onnx/defs/math/defs.cc)."""
        return self.opset >= 20 and self.dtype != "float64"


def reduced(form: Form, y: str, operator: str, x: str, *, last: bool) -> str:
    """Along the last axis, which stays with size 1, or along all but the first. In opset 17 axes are an attribute."""
    keep, axes, listed = (1, "last_axis", [-1]) if last else (0, "inner_axes", [1, 2, 3])
    if form.opset >= 18:
        return f"{y} = {operator} <keepdims = {keep}> ({x}, {axes})"
    return f"{y} = {operator} <keepdims = {keep}, axes = {listed}> ({x})"
