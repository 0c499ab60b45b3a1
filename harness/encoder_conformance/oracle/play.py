"""A play of a layer or stack: steps taken on a tape, each in the form that the layer chooses or a deviation names."""

from collections.abc import Mapping
from typing import Any

from encoder_conformance.oracle.steps import VARIANTS, right_forms
from encoder_conformance.oracle.tape import Node, Onward, Tape
from encoder_conformance.spec.layer import Layer

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
