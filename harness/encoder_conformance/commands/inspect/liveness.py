"""Activation liveness: the peak memory of a forward pass, and the activations saved for the backward pass.

The model, for unfused attention and a layer that is run by itself:

- while a stage is computed, its inputs and its output are alive; a stage is freed after its last reader;
- splitting heads copies nothing, merging them copies; a residual sum is a new tensor, and nothing is done in place;
- `x` is the caller's and is freed like a stage; the output stays alive;
- the backward pass needs the input of a linear map and of a norm, both factors of a product, the result of softmax and
  ReLU, the input of GELU, and nothing of a sum. A tensor that two operations need is saved once;
- in training a dropout makes a new tensor and saves its mask, as large as the masked tensor: PyTorch on a CPU
  multiplies by a tensor of 0 and 1/(1 − p). A kernel that saves one byte an element takes a quarter of that in float32;
- a norm's mean and deviation (2·B·S), attention masks, workspaces and parameters are left out. So is fused attention,
  which saves neither scores nor weights but B·H·S logarithms (Dao et al., 2022, arXiv 2205.14135).
"""

from dataclasses import dataclass
from math import prod

from encoder_conformance.oracle.forms import FORMS
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.layer import Layer, Placement
from encoder_conformance.spec.plan import plan

PLACEMENTS: tuple[Placement, ...] = ("pre", "post")
DROPPED, MASK = "dropped ", "mask of "
"""Prefixes of a stage's name: for the output of its dropout, and for the mask that its dropout saves."""


@dataclass(frozen=True)
class ForwardOperation:
    """One operation: it `reads` some stages, `makes` one, and `keeps` some for the backward pass."""

    makes: str
    reads: tuple[str, ...]
    keeps: tuple[str, ...]


@dataclass(frozen=True)
class Liveness:
    """Counts of elements, not bytes.

    `peak`: the most that is alive at once, while stage `at` is computed; `holding` names the stages alive then.
    `kept`: saved for the backward pass without dropout; `keeping` names the stages. `kept_in_training` is with the
    layer's dropout, and equal to `kept` if its rates are 0.
    """

    peak: int
    at: str
    holding: tuple[str, ...]
    kept: int
    keeping: tuple[str, ...]
    kept_in_training: int
    keeping_in_training: tuple[str, ...]


def liveness(case: Case, placement: Placement) -> Liveness:
    """The liveness at the case's sizes and activation, as a pre-norm or post-norm layer by `placement`."""
    layer = case.layer.model_copy(update={"norm": case.layer.norm.model_copy(update={"placement": placement})})
    steps = layer_operations(layer, frozenset())
    steps_in_training = layer_operations(layer, frozenset(layer.dropout.rates()))
    sizes = {"x": case.x_shape, **case.expected_shapes("stages")}
    last_read = {name: at for at, step in enumerate(steps) for name in (*step.reads, step.makes)}
    last_read[steps[-1].makes] = len(steps)
    made_at = {"x": -1} | {step.makes: at for at, step in enumerate(steps)}

    def count_elements(names: tuple[str, ...]) -> int:
        return sum(prod(sizes[name.removeprefix(MASK).removeprefix(DROPPED)]) for name in names)

    alive_by_step = [
        (step.makes, tuple(name for name, made in made_at.items() if made <= at <= last_read[name]))
        for at, step in enumerate(steps)
    ]
    at, holding = max(alive_by_step, key=lambda alive: count_elements(alive[1]))
    keeping, keeping_in_training = _collect_kept(steps), _collect_kept(steps_in_training)
    peak, kept, kept_in_training = map(count_elements, (holding, keeping, keeping_in_training))
    return Liveness(peak, at, holding, kept, keeping, kept_in_training, keeping_in_training)


def _collect_kept(steps: list[ForwardOperation]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for step in steps for name in step.keeps))


def layer_operations(layer: Layer, dropped: frozenset[str]) -> list[ForwardOperation]:
    """The operations in order, each with the tensors that its equation names. `dropped`: stages that have dropout."""
    steps = [(step, FORMS[step.form]) for step in plan(layer)]
    unshown = {step.makes for step, _ in steps if not step.shown}
    # A step's result, where it is no stage → the stage that is the same tensor.
    shown_as = {s.reads[0]: s.makes for s, form in steps if form.makes_no_tensor and s.shown and s.reads[0] in unshown}
    tensor_of: dict[str, str] = {}
    operations = []
    for step, form in steps:
        makes = shown_as.get(step.makes, step.makes)
        reads = tuple(tensor_of.get(name, name) for name in form.reads(step))
        if form.makes_no_tensor:
            tensor_of[step.makes] = reads[0]
            continue
        operations.append(ForwardOperation(makes, reads, form.kept(step.right, reads, makes)))
        tensor_of[step.makes] = makes
        if makes in dropped:
            operations.append(ForwardOperation(DROPPED + makes, (makes,), (MASK + makes,)))
            tensor_of[step.makes] = DROPPED + makes
    return operations
