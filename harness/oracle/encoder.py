"""The encoder layer itself, written over the steps: what `specs/README.md` says, as code (clauses E-3 to E-5)."""

from dataclasses import dataclass

from harness.oracle import steps
from harness.oracle.arithmetic import Arithmetic, Array
from harness.oracle.tape import Node, Tape
from harness.spec.case import Case
from harness.spec.layer import Layer


@dataclass(frozen=True)
class Evaluation:
    """Everything that a layer makes of a case: each stage by name, and the gradient by x and by each parameter."""

    stages: dict[str, Array]
    gradients: dict[str, Array]


def evaluate(case: Case, arithmetic: Arithmetic, cotangent: Array | None) -> Evaluation:
    """Run the layer forward in the given arithmetic, and backward from `cotangent` if there is one."""
    tape = Tape(arithmetic)
    x = tape.leaf(case.x())
    parameters = {name: tape.leaf(value) for name, value in case.parameters().items()}
    stages = encoder_layer(tape, case.layer, parameters, x, case.mask())
    wanted = {"x": x, **parameters}
    gradients = {} if cotangent is None else tape.gradients(stages["output"], cotangent, wanted)
    return Evaluation({name: node.value for name, node in stages.items()}, gradients)


def encoder_layer(
    tape: Tape, layer: Layer, parameters: dict[str, Node], x: Node, mask: Array | None
) -> dict[str, Node]:
    """Every stage of one layer, in order. `x` is [B, S, D]; `mask` None or bool, broadcastable to [B, H, S, S]."""
    stage: dict[str, Node] = {}

    def norm(name: str, x: Node) -> Node:
        gain, shift = parameters[f"{name}.gain"], parameters[f"{name}.shift"]
        stage[name] = tape.apply(steps.layer_norm, x, gain, shift, epsilon=layer.norm.epsilon)
        return stage[name]

    def linear(name: str, x: Node) -> Node:
        return tape.apply(steps.linear, x, parameters[f"{name}.weight"], parameters[f"{name}.bias"])

    def attention(x: Node) -> Node:
        heads = layer.attention.num_heads
        for name in ("query", "key", "value"):
            stage[name] = linear(f"attention.{name}", x)
            stage[f"{name}_heads"] = tape.apply(steps.split_heads, stage[name], num_heads=heads)
        stage["attention_scores"] = tape.apply(steps.attention_scores, stage["query_heads"], stage["key_heads"])
        softmax = steps.masked_softmax(tape.arithmetic, stage["attention_scores"].value, mask)
        stage["attention_weights"] = Node(softmax.weights)  # shown; its gradient goes through `attend` as a whole
        stage["context"] = tape.apply(steps.attend, stage["attention_scores"], stage["value_heads"], softmax=softmax)
        stage["context_merged"] = tape.apply(steps.merge_heads, stage["context"])
        stage["attention_output"] = linear("attention.output", stage["context_merged"])
        return stage["attention_output"]

    def feed_forward(x: Node) -> Node:
        stage["ffn_hidden"] = linear("feed_forward.hidden", x)
        stage["ffn_activation"] = tape.apply(steps.ACTIVATIONS[layer.feed_forward.activation], stage["ffn_hidden"])
        stage["ffn_output"] = linear("feed_forward.output", stage["ffn_activation"])
        return stage["ffn_output"]

    def residual(name: str, x: Node, change: Node) -> Node:
        stage[name] = tape.apply(steps.residual, x, change)
        return stage[name]

    if layer.norm.placement == "pre":
        x = residual("residual1", x, attention(norm("norm1", x)))
        stage["output"] = residual("residual2", x, feed_forward(norm("norm2", x)))
    else:
        x = norm("norm1", residual("residual1", x, attention(x)))
        stage["output"] = norm("norm2", residual("residual2", x, feed_forward(x)))
    return stage
