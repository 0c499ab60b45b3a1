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
from typing import Literal

from encoder_conformance.spec.case import Case

Placement = Literal["pre", "post"]
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
    activation = case.layer.feed_forward.activation
    steps = _layer_steps(placement, activation, frozenset())
    steps_in_training = _layer_steps(placement, activation, frozenset(case.layer.dropout.rates()))
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
    return Liveness(
        count_elements(holding),
        at,
        holding,
        count_elements(keeping),
        keeping,
        count_elements(keeping_in_training),
        keeping_in_training,
    )


def _collect_kept(steps: list[ForwardOperation]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for step in steps for name in step.keeps))


def _layer_steps(placement: Placement, activation: str, dropped: frozenset[str]) -> list[ForwardOperation]:
    """The operations in order. `dropped`: the stages that have dropout."""
    attention_dropout, attention_output = _dropout_steps("attention_output", dropped)
    ffn_dropout, ffn_output = _dropout_steps("ffn_output", dropped)
    if placement == "pre":
        return [
            ForwardOperation("norm1", ("x",), ("x",)),
            *_attention_steps("norm1", dropped),
            *attention_dropout,
            ForwardOperation("residual1", ("x", attention_output), ()),
            ForwardOperation("norm2", ("residual1",), ("residual1",)),
            *_feed_forward_steps("norm2", activation, dropped),
            *ffn_dropout,
            ForwardOperation("residual2", ("residual1", ffn_output), ()),
        ]
    return [
        *_attention_steps("x", dropped),
        *attention_dropout,
        ForwardOperation("residual1", ("x", attention_output), ()),
        ForwardOperation("norm1", ("residual1",), ("residual1",)),
        *_feed_forward_steps("norm1", activation, dropped),
        *ffn_dropout,
        ForwardOperation("residual2", ("norm1", ffn_output), ()),
        ForwardOperation("norm2", ("residual2",), ("residual2",)),
    ]


def _attention_steps(x: str, dropped: frozenset[str]) -> list[ForwardOperation]:
    dropout, weights = _dropout_steps("attention_weights", dropped)
    return [
        *(ForwardOperation(name, (x,), (x,)) for name in ("query", "key", "value")),
        ForwardOperation("attention_scores", ("query", "key"), ("query", "key")),
        ForwardOperation("attention_weights", ("attention_scores",), ("attention_weights",)),
        *dropout,
        ForwardOperation("context", (weights, "value"), (weights, "value")),
        ForwardOperation("context_merged", ("context",), ()),
        ForwardOperation("attention_output", ("context_merged",), ("context_merged",)),
    ]


def _feed_forward_steps(x: str, activation: str, dropped: frozenset[str]) -> list[ForwardOperation]:
    kept = "ffn_activation" if activation == "relu" else "ffn_hidden"
    dropout, hidden = _dropout_steps("ffn_activation", dropped)
    return [
        ForwardOperation("ffn_hidden", (x,), (x,)),
        ForwardOperation("ffn_activation", ("ffn_hidden",), (kept,)),
        *dropout,
        ForwardOperation("ffn_output", (hidden,), (hidden,)),
    ]


def _dropout_steps(stage: str, dropped: frozenset[str]) -> tuple[list[ForwardOperation], str]:
    """The dropout operation of a stage, if it has one, and the name of its output."""
    if stage not in dropped:
        return [], stage
    return [ForwardOperation(DROPPED + stage, (stage,), (MASK + stage,))], DROPPED + stage
