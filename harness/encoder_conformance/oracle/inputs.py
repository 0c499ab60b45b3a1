"""The inputs of a play: what a case gives a layer, and what a wrong implementation makes of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np

from encoder_conformance.oracle.forms.softmax import Largest
from encoder_conformance.spec.axes import BS, BSA, Array, P
from encoder_conformance.spec.case import Case, with_appended
from encoder_conformance.spec.equation import Equation
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.plan import Step
from encoder_conformance.spec.stages import appended_keys


@dataclass(frozen=True)
class LayerInputs:
    """The inputs of a layer: x [B, S, D], or token ids [B, S] if it has an embedding; every parameter; mask and bias of
    the scores, broadcastable to [B, H, S, T], or None; and for attention alone the memory [B, T, D]."""

    x: Array
    parameters: Mapping[str, Array]
    mask: Array | None
    bias: Array | None = None
    variants: Mapping[str, str] = field(default_factory=dict)
    """Step → the wrong variant of its form that is played; every other step takes the layer's right one."""
    epsilons: Mapping[str, float] = field(default_factory=dict)
    """Norm → the wrong epsilon that it has; every other has the layer's."""
    equations: Mapping[str, Equation] = field(default_factory=dict)
    """Stage → the wrong equation that it is computed by (rule V-12)."""
    items: tuple[int, ...] | None = None
    """The items that are evaluated; None for all. Of the others every stage and gradient is 0."""
    queries: P | None = None
    """The positions, ascending, whose output is evaluated; None for all. Keys and values are of all."""
    memory: Array | None = None
    positions: BSA | None = None
    """[B or 1, S, axes], where the positions of x lie; None for 0 … S − 1."""
    token_types: BS | None = None
    """[B, S], the types of tokens; None where all are of type 0."""
    valid: BS | None = None
    """[B, S], true at what is no padding; None without padding."""
    largest: Largest = "detached"

    def of_items(self, values: Array) -> Array:
        """[B or 1, …] at the items that are evaluated."""
        return values if self.items is None or len(values) == 1 else values[list(self.items)]

    @property
    def evaluated(self) -> "LayerInputs":
        """These inputs at the evaluated items, and the mask and bias at the evaluated queries."""
        of_items = self.with_x(self.of_items(self.x), self.of_items)
        if self.queries is None:
            return of_items
        mask, bias = (None if each is None else self._of_queries(each) for each in (of_items.mask, of_items.bias))
        return replace(of_items, mask=mask, bias=bias)

    def _of_queries(self, scores: Array) -> Array:
        """[…, S or 1, T or 1] at the evaluated queries."""
        return scores if scores.shape[-2] == 1 else scores[..., self.queries, :]

    def with_x(self, x: Array, beside: Callable[[Array], Array]) -> "LayerInputs":
        """These inputs with another x, and with `beside` of each input beside it that there is."""
        mask, bias, memory, positions, types, valid = (
            None if each is None else beside(each)
            for each in (self.mask, self.bias, self.memory, self.positions, self.token_types, self.valid)
        )
        scores = replace(self, x=x, mask=mask, bias=bias)
        return replace(scores, memory=memory, positions=positions, token_types=types, valid=valid)

    def beside_x(self, layer: Layer) -> dict[str, Array]:
        """What an equation may name beside x, parameters and stages (V-12), as far as there is any of it."""
        scores = {"mask": self.of_scores(layer, self.mask, True), "bias": self.of_scores(layer, self.bias, 0.0)}
        named = {"memory": self.memory, **scores, "positions": self.positions}
        return {name: value for name, value in named.items() if value is not None}

    def of_scores(self, layer: Layer, by_key: Array | None, appended: float | bool) -> Array | None:
        """A mask or bias […, T or 1], with a value for the key that is no position's where the layer has one (E-44)."""
        keys = (self.x if self.memory is None else self.memory).shape[1]
        return None if by_key is None else with_appended(by_key, keys, appended_keys(layer), appended)

    @property
    def types(self) -> BS:
        """[B, S], the types of tokens."""
        return np.zeros(self.x.shape[:2], np.int64) if self.token_types is None else self.token_types

    def of_batch(self, values: Array) -> Array:
        """[items, …] as [B, …], the inverse of `of_items`; 0 at the other items."""
        if self.items is None:
            return values
        whole = np.zeros((len(self.x), *values.shape[1:]), dtype=values.dtype)
        whole[list(self.items)] = values
        return whole


def given(case: Case) -> LayerInputs:
    """The inputs of the case's layer, all right."""
    x = case.ids() if case.layer.takes_ids else case.x()
    scores = case.mask(), case.attention_bias()
    items, memory, positions = case.situation.items, case.memory(), case.coordinates()
    of_x = LayerInputs(x, case.parameters(), *scores, items=items, memory=memory, positions=positions)
    valid = None if case.situation.mask.padding is None else case.valid()
    return replace(of_x, token_types=case.token_types(), valid=valid)


def steps_alike(steps: Sequence[Step], one: LayerInputs, other: LayerInputs) -> int:
    """How many of the first steps are the same with both inputs: by the same forms, of the very same arrays."""
    if any(getattr(one, name) is not getattr(other, name) for name in _EVERYWHERE):
        return 0
    if one.parameters.keys() != other.parameters.keys():
        return 0
    edited = {name for name, value in one.parameters.items() if other.parameters[name] is not value}
    owners = {name.rpartition(".")[0] for name in edited}
    variants, epsilons, equations = (
        {name for name in mine.keys() | others.keys() if mine.get(name) != others.get(name)}
        for mine, others in ((getattr(one, of), getattr(other, of)) for of in _BY_STEP)
    )
    for number, step in enumerate(steps):
        masked = step.form == "softmax" and one.mask is not other.mask
        changed = step.step in variants or step.makes in epsilons or step.makes in equations or step.owner in owners
        if masked or changed:
            return number
    return len(steps)


_BY_STEP = "variants", "epsilons", "equations"
_EVERYWHERE = [each.name for each in fields(LayerInputs) if each.name not in ("parameters", "mask", *_BY_STEP)]
"""What any step may read."""
