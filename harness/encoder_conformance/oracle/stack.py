"""A stack of encoder layers: embedding, positions, one layer after the other, final norm (E-14 to E-16)."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from encoder_conformance.oracle.steps import VARIANTS, right_forms
from encoder_conformance.oracle.tape import Node, Onward, Tape, as_computed
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.parameters import prefix
from encoder_conformance.spec.stages import layer_stage, shows_inside

Stages = dict[str, Node]


class Play:
    """The steps of one play, and the `stages` that it has shown, in order.

    `wrong_forms`: step → the wrong form that takes the place of the right one. `onward` may replace a stage for the
    steps after it.
    """

    def __init__(
        self, tape: Tape, layer: Layer, parameters: Mapping[str, Node], wrong_forms: Mapping[str, str], onward: Onward
    ) -> None:
        self.tape, self.layer, self.parameters, self.onward = tape, layer, parameters, onward
        self.stages: Stages = {}
        self._forms = {**right_forms(layer), **wrong_forms}

    def form(self, step: str) -> Any:
        return VARIANTS[step][self._forms.get(step, "standard")]

    def step(self, name: str, *operands: Node, **choices: object) -> Node:
        return self.tape.apply(self.form(name), *operands, **choices)

    def show(self, name: str, node: Node) -> Node:
        """Record a stage. Returns the node that later steps are given for it."""
        self.stages[name] = node
        return self.onward(name, node)


OneLayer = Callable[[Stages, Node, Onward], Stages]
"""An encoder layer: (its own parameters, its input, the replacement of stages) → its stages."""


class StackPlay(Play):
    """The play of a stack; `stages` has every stage, in order."""

    def run(self, given: Node | Array, one: OneLayer) -> list[Stages]:
        """The stages of each layer. `given`: x [B, S, D], or token ids [B, S] for a layer with an embedding."""
        inner: list[Stages] = []
        x = self._embedded(given)
        for number, taken in enumerate(self.form("layer_order")(self.layer.stack.layers)):
            if number and self.layer.embedding is not None:
                x = self.step("between_layers", x)
            inner.append(self._layer(number, taken, x, one))
            x = self.show(layer_stage(number), inner[-1]["output"])
        self.show("output", self._end(x))
        return inner

    def _embedded(self, given: Node | Array) -> Node:
        if self.layer.embedding is None:
            assert isinstance(given, Node)
            return given
        x = self.step("positions", self.step("tokens", self.parameters["embedding.weight"], ids=given))
        return self.show("embedded", self.step("after_embedding", x, dropout=self.layer.dropout.embedded))

    def _layer(self, number: int, taken: int | None, x: Node, one: OneLayer) -> Stages:
        """The stages of layer `number`, with the parameters of layer `taken`; those of a layer left out are NaN."""
        start, stage = prefix(number if taken is None else taken), layer_stage(number)
        own = {name.removeprefix(start): self.parameters[name] for name in self.parameters if name.startswith(start)}
        shown = shows_inside(self.layer.stack.layers)
        inside = one(own, x, (lambda name, node: self.onward(f"{stage}.{name}", node)) if shown else as_computed)
        if taken is None:
            inside = {name: Node(np.full_like(node.value, np.nan)) for name, node in inside.items()} | {"output": x}
        if shown:
            self.stages |= {f"{stage}.{name}": node for name, node in inside.items() if name != "output"}
        return inside

    def _end(self, x: Node) -> Node:
        """The final norm, or the step in its place in a stack without one."""
        has_norm, size = self.layer.stack.final_norm, self.layer.d_model
        gain = self.parameters.get("final_norm.gain", self.tape.leaf(np.ones(size)))
        shift = self.parameters.get("final_norm.shift", self.tape.leaf(np.zeros(size)))
        step = "stack_norm" if has_norm else "stack_end"
        x = self.step(step, x, gain, shift, epsilon=self.layer.norm.epsilon)
        return self.show("final_norm", x) if has_norm else x
