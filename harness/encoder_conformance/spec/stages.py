"""The stages of an encoder: names, shapes, and the order in which they are computed (clauses T-1 and T-3).

They are read off the plan (`spec/plan.py`), which says what the letters of axes are.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from encoder_conformance.spec.plan import Step, layer_sizes, plan, stack_plan
from encoder_conformance.spec.steps import MAKING, STEPS, STEPS_OF_LAYERS

if TYPE_CHECKING:  # adapters import this module, and have numpy and safetensors only
    from encoder_conformance.spec.layer import Layer
    from encoder_conformance.spec.situation import Situation

SHAPES: dict[str, str] = {step.makes: step.axes for step in STEPS.values() if step.shown} | {"layer_k": "B S D"}
"""`step_of` a stage → its axes. `layer_k` stands for every layer of a stack."""
OF_KEYS = frozenset(stage for stage, axes in SHAPES.items() if "T" in axes.split()[:-1])
"""Stages with one row for each key."""
LAST_AXIS_IS_KEYS = frozenset(stage for stage, axes in SHAPES.items() if axes.endswith("T"))
SCORES = frozenset(stage for stage in LAST_AXIS_IS_KEYS if MAKING[stage].form != "softmax")
"""Stages of scores, before the mask."""

INSIDE_UP_TO = 4
"""The largest number of layers of a stack that shows the stages inside them (clause T-3)."""


def shows_inside(layers: int) -> bool:
    """Whether a stack of so many layers shows the stages inside them, as `layer_0.norm1` and so on (clause T-3).

    Example: `shows_inside(4)` is True, `shows_inside(5)` is False.
    """
    return layers <= INSIDE_UP_TO


@lru_cache(maxsize=512)
def stages(layer: "Layer") -> tuple[str, ...]:
    """The stages of a layer or stack in the order in which they are computed."""
    if not layer.is_stack:
        return _shown(plan(layer))
    found: list[str] = []
    for step in stack_plan(layer):
        for number in range(layer.stack.layers) if step.form == "layers" else ():
            inside = _shown(plan(layer, number))[:-1] if shows_inside(layer.stack.layers) else ()
            found += [*(f"{layer_stage(number)}.{stage}" for stage in inside), layer_stage(number)]
        found += _shown([step])
    return tuple(found)


def _shown(steps: Iterable[Step]) -> tuple[str, ...]:
    return tuple(step.makes for step in steps if step.shown)


def layer_stage(number: int) -> str:
    """The stage name of the output of layer `number` of a stack, from 0."""
    return f"layer_{number}"


@lru_cache(maxsize=4096)
def kind_of(stage: str) -> str:
    """The stage without the number of its layer: `layer_k` for `layer_0`, `layer_k.norm1` for `layer_0.norm1`."""
    return re.sub(r"^layer_[0-9]+(?=\.|$)", "layer_k", stage)


@lru_cache(maxsize=4096)
def step_of(stage: str) -> str:
    """The stage's name in the table of T-1: `norm1` for `layer_0.norm1`, `layer_k` for `layer_0`."""
    return kind_of(stage).removeprefix("layer_k.")


def layer_of(stage: str) -> str:
    """The prefix of a stage inside a layer of a stack, `layer_0.`; "" for any other stage."""
    return stage.removesuffix(step_of(stage)) if "." in stage else ""


_INSIDE = frozenset(step.makes for step in STEPS_OF_LAYERS.values() if step.shown) - {"output"}


def is_stage(name: str) -> bool:
    """Whether some layer or stack has a stage of this name, or of this kind."""
    inside = kind_of(name).startswith("layer_k.")
    return step_of(name) in (_INSIDE if inside else SHAPES)


def reads_of(stage: str, layer: "Layer") -> tuple[str, ...]:
    """The stages and inputs that the step reads which makes a stage of this layer: a gated layer's activation is of
    the gate."""
    return next(step.reads for step in plan(layer) if step.makes == stage)


def axes_of(stage: str, *, appended: bool = False) -> str:
    """The letters of a stage's axes in self-attention, where T is S, but for the keys of scores beside which one is
    `appended` (E-44)."""
    axes = SHAPES[step_of(stage)]
    return axes if appended and step_of(stage) in LAST_AXIS_IS_KEYS else axes.replace("T", "S")


def appended_keys(layer: "Layer") -> int:
    """How many keys there are beside those of positions (E-44)."""
    return int(layer.attention.appended_key is not None)


def stage_shape(stage: str, layer: "Layer", situation: "Situation") -> tuple[int, ...]:
    sizes = layer_sizes(layer) | {"B": situation.batch, "S": situation.sequence, "T": situation.keys}
    if step_of(stage) in LAST_AXIS_IS_KEYS:
        sizes["T"] += appended_keys(layer)
    return tuple(sizes[letter] for letter in SHAPES[step_of(stage)].split())
