"""The encoder layer itself, written over the steps: `specs/README.md` as code (clauses E-3 to E-5)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.equation import Operands, named_inputs
from encoder_conformance.oracle.equation import evaluate as evaluate_equation
from encoder_conformance.oracle.stack import Play, StackPlay, Stages
from encoder_conformance.oracle.tape import ForwardTape, Node, Onward, Tape, as_computed
from encoder_conformance.spec.axes import BSD, Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.equation import Equation
from encoder_conformance.spec.layer import Layer


@dataclass(frozen=True)
class Evaluation:
    """All stages of a case by name, and the gradients by x, memory and each parameter, each in its own shape.

    `layers` has the stages of each layer of a stack, or of the one layer by itself.
    """

    stages: dict[str, Array]
    gradients: dict[str, Array]
    layers: tuple[dict[str, Array], ...]


@dataclass(frozen=True)
class LayerInputs:
    """The inputs of a layer: x [B, S, D], or token ids [B, S] if it has an embedding; every parameter; mask and bias of
    the scores, broadcastable to [B, H, S, T], or None; and for attention alone the memory [B, T, D]."""

    x: Array
    parameters: Mapping[str, Array]
    mask: Array | None
    bias: Array | None = None
    forms: Mapping[str, str] = field(default_factory=dict)
    """Step → the wrong form of it that is played; every other step takes its standard form."""
    epsilons: Mapping[str, float] = field(default_factory=dict)
    """Norm → the wrong epsilon that it has; every other has the layer's."""
    equations: Mapping[str, Equation] = field(default_factory=dict)
    """Stage → the wrong equation that it is computed by (rule V-12)."""
    items: tuple[int, ...] | None = None
    """The items that are evaluated; None for all. Of the others every stage and gradient is 0."""
    memory: Array | None = None
    through_largest: bool = False
    """Whether a gradient goes through the maximum that the softmax takes off (rule C-6)."""

    def of_items(self, values: Array) -> Array:
        """[B or 1, …] at the items that are evaluated."""
        return values if self.items is None or len(values) == 1 else values[list(self.items)]

    @property
    def evaluated(self) -> "LayerInputs":
        """These inputs at the evaluated items."""
        mask, bias, memory = (
            None if each is None else self.of_items(each) for each in (self.mask, self.bias, self.memory)
        )
        return replace(self, x=self.of_items(self.x), mask=mask, bias=bias, memory=memory)

    def of_batch(self, values: Array) -> Array:
        """[items, …] as [B, …], the inverse of `of_items`; 0 at the other items."""
        if self.items is None:
            return values
        whole = np.zeros((len(self.x), *values.shape[1:]), dtype=values.dtype)
        whole[list(self.items)] = values
        return whole


def given(case: Case) -> LayerInputs:
    """The inputs of the case's layer, all right."""
    x = case.x() if case.layer.embedding is None else case.ids()
    items = case.situation.items
    return LayerInputs(x, case.parameters(), case.mask(), case.attention_bias(), items=items, memory=case.memory())


def evaluate(
    case: Case, arithmetic: Arithmetic, cotangent: BSD | None, inputs: LayerInputs | None = None
) -> Evaluation:
    """Run the layer forward in the given arithmetic, and backward from `cotangent` if there is one.

    `inputs` is `given(case)`, computed once by a caller that evaluates the case many times.
    """
    tape, inputs = (ForwardTape if cotangent is None else Tape)(arithmetic), inputs or given(case)
    parameters = tape.parameters(inputs.parameters)
    leaves, stages, layers = encoder(tape, case.layer, inputs, parameters)
    gradients: dict[str, Array] = {}
    if cotangent is not None:
        gradients = tape.gradients(stages["output"], inputs.of_items(cotangent), {**leaves, **parameters})
        gradients |= {name: inputs.of_batch(gradients[name]) for name in leaves}
    return Evaluation(_values(inputs, stages), gradients, tuple(_values(inputs, inner) for inner in layers))


def forward(
    layer: Layer, inputs: LayerInputs, arithmetic: Arithmetic, onward: Onward = as_computed
) -> dict[str, Array]:
    """Every stage of a layer or stack, right or wrong, without gradients."""
    return forward_on(ForwardTape(arithmetic), layer, inputs, onward)


def forward_on(tape: ForwardTape, layer: Layer, inputs: LayerInputs, onward: Onward) -> dict[str, Array]:
    """Every stage, on a tape that may have recorded earlier plays."""
    return _values(inputs, encoder(tape, layer, inputs, tape.parameters(inputs.parameters), onward)[1])


def _values(inputs: LayerInputs, stages: Stages) -> dict[str, Array]:
    return {name: inputs.of_batch(node.value) for name, node in stages.items()}


def encoder(
    tape: Tape, layer: Layer, inputs: LayerInputs, parameters: Mapping[str, Node], onward: Onward = as_computed
) -> tuple[dict[str, Node], Stages, list[Stages]]:
    """The inputs that have a gradient, every stage, and the stages of each layer; all of the evaluated items.

    The inputs are x, unless token ids are given in its place, and the memory, where there is one.
    """
    evaluated = inputs.evaluated
    if layer.is_stack:
        x = evaluated.x if layer.embedding is not None else tape.leaf(evaluated.x)
        stack = StackPlay(tape, layer, parameters, inputs.forms, onward)
        inner = stack.run(x, lambda own, x, onward: LayerPlay(tape, layer, own, evaluated, onward).run(x))
        return {"x": x} if isinstance(x, Node) else {}, stack.stages, inner
    leaves = {"x": tape.leaf(evaluated.x)}
    if evaluated.memory is not None:
        leaves["memory"] = tape.leaf(evaluated.memory)
    stages = LayerPlay(tape, layer, parameters, evaluated, onward).run(**leaves)
    return leaves, stages, [stages]


class LayerPlay(Play):
    """The play of one layer, or of attention alone.

    `inputs` are those of the evaluated items; x, memory and parameters are taken as nodes.
    """

    def __init__(
        self,
        tape: Tape,
        layer: Layer,
        parameters: Mapping[str, Node],
        inputs: LayerInputs,
        onward: Onward = as_computed,
    ) -> None:
        super().__init__(tape, layer, parameters, inputs.forms, onward)
        self._inputs, self._num_heads = inputs, layer.attention.num_heads
        self._named: dict[str, Array] = {}

    def run(self, x: Node, memory: Node | None = None) -> Stages:
        """Every stage, in order (clauses E-3, E-4, E-17). x [B, S, D], memory [B, T, D]."""
        if self._inputs.equations:
            others = {"memory": None if memory is None else memory.value, "mask": self._inputs.mask}
            values = {name: node.value for name, node in self.parameters.items()}
            self._named = named_inputs(values, x=x.value, bias=self._inputs.bias, **others)
        if memory is not None:
            self.show("output", self._attention(x, memory))
        elif self.layer.norm.placement == "pre":
            self._pre_norm(x)
        else:
            normed = self._norm("norm1", self._residual("residual1", x, self._attention(x, x), x, x))
            total = self._residual("residual2", normed, self._feed_forward(normed), normed, x)
            self.show("output", self._norm("norm2", total))
        return self.stages

    def _pre_norm(self, first: Node) -> None:
        normed = self._norm("norm1", first)
        x = self._residual("residual1", first, self._attention(normed, normed), normed, first)
        normed = self._norm("norm2", x)
        x = self._residual("residual2", x, self._feed_forward(normed), normed, first)
        gain, shift = self.parameters["norm2.gain"], self._offset("norm2.shift", self.layer.d_model)
        choices = {"gain": gain.value, "shift": shift.value, "epsilon": self.layer.norm.epsilon}
        self.show("output", self.step("final_norm", x, **choices))

    def show(self, name: str, node: Node) -> Node:
        """Record a stage, computed by its wrong equation if it has one."""
        if name in self._inputs.equations:
            operands = Operands(self.layer, self._named, softmax_choices(self.layer))
            node = Node(evaluate_equation(self._inputs.equations[name], self.tape.arithmetic, operands))
        passed_on = super().show(name, node)
        self._named[name] = passed_on.value
        return passed_on

    def _offset(self, name: str, size: int) -> Node:
        """A bias or a shift; zeros where the layer has none, which add nothing and no noise."""
        return self.parameters[name] if name in self.parameters else self.tape.leaf(_zeros(size))

    def _norm(self, name: str, x: Node) -> Node:
        gain, shift = self.parameters[f"{name}.gain"], self._offset(f"{name}.shift", self.layer.d_model)
        epsilon = self._inputs.epsilons.get(name, self.layer.norm.epsilon)
        return self.show(name, self.step(name, x, gain, shift, epsilon=epsilon))

    def _linear(self, name: str, parameter: str, x: Node, **choices: object) -> Node:
        weight = self.parameters[f"{parameter}.weight"]
        return self.step(name, x, weight, self._offset(f"{parameter}.bias", weight.value.shape[1]), **choices)

    def _heads(self, name: str, x: Node) -> Node:
        sizes = {"num_heads": self._num_heads, "scaled_by": self.layer.scaled_by}
        projected = self.show(name, self._linear(name, f"attention.{name}", x, **sizes))
        return self.show(f"{name}_heads", self.step(f"{name}_heads", projected, num_heads=self._num_heads))

    def _attention(self, x: Node, keys: Node) -> Node:
        query, key, value = self._heads("query", x), self._heads("key", keys), self._heads("value", keys)
        scores = self.show("attention_scores", self.step("attention_scores", query, key))
        if self._inputs.bias is not None:
            scores = self.step("attention_bias", scores, bias=self._inputs.bias)
        choices = softmax_choices(self.layer)
        softmax = self.tape.call(self.form("masked_softmax"), scores.value, self._inputs.mask, **choices)
        # The weights are shown; their gradient goes through `attend` as a whole.
        weights = self.show("attention_weights", Node(softmax.weights)).value
        softmax = replace(softmax, weights=weights, through_largest=self._inputs.through_largest)
        context = self.show("context", self.step("attend", scores, value, softmax=softmax))
        merged = self.show("context_merged", self.step("merge_heads", context))
        return self.show("attention_output", self._linear("attention_output", "attention.output", merged))

    def _feed_forward(self, x: Node) -> Node:
        hidden = self.show("ffn_hidden", self._linear("ffn_hidden", "feed_forward.hidden", x))
        activated = self.show("ffn_activation", self.step("activation", hidden))
        output = self._linear("ffn_output", "feed_forward.output", activated)
        return self.show("ffn_output", self.step("after_ffn", output, dropout=self.layer.dropout.ffn_output))

    def _residual(self, name: str, x: Node, change: Node, normed: Node, first: Node) -> Node:
        return self.show(name, self.step(name, x, change, normed=normed.value, first=first.value))


@lru_cache
def _zeros(size: int) -> Array:
    """Zeros [size], the same array each time, so that a `Recall` finds what was computed from it."""
    zeros = np.zeros(size)
    zeros.flags.writeable = False
    return zeros


def softmax_choices(layer: Layer) -> dict[str, object]:
    """The arguments of the layer's masked softmax."""
    fill = layer.attention.masked_score
    return {
        "fill": -np.inf if fill == "minus_infinity" else float(fill),
        "empty_row": layer.attention.fully_masked_row,
        "dropout": layer.dropout.attention_weights,
    }
