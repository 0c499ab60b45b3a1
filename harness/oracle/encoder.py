"""The encoder layer itself, written over the steps: what `specs/README.md` says, as code (clauses E-3 to E-5)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic, Array
from encoder_conformance.oracle.equation import Operands, named_inputs
from encoder_conformance.oracle.equation import evaluate as evaluate_equation
from encoder_conformance.oracle.stack import encoder_stack
from encoder_conformance.oracle.steps import VARIANTS
from encoder_conformance.oracle.tape import ForwardTape, Node, Onward, Tape, as_computed
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.equation import Equation
from encoder_conformance.spec.layer import Layer


@dataclass(frozen=True)
class Evaluation:
    """Everything that a layer or stack makes of a case: each stage by name, and the gradient by x and each parameter.

    `layers` has the stages of each layer of a stack, and of the one where there is no stack.
    """

    stages: dict[str, Array]
    gradients: dict[str, Array]
    layers: tuple[dict[str, Array], ...]


@dataclass(frozen=True)
class LayerInputs:
    """What a layer is given: x [B, S, D], or where it has an embedding token ids [B, S]; every parameter; a mask or
    None; a bias of the scores or None; and of attention alone the memory [B, T, D]."""

    x: Array
    parameters: Mapping[str, Array]
    mask: Array | None
    bias: Array | None = None
    ways: Mapping[str, str] = field(default_factory=dict)
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

    def of_batch(self, values: Array) -> Array:
        """[items, …] as [B, …], the way back of `of_items`."""
        if self.items is None:
            return values
        whole = np.zeros((len(self.x), *values.shape[1:]), dtype=values.dtype)
        whole[list(self.items)] = values
        return whole


def given(case: Case) -> LayerInputs:
    x = case.x() if case.layer.embedding is None else case.ids()
    items = case.situation.items
    return LayerInputs(x, case.parameters(), case.mask(), case.attention_bias(), items=items, memory=case.memory())


def right_ways(layer: Layer) -> dict[str, str]:
    """Step → the form of it that this layer asks for, where that is not the standard one or there is none."""
    ways: dict[str, str] = {"activation": layer.feed_forward.activation}
    if layer.norm.kind == "rms_norm":
        ways |= dict.fromkeys(("norm1", "norm2", "final_norm", "stack_norm", "stack_end"), "rms_norm")
    if layer.attention.projections == "shared_by_heads":
        ways |= {"query": "shared_by_heads", "key": "shared_by_heads", "value": "shared_by_heads"}
    if layer.attention.scale == "d_model":
        ways |= {"attention_scores": "by-d-model"}
    if layer.embedding is not None and layer.embedding.positions == "none":
        ways |= {"positions": "none"}
    return ways


def evaluate(
    case: Case, arithmetic: Arithmetic, cotangent: Array | None, what: LayerInputs | None = None
) -> Evaluation:
    """Run the layer forward in the given arithmetic, and backward from `cotangent` if there is one.

    `what` is `given(case)`, for who runs it many times.
    """
    tape, what = (ForwardTape if cotangent is None else Tape)(arithmetic), what or given(case)
    parameters = tape.parameters(what.parameters)
    inputs, stages, layers = encoder(tape, case.layer, what, parameters)
    gradients: dict[str, Array] = {}
    if cotangent is not None:
        gradients = tape.gradients(stages["output"], what.of_items(cotangent), {**inputs, **parameters})
        gradients |= {name: what.of_batch(gradients[name]) for name in inputs}
    return Evaluation(_values(what, stages), gradients, tuple(_values(what, inner) for inner in layers))


def forward(layer: Layer, what: LayerInputs, arithmetic: Arithmetic, onward: Onward = as_computed) -> dict[str, Array]:
    """Every stage of a layer or stack, right or wrong, without gradients."""
    return forward_on(ForwardTape(arithmetic), layer, what, onward)


def forward_on(tape: ForwardTape, layer: Layer, what: LayerInputs, onward: Onward) -> dict[str, Array]:
    """The same, on a tape that may know earlier plays."""
    parameters = tape.parameters(what.parameters)
    return _values(what, encoder(tape, layer, what, parameters, onward)[1])


def _values(what: LayerInputs, stages: Mapping[str, Node]) -> dict[str, Array]:
    return {name: what.of_batch(node.value) for name, node in stages.items()}


def encoder(
    tape: Tape, layer: Layer, what: LayerInputs, parameters: Mapping[str, Node], onward: Onward = as_computed
) -> tuple[dict[str, Node], dict[str, Node], list[dict[str, Node]]]:
    """The inputs that have a gradient: x, unless token ids are given in its place, and a memory where there is one;
    every stage, of the items that are evaluated; those of each layer."""
    mask, bias = (None if each is None else what.of_items(each) for each in (what.mask, what.bias))
    x = what.of_items(what.x)
    leaf = None if layer.embedding is not None else tape.leaf(x)
    if leaf is not None and not layer.is_stack:
        memory = None if what.memory is None else tape.leaf(what.of_items(what.memory))
        stages = encoder_layer(tape, layer, parameters, leaf, mask, bias, what, onward, memory)
        return {"x": leaf} if memory is None else {"x": leaf, "memory": memory}, stages, [stages]

    def one(own: dict[str, Node], x: Node, onward: Onward) -> dict[str, Node]:
        return encoder_layer(tape, layer, own, x, mask, bias, what, onward)

    ways = {**right_ways(layer), **what.ways}
    return {} if leaf is None else {"x": leaf}, *encoder_stack(
        tape, layer, parameters, x if leaf is None else leaf, one, ways, onward
    )


def encoder_layer(
    tape: Tape,
    layer: Layer,
    parameters: Mapping[str, Node],
    x: Node,
    mask: Array | None,
    bias: Array | None = None,
    wrong: LayerInputs | None = None,
    onward: Onward = as_computed,
    memory: Node | None = None,
) -> dict[str, Node]:
    """Every stage of one layer, in order; of attention alone where there is a `memory` [B, T, D] (clause E-17).

    `x` is [B, S, D]; `mask`, None or bool, and `bias`, None or numbers, are broadcastable to [B, H, S, T]. Of `wrong`
    are the steps, epsilons and equations that are not the layer's.
    """
    stage: dict[str, Node] = {}
    first, num_heads = x, layer.attention.num_heads
    ways, epsilons, equations = (wrong.ways, wrong.epsilons, wrong.equations) if wrong else ({}, {}, {})
    taken = {**right_ways(layer), **ways}
    choices_of_softmax = softmax_choices(layer)
    known: dict[str, Array] = {}
    if equations:
        values = {name: node.value for name, node in parameters.items()}
        known = named_inputs(values, x=x.value, memory=None if memory is None else memory.value, mask=mask, bias=bias)

    def show(name: str, node: Node) -> Node:
        if name in equations:
            operands = Operands(layer, known, choices_of_softmax)
            node = Node(evaluate_equation(equations[name], tape.arithmetic, operands))
        stage[name] = node
        passed_on = onward(name, node)
        known[name] = passed_on.value
        return passed_on

    def step(name: str, *operands: Node, **choices: object) -> Node:
        return tape.apply(VARIANTS[name][taken.get(name, "standard")], *operands, **choices)

    def offset(name: str, size: int) -> Node:
        """A bias or a shift; zeros where the layer has none, which add nothing and no noise."""
        return parameters[name] if name in parameters else tape.leaf(_zeros(size))

    def norm(name: str, x: Node) -> Node:
        gain, shift = parameters[f"{name}.gain"], offset(f"{name}.shift", layer.d_model)
        return show(name, step(name, x, gain, shift, epsilon=epsilons.get(name, layer.norm.epsilon)))

    def linear(name: str, parameter: str, x: Node, **choices: object) -> Node:
        weight = parameters[f"{parameter}.weight"]
        return step(name, x, weight, offset(f"{parameter}.bias", weight.value.shape[1]), **choices)

    def heads(name: str, x: Node) -> Node:
        projected = show(name, linear(name, f"attention.{name}", x, num_heads=num_heads, scaled_by=layer.scaled_by))
        return show(f"{name}_heads", step(f"{name}_heads", projected, num_heads=num_heads))

    def attention(x: Node, keys: Node) -> Node:
        query, key, value = heads("query", x), heads("key", keys), heads("value", keys)
        scores = show("attention_scores", step("attention_scores", query, key))
        if bias is not None:
            scores = step("attention_bias", scores, bias=bias)
        form = VARIANTS["masked_softmax"][taken.get("masked_softmax", "standard")]
        softmax = tape.call(form, scores.value, mask, **choices_of_softmax)
        # The weights are shown; their gradient goes through `attend` as a whole.
        weights = show("attention_weights", Node(softmax.weights)).value
        softmax = replace(softmax, weights=weights, through_largest=wrong is not None and wrong.through_largest)
        context = show("context", step("attend", scores, value, softmax=softmax))
        merged = show("context_merged", step("merge_heads", context))
        return show("attention_output", linear("attention_output", "attention.output", merged))

    def feed_forward(x: Node) -> Node:
        hidden = show("ffn_hidden", linear("ffn_hidden", "feed_forward.hidden", x))
        activated = show("ffn_activation", step("activation", hidden))
        output = linear("ffn_output", "feed_forward.output", activated)
        return show("ffn_output", step("after_ffn", output, dropout=layer.dropout.ffn_output))

    def residual(name: str, x: Node, change: Node, normed: Node) -> Node:
        return show(name, step(name, x, change, normed=normed.value, first=first.value))

    if memory is not None:
        show("output", attention(x, memory))
    elif layer.norm.placement == "pre":
        normed = norm("norm1", x)
        x = residual("residual1", x, attention(normed, normed), normed)
        normed = norm("norm2", x)
        x = residual("residual2", x, feed_forward(normed), normed)
        gain, shift = parameters["norm2.gain"].value, offset("norm2.shift", layer.d_model).value
        show("output", step("final_norm", x, gain=gain, shift=shift, epsilon=layer.norm.epsilon))
    else:
        x = norm("norm1", residual("residual1", x, attention(x, x), x))
        show("output", norm("norm2", residual("residual2", x, feed_forward(x), x)))
    return stage


@lru_cache
def _zeros(size: int) -> Array:
    """The same each time: what is computed of it is recalled."""
    zeros = np.zeros(size)
    zeros.flags.writeable = False
    return zeros


def softmax_choices(layer: Layer) -> dict[str, object]:
    fill = layer.attention.masked_score
    return {
        "fill": -np.inf if fill == "minus_infinity" else float(fill),
        "empty_row": layer.attention.fully_masked_row,
        "dropout": layer.dropout.attention_weights,
    }
