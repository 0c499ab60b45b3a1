"""Plays a plan: each step in its order, by the right variant of its form or by a wrong one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from encoder_conformance.oracle.equation import Operands, evaluate
from encoder_conformance.oracle.forms import FORMS
from encoder_conformance.oracle.forms.by_layer import Planned
from encoder_conformance.oracle.forms.softmax import MaskedSoftmax
from encoder_conformance.oracle.inputs import LayerInputs, steps_alike
from encoder_conformance.oracle.tape import Node, Onward, Tape, as_computed
from encoder_conformance.spec.axes import D
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.parameters import prefix
from encoder_conformance.spec.plan import Step, between_layers, layer_sizes, plan
from encoder_conformance.spec.stages import layer_stage, shows_inside

Stages = dict[str, Node]


class Play:
    """The play of one layer, or of attention alone; `stages` has what it has shown, in order.

    `inputs` are those of the evaluated items, `known` the nodes of x and memory, and then of each step. `onward` may
    replace a stage for the steps after it. `number`: the layer's in a stack, from 0.
    """

    def __init__(
        self,
        tape: Tape,
        layer: Layer,
        parameters: Mapping[str, Node],
        inputs: LayerInputs,
        onward: Onward = as_computed,
        number: int = 0,
    ) -> None:
        self.tape, self.layer, self.parameters, self.inputs, self.onward = tape, layer, parameters, inputs, onward
        self.number = number
        self.stages, self.known = Stages(), Stages()
        self._of_keys, self._of_queries = frozenset[str](), Stages()
        self._softmax: MaskedSoftmax | None = None

    def run(self, steps: Sequence[Step], **given: Node) -> Stages:
        """Every stage, in order. Given are x [B, S, D] or ids [B, S], and for attention alone memory [B, T, D]."""
        self.known |= given
        if (bias := self.inputs.of_scores(self.layer, self.inputs.bias, 0.0)) is not None:
            self.known["bias"] = Node(bias)
        if self.inputs.queries is not None:
            self._of_keys = of_keys(steps)
            self._of_queries["x"] = self._at_queries(given["x"])
        self.tape.run(self, steps)
        return self.stages

    def alike(self, earlier: "Play", steps: Sequence[Step]) -> int:
        """How many of the first steps an earlier play took with the very same operands."""
        by_name = {step.makes for step in steps}
        if earlier.layer is not self.layer or type(earlier) is not type(self) or len(by_name) < len(steps):
            return 0
        return steps_alike(steps, self.inputs, earlier.inputs)

    def go_on_from(self, earlier: "Play", steps: Sequence[Step]) -> None:
        """Takes over these steps of an earlier play, which are alike."""
        for step in steps:
            self.known[step.makes] = earlier.known[step.makes]
            if step.shown:
                self.stages[step.makes] = earlier.stages[step.makes]
        self._softmax = earlier._softmax

    def take(self, step: Step) -> None:
        """Computes a step, and shows the stage if it is one."""
        if not all(name in self.known for name in step.beside.values()):  # without an input nothing is done with it
            node = self._read(step, step.reads[0])
        else:
            node = self._taken().get(step.form, self._apply)(step)
        self.known[step.makes] = self.show(step.makes, node) if step.shown else node
        if step.makes in self._of_keys and step.axes == "B S D":
            self._of_queries[step.makes] = self._at_queries(self.known[step.makes])

    def _read(self, step: Step, name: str) -> Node:
        """What a step reads: at the evaluated queries, unless keys and values are computed from what it makes."""
        return self.known[name] if step.makes in self._of_keys else self._of_queries.get(name, self.known[name])

    def _at_queries(self, node: Node) -> Node:
        """[B, S, D] at the evaluated queries."""
        return Node(node.value[:, self.inputs.queries])

    def _taken(self) -> dict[str, Callable[[Step], Node]]:
        """Forms that take more than operands. A play that held its own methods would be freed, with the parameters of
        its layer, no sooner than Python looks for cycles."""
        return {
            "same": self._same,
            "end": self._end,
            "softmax": self._masked_softmax,
            "attend": self._attend,
            "rotation": self._rotation,
        }

    def _same(self, step: Step) -> Node:
        return self._read(step, step.reads[0])

    def show(self, name: str, node: Node) -> Node:
        """Records a stage, computed by its wrong equation if it has one. Returns the node that later steps read."""
        if name in self.inputs.equations:
            node = Node(evaluate(self.inputs.equations[name], self.tape.arithmetic, self._operands()))
        self.stages[name] = node
        return self.onward(name, node)

    def variant(self, step: Step) -> Any:
        return FORMS[step.form].variants[self.inputs.variants.get(step.step, step.right)]

    def _apply(self, step: Step, **more: object) -> Node:
        """What the step reads and its parameters are operands; its choices, and what is beside it, are arguments."""
        operands = [self._read(step, name) for name in step.reads]
        operands += [self._parameter(step, role) for role in FORMS[step.form].roles]
        beside = {argument: self._read(step, name).value for argument, name in step.beside.items()}
        return self.tape.apply(self.variant(step), *operands, **self._choices(step), **(beside | more))

    def _choices(self, step: Step) -> Mapping[str, object]:
        epsilon = self.inputs.epsilons.get(step.makes)
        return step.choices if epsilon is None else {**step.choices, "epsilon": epsilon}

    def _parameter(self, step: Step, role: str) -> Node:
        """A parameter of the step. A bias or shift that the layer does not have adds nothing, and no noise."""
        if (name := f"{step.owner}.{role}") in self.parameters:
            return self.parameters[name]
        like = next((self.parameters[name] for name in step.parameter_axes()), None)
        size = layer_sizes(self.layer).get(step.axes[-1], 1) if like is None else like.value.shape[-1]
        return self.tape.leaf(_constant(size, float(role == "gain")))

    def _end(self, step: Step) -> Node:
        return self._apply(step, **self._norm(step))

    def _norm(self, step: Step) -> Mapping[str, object]:
        return {role: self._parameter(step, role).value for role in ("gain", "shift")}

    def _placed(self, step: Step) -> Node:
        """A step that reads where the positions of x lie."""
        return self._apply(step, positions=self.inputs.positions)

    def _rotation(self, step: Step) -> Node:
        """What is normed before it is turned brings the norm's parameters."""
        positions, queries = self.inputs.positions, self.inputs.queries
        if queries is not None and step.makes not in self._of_keys:
            positions = queries[None, :, None].astype(np.float64) if positions is None else positions[:, queries]
        return self._apply(step, positions=positions, **(self._norm(step) if step.owner else {}))

    def _masked_softmax(self, step: Step) -> Node:
        """The weights are shown; their gradient goes through `attend` as a whole."""
        scores = self.known[step.reads[0]].value
        self._softmax = self.tape.call(
            self.variant(step), scores, self.inputs.of_scores(self.layer, self.inputs.mask, True), **step.choices
        )
        return Node(self._softmax.weights)

    def _attend(self, step: Step) -> Node:
        assert self._softmax is not None
        weights = self.known[step.beside["weights"]].value
        softmax = replace(self._softmax, weights=weights, largest=self.inputs.largest)
        rotation = {**step.choices, "positions": self.inputs.positions} if step.choices else {}
        operands = [self.known[name] for name in step.reads]
        return self.tape.apply(self.variant(step), *operands, softmax=softmax, **rotation)

    def _operands(self) -> Operands:
        """What a wrong equation may name: parameters, inputs, and every stage so far."""
        values = {name: node.value for name, node in {**self.parameters, **self.known}.items()}
        return Operands(
            self.layer, {**values, **self.inputs.beside_x(self.layer)}, softmax_choices(self.layer, self.number)
        )


def of_keys(steps: Sequence[Step]) -> frozenset[str]:
    """Keys and values, and all that they are computed from: what is needed at every position."""
    found = set[str]()
    for step in reversed(steps):
        if step.makes in found or {"T"} == {"S", "T"} & {*step.axes.split()}:
            found |= {step.makes, *step.reads}
    return frozenset(found)


class StackPlay(Play):
    """The play of a stack; `stages` has every stage, and `layers` those of each layer."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.layers: list[Stages] = []
        self._planned: Planned = plan

    def _taken(self) -> dict[str, Callable[[Step], Node]]:
        return super()._taken() | {
            "layers": self._layers,
            "positions": self._placed,
            "learned_positions": self._placed_among,
            "global_layers": self._choose,
        }

    def _placed_among(self, step: Step) -> Node:
        """A step that reads where the positions of x lie, and which of them hold data."""
        return self._apply(step, positions=self.inputs.positions, valid=self.inputs.valid)

    def _choose(self, step: Step) -> Node:
        """Which layers are global. What goes through the stack is passed on."""
        self._planned = self.variant(step)
        return self.known[step.reads[0]]

    def _layers(self, step: Step) -> Node:
        x = self.known[step.reads[0]]
        for number, taken in enumerate(self.variant(step)(self.layer.stack.layers)):
            for between in between_layers(self.layer) if number else ():
                x = self.tape.apply(self.variant(between), x, positions=self.inputs.positions)
            self.layers.append(self._layer(number, taken, x))
            x = self.show(layer_stage(number), self.layers[-1]["output"])
        return x

    def _own(self, number: int) -> dict[str, Node]:
        """The parameters of layer `number`, by their names in a layer by itself."""
        own = prefix(number)
        return {name.removeprefix(own): self.parameters[name] for name in self.parameters if name.startswith(own)}

    def _layer(self, number: int, taken: int | None, x: Node) -> Stages:
        """The stages of layer `number`, with the parameters of layer `taken`; those of a layer left out are NaN."""
        own, stage = self._own(number), layer_stage(number)
        if taken is not None and taken != number:
            own |= self._own(taken)  # what that one lacks, such as a norm (E-24), is its own
        if self.layer.stack.shared_position_bias:  # layer 0 holds the table for all (E-34)
            own = {"attention.position_bias.table": self.parameters[f"{prefix(0)}attention.position_bias.table"], **own}
        shown = shows_inside(self.layer.stack.layers)
        onward = (lambda name, node: self.onward(f"{stage}.{name}", node)) if shown else as_computed
        play = Play(self.tape, self.layer, own, self.inputs, onward, number)
        inside = play.run(self._planned(self.layer, number), x=x)
        if taken is None:
            inside = {name: Node(np.full_like(node.value, np.nan)) for name, node in inside.items()} | {"output": x}
        if shown:
            self.stages |= {f"{stage}.{name}": node for name, node in inside.items() if name != "output"}
        return inside


@lru_cache
def _constant(size: int, value: float) -> D:
    """[size] of one value, the same array each time, so that a `Recall` finds what was computed from it."""
    array = np.full(size, value)
    array.flags.writeable = False
    return array


def softmax_choices(layer: Layer, number: int = 0) -> Mapping[str, Any]:
    """The arguments of the masked softmax of a layer, or of layer `number` of a stack."""
    return next(step.choices for step in plan(layer, number) if step.form == "softmax")
