"""What is alive when: the largest that a forward pass holds at once, and what it keeps for the backward pass.

The model, for attention that is written out and a layer that is run by itself:

- a stage is made from others and takes their memory and its own; it is freed after its last reader;
- splitting heads moves nothing, merging them copies; a residual sum is a new tensor, and nothing is done in place;
- `x` is the caller's and is freed like a stage; the output stays;
- backward keeps what the derivative of an operation needs: a linear map and a norm their input, a product of two
  tensors both, softmax and ReLU their result, GELU its input, a sum nothing. What two operations need is kept once;
- in training a dropout makes a new tensor and keeps its mask, as large as what it masks: PyTorch on a CPU multiplies by
  a tensor of 0 and 1/(1 − p). Where a kernel keeps a byte for each element, float32 masks take a quarter of that;
- a norm's mean and deviation (2·B·S), attention masks, workspaces and parameters are left out. So is fused attention,
  which keeps neither scores nor weights but B·H·S logarithms (Dao et al., 2022, arXiv 2205.14135).
"""

from dataclasses import dataclass
from math import prod
from typing import Literal

from encoder_conformance.spec.case import Case

Placement = Literal["pre", "post"]
PLACEMENTS: tuple[Placement, ...] = ("pre", "post")
DROPPED, MASK = "dropped ", "mask of "
"""Before a stage's name: what its dropout hands on, and the mask that the dropout keeps."""


@dataclass(frozen=True)
class Step:
    """`makes` one stage from those that it `reads`, and `keeps` these for the backward pass."""

    makes: str
    reads: tuple[str, ...]
    keeps: tuple[str, ...]


@dataclass(frozen=True)
class Liveness:
    """In numbers, not bytes: `peak`, reached while stage `at` is made with `holding` alive; `kept` for backward.

    `kept` is without dropout; `kept_in_training` with that of the layer, and the same where it drops nothing.
    """

    peak: int
    at: str
    holding: tuple[str, ...]
    kept: int
    keeping: tuple[str, ...]
    kept_in_training: int
    keeping_in_training: tuple[str, ...]


def liveness(case: Case, placement: Placement) -> Liveness:
    """For the case's sizes and activation, with the norms where `placement` ("pre" or "post") has them."""
    activation = case.layer.feed_forward.activation
    steps = _steps(placement, activation, frozenset())
    training = _steps(placement, activation, frozenset(case.layer.dropout.rates()))
    sizes = {"x": case.x_shape, **case.expected_shapes("stages")}
    last_read = {name: at for at, step in enumerate(steps) for name in (*step.reads, step.makes)}
    last_read[steps[-1].makes] = len(steps)
    made_at = {"x": -1} | {step.makes: at for at, step in enumerate(steps)}

    def numbers(names: tuple[str, ...]) -> int:
        return sum(prod(sizes[name.removeprefix(MASK).removeprefix(DROPPED)]) for name in names)

    moments = [
        (step.makes, tuple(name for name, made in made_at.items() if made <= at <= last_read[name]))
        for at, step in enumerate(steps)
    ]
    at, holding = max(moments, key=lambda moment: numbers(moment[1]))
    keeping, in_training = _kept(steps), _kept(training)
    return Liveness(numbers(holding), at, holding, numbers(keeping), keeping, numbers(in_training), in_training)


def _kept(steps: list[Step]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for step in steps for name in step.keeps))


def _steps(placement: Placement, activation: str, dropped: frozenset[str]) -> list[Step]:
    """`dropped`: the stages whose dropout is at work."""
    attention, attended = _dropout("attention_output", dropped)
    feed, fed = _dropout("ffn_output", dropped)
    if placement == "pre":
        return [
            Step("norm1", ("x",), ("x",)),
            *_attention("norm1", dropped),
            *attention,
            Step("residual1", ("x", attended), ()),
            Step("norm2", ("residual1",), ("residual1",)),
            *_feed_forward("norm2", activation, dropped),
            *feed,
            Step("residual2", ("residual1", fed), ()),
        ]
    return [
        *_attention("x", dropped),
        *attention,
        Step("residual1", ("x", attended), ()),
        Step("norm1", ("residual1",), ("residual1",)),
        *_feed_forward("norm1", activation, dropped),
        *feed,
        Step("residual2", ("norm1", fed), ()),
        Step("norm2", ("residual2",), ("residual2",)),
    ]


def _attention(x: str, dropped: frozenset[str]) -> list[Step]:
    dropout, weights = _dropout("attention_weights", dropped)
    return [
        *(Step(name, (x,), (x,)) for name in ("query", "key", "value")),
        Step("attention_scores", ("query", "key"), ("query", "key")),
        Step("attention_weights", ("attention_scores",), ("attention_weights",)),
        *dropout,
        Step("context", (weights, "value"), (weights, "value")),
        Step("context_merged", ("context",), ()),
        Step("attention_output", ("context_merged",), ("context_merged",)),
    ]


def _feed_forward(x: str, activation: str, dropped: frozenset[str]) -> list[Step]:
    kept = "ffn_activation" if activation == "relu" else "ffn_hidden"
    dropout, hidden = _dropout("ffn_activation", dropped)
    return [
        Step("ffn_hidden", (x,), (x,)),
        Step("ffn_activation", ("ffn_hidden",), (kept,)),
        *dropout,
        Step("ffn_output", (hidden,), (hidden,)),
    ]


def _dropout(stage: str, dropped: frozenset[str]) -> tuple[list[Step], str]:
    """The dropout of a stage, if it is at work, and the name of what it hands on."""
    if stage not in dropped:
        return [], stage
    return [Step(DROPPED + stage, (stage,), (MASK + stage,))], DROPPED + stage
