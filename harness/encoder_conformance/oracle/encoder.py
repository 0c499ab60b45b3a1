"""The encoder itself, forward and backward: `specs/README.md` as code, over the plan and its forms (E-3 to E-17)."""

from collections.abc import Mapping
from dataclasses import dataclass

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.inputs import LayerInputs, given
from encoder_conformance.oracle.play import Play, StackPlay, Stages
from encoder_conformance.oracle.tape import ForwardTape, Node, Onward, Tape, as_computed
from encoder_conformance.spec.axes import BSD, Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.plan import plan, stack_plan


@dataclass(frozen=True)
class Evaluation:
    """All stages of a case by name, and the gradients by x, memory and each parameter, each in its own shape.

    `layers` has the stages of each layer of a stack, or of the one layer by itself.
    """

    stages: dict[str, Array]
    gradients: dict[str, Array]
    layers: tuple[dict[str, Array], ...]


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
    leaves = {} if layer.takes_ids else {"x": tape.leaf(evaluated.x)}
    if layer.is_stack:
        stack = StackPlay(tape, layer, parameters, evaluated, onward)
        given = {"ids": Node(evaluated.x)} if layer.takes_ids else leaves
        return leaves, stack.run(stack_plan(layer), **given, token_types=Node(evaluated.types)), stack.layers
    if evaluated.memory is not None:
        leaves["memory"] = tape.leaf(evaluated.memory)
    stages = Play(tape, layer, parameters, evaluated, onward).run(plan(layer), **leaves)
    return leaves, stages, [stages]
