"""A stack of encoder layers: embedding, positions, one layer after the other, final norm (E-14 to E-16)."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from encoder_conformance.oracle.arithmetic import Array
from encoder_conformance.oracle.steps import VARIANTS
from encoder_conformance.oracle.tape import Node, Onward, Tape
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.parameters import prefix
from encoder_conformance.spec.stages import layer_stage

Stages = dict[str, Node]


def encoder_stack(
    tape: Tape,
    layer: Layer,
    parameters: Mapping[str, Node],
    given: Node | Array,
    one: Callable[[dict[str, Node], Node], Stages],
    ways: Mapping[str, str],
    onward: Onward,
) -> tuple[Stages, list[Stages]]:
    """Every stage of a stack, in order, and those of each of its layers.

    `given` is x [B, S, D], or token ids [B, S]. `one` is an encoder layer: its own parameters and its input → stages.
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
        x = show("embedded", tape.apply(form("positions"), tokens))
    else:
        assert isinstance(given, Node)
        x = given
    for number, taken in enumerate(form("layer_order")(layer.stack.layers)):
        if number and layer.embedding is not None:
            x = tape.apply(form("between_layers"), x)
        if taken is not None:
            start = prefix(taken)
            own = {name.removeprefix(start): node for name, node in parameters.items() if name.startswith(start)}
            inner.append(one(own, x))
            x = inner[-1]["output"]
        x = show(layer_stage(number), x)
    x = show("final_norm", norm("stack_norm", x)) if layer.stack.final_norm else norm("stack_end", x)
    show("output", x)
    return stage, inner
