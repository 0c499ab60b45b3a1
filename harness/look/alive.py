"""What is alive when: the largest that a forward pass holds at once, and what it keeps for the backward pass.

The model, for attention that is written out and a layer that is run by itself:

- a stage is made from others and takes their memory and its own; it is freed after its last reader;
- splitting heads moves nothing, merging them copies; a residual sum is a new tensor, and nothing is done in place;
- `x` is the caller's and is freed like a stage; the output stays;
- backward keeps what the derivative of an operation needs: a linear map and a norm their input, a product of two
  tensors both, softmax and ReLU their result, GELU its input, a sum nothing. What two operations need is kept once;
- a norm's mean and deviation (2·B·S), masks, workspaces and parameters are left out. So is fused attention, which keeps
  neither scores nor weights but B·H·S logarithms (Dao et al., 2022, arXiv 2205.14135).
"""

from dataclasses import dataclass
from math import prod
from typing import Literal

from harness.spec.case import Case

Placement = Literal["pre", "post"]


@dataclass(frozen=True)
class Step:
    """`makes` one stage from those that it `reads`, and `keeps` these for the backward pass."""

    makes: str
    reads: tuple[str, ...]
    keeps: tuple[str, ...]


@dataclass(frozen=True)
class Alive:
    """In numbers, not bytes: `peak`, reached while stage `at` is made with `holding` alive; `kept` for backward."""

    peak: int
    at: str
    holding: tuple[str, ...]
    kept: int
    keeping: tuple[str, ...]


def alive(case: Case, placement: Placement) -> Alive:
    """For the case's sizes and activation, with the norms where `placement` ("pre" or "post") has them."""
    sizes = {"x": case.x_shape, **case.expected_shapes("stages")}
    steps = _steps(placement, case.layer.feed_forward.activation)
    last_read = {name: at for at, step in enumerate(steps) for name in (*step.reads, step.makes)}
    last_read[steps[-1].makes] = len(steps)
    made_at = {"x": -1} | {step.makes: at for at, step in enumerate(steps)}

    def numbers(names: tuple[str, ...]) -> int:
        return sum(prod(sizes[name]) for name in names)

    moments = [
        (step.makes, tuple(name for name, made in made_at.items() if made <= at <= last_read[name]))
        for at, step in enumerate(steps)
    ]
    at, holding = max(moments, key=lambda moment: numbers(moment[1]))
    keeping = tuple(dict.fromkeys(name for step in steps for name in step.keeps))
    return Alive(numbers(holding), at, holding, numbers(keeping), keeping)


def _steps(placement: Placement, activation: str) -> list[Step]:
    if placement == "pre":
        return [
            Step("norm1", ("x",), ("x",)),
            *_attention("norm1"),
            Step("residual1", ("x", "attention_output"), ()),
            Step("norm2", ("residual1",), ("residual1",)),
            *_feed_forward("norm2", activation),
            Step("residual2", ("residual1", "ffn_output"), ()),
        ]
    return [
        *_attention("x"),
        Step("residual1", ("x", "attention_output"), ()),
        Step("norm1", ("residual1",), ("residual1",)),
        *_feed_forward("norm1", activation),
        Step("residual2", ("norm1", "ffn_output"), ()),
        Step("norm2", ("residual2",), ("residual2",)),
    ]


def _attention(x: str) -> list[Step]:
    return [
        *(Step(name, (x,), (x,)) for name in ("query", "key", "value")),
        Step("attention_scores", ("query", "key"), ("query", "key")),
        Step("attention_weights", ("attention_scores",), ("attention_weights",)),
        Step("context", ("attention_weights", "value"), ("attention_weights", "value")),
        Step("context_merged", ("context",), ()),
        Step("attention_output", ("context_merged",), ("context_merged",)),
    ]


def _feed_forward(x: str, activation: str) -> list[Step]:
    kept = "ffn_activation" if activation == "relu" else "ffn_hidden"
    return [
        Step("ffn_hidden", (x,), (x,)),
        Step("ffn_activation", ("ffn_hidden",), (kept,)),
        Step("ffn_output", ("ffn_activation",), ("ffn_activation",)),
    ]
