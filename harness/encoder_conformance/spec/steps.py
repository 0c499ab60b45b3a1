"""Every step that an encoder may take, by its name and by what it makes.

They are those of a few layers and stacks that together take every optional one (`spec/plan.py`).
"""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any

from encoder_conformance.spec.plan import Step, between_layers, plan, stack_plan, with_attributes

if TYPE_CHECKING:  # adapters import this module, and have numpy and safetensors only
    from encoder_conformance.spec.layer import Layer


def _plain_layers() -> Iterator["Layer"]:
    for placement, part, tokens, final_norm in product(("pre", "post"), ("", "attention"), (0, 1), (False, True)):
        yield _layer(placement, _PLAIN, part=part, tokens=tokens, final_norm=final_norm)


def _rich_layers() -> Iterator["Layer"]:
    """Layers that together take every optional step."""
    norm, bias = {"kind": "layer_norm", "shift": True}, {"buckets": 2, "max_distance": 2}
    more = {"kv_heads": 1, "rope": {"theta": 2.0}, "position_bias": bias, "softcap": 1.0, "appended_key": "learned"}
    both = ("attention", "feed_forward")
    for over in ("head", "all"):
        attention = _PLAIN | more | {"qk_norm": norm | {"over": over}}
        yield _layer("sandwich", attention, layer_scale=both, residual_scale=2.0, gated=True)


_PLAIN = {"num_heads": 2, "projections": "full", "masked_score": 0, "qkv_bias": True, "output_bias": True}


_SINUSOIDAL = {"vocabulary": 2, "positions": "sinusoidal"}


def _layer(placement: str, attention: Mapping[str, Any], **more: Any) -> "Layer":
    keys = {
        "d_model": 2,
        "norm": {"placement": placement, "kind": "layer_norm"},
        "attention": attention,
        "feed_forward": {"bias": True, "gated": more.get("gated")},
        "dropout": {},
        "stack": {"final_norm": more.get("final_norm"), "global_layers": more.get("global_layers")},
        "embedding": more.get("embedding") or (_SINUSOIDAL if more.get("tokens") else None),
    }
    return with_attributes(keys | {key: more.get(key) for key in ("part", "layer_scale", "residual_scale")})


def _rich_stacks() -> Iterator["Layer"]:
    """Stacks that together take every optional step between their layers and around them."""
    table = {"rows": 2, "first": 0, "counted": "all"}
    learned = {"vocabulary": 2, "positions": "learned", "position_table": table, "token_types": 2, "norm": True}
    yield _layer("pre", _PLAIN, global_layers={"first": 0, "every": 2}, embedding=learned)


_OPTIONAL = {each.step: each for layer in _rich_layers() for each in plan(layer)}
_OF_PLAIN = {each.step: each for layer in _plain_layers() for each in plan(layer)}
STEPS_OF_LAYERS: Mapping[str, Step] = {**_OF_PLAIN, **{k: v for k, v in _OPTIONAL.items() if k not in _OF_PLAIN}}
"""Step's name in a patch → the step, as some layer takes it."""
_OF_PLAIN_STACKS = {
    each.step: each for layer in _plain_layers() for each in (*stack_plan(layer), *between_layers(layer))
}
_OF_RICH_STACKS = {each.step: each for layer in _rich_stacks() for each in stack_plan(layer)}
STEPS: Mapping[str, Step] = {
    **_OF_PLAIN_STACKS,
    **STEPS_OF_LAYERS,
    **{step: each for step, each in _OF_RICH_STACKS.items() if step not in _OF_PLAIN_STACKS},
}
"""The steps of stacks too."""
MAKING: Mapping[str, Step] = {each.makes: each for each in STEPS.values()}
"""Stage, or another result → the step that makes it."""


def stage_of(name: str) -> str:
    """The first stage that shows the result of a step, such as `attention_weights` for `masked_softmax`."""
    step: Step | None = STEPS[name]
    while step is not None and not step.shown:
        step = next((each for each in STEPS.values() if step.makes in each.reads), None)
    return name if step is None else step.makes


def form_of(stage: str) -> str:
    """The form of the step that makes a stage: `norm` for `norm2`; "" for what is no stage."""
    return MAKING[stage].form if stage in MAKING else ""
