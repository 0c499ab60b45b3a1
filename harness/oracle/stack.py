"""A stack of encoder layers: embedding, positions, one layer after the other, final norm (E-14 to E-16)."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from encoder_conformance.oracle.arithmetic import Array
from encoder_conformance.oracle.steps import VARIANTS
from encoder_conformance.oracle.tape import Node, Onward, Tape, as_computed
from encoder_conformance.spec.depth import shows_inside
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.parameters import prefix
from encoder_conformance.spec.stages import layer_stage

Stages = dict[str, Node]


def encoder_stack(
    tape: Tape,
    layer: Layer,
    parameters: Mapping[str, Node],
    given: Node | Array,
    one: Callable[[dict[str, Node], Node, Onward], Stages],
    ways: Mapping[str, str],
    onward: Onward,
) -> tuple[Stages, list[Stages]]:
    """Every stage of a stack, in order, and those of each of its layers.

    `given` is x [B, S, D], or token ids [B, S]. `one` is an encoder layer: its own parameters, its input and what its
    stages are handed on as → stages.
    """
    stage: Stages = {}
    inner: list[Stages] = []

    def show(name: str, node: Node) -> Node:
        stage[name] = node
        return onward(name, node)

    def form(name: str) -> Any:
        return VARIANTS[name][ways.get(name, "standard")]

    def norm(name: str, x: Node) -> Node:
        """The final norm, or what stands in a stack where it has none."""
        gain = parameters.get("final_norm.gain", tape.leaf(np.ones(layer.d_model)))
        shift = parameters.get("final_norm.shift", tape.leaf(np.zeros(layer.d_model)))
        return tape.apply(form(name), x, gain, shift, epsilon=layer.norm.epsilon)

    if layer.embedding is not None:
        tokens = tape.apply(form("tokens"), parameters["embedding.weight"], ids=given)
        x = tape.apply(form("positions"), tokens)
        x = show("embedded", tape.apply(form("after_embedding"), x, dropout=layer.dropout.embedded))
    else:
        assert isinstance(given, Node)
        x = given

    def one_layer(number: int, taken: int, x: Node) -> Stages:
        """The stages of the layer with the parameters of `taken`, which is the stack's layer `number`."""
        start = prefix(taken)
        own = {name.removeprefix(start): parameters[name] for name in parameters if name.startswith(start)}
        if not shows_inside(layer.stack.layers):
            return one(own, x, as_computed)
        return one(own, x, lambda name, node: onward(f"{layer_stage(number)}.{name}", node))

    for number, taken in enumerate(form("layer_order")(layer.stack.layers)):
        if number and layer.embedding is not None:
            x = tape.apply(form("between_layers"), x)
        inside = one_layer(number, number if taken is None else taken, x)
        if taken is None:  # it is not there: what it would show, nobody sees
            inside = {name: Node(np.full_like(node.value, np.nan)) for name, node in inside.items()} | {"output": x}
        inner.append(inside)
        if shows_inside(layer.stack.layers):
            stage |= {f"{layer_stage(number)}.{name}": node for name, node in inside.items() if name != "output"}
        x = show(layer_stage(number), inside["output"])
    x = show("final_norm", norm("stack_norm", x)) if layer.stack.final_norm else norm("stack_end", x)
    show("output", x)
    return stage, inner
