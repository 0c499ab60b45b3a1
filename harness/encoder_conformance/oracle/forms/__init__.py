"""The forms of steps: what each kind computes, rightly and wrongly, its equation, and what it keeps for the way back.

`spec/plan.py` says in which order a layer takes which steps. Only the oracle knows that there are wrong variants: a
deviation's patch names them (specs/deviations/).
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from encoder_conformance.oracle.forms import (
    activation,
    attention,
    by_layer,
    embedding,
    heads,
    learned_positions,
    linear,
    norm,
    position_bias,
    residual,
    rotation,
    scaling,
    softmax,
)  # fmt: skip
from encoder_conformance.oracle.forms.form import Form
from encoder_conformance.oracle.forms.needs import MANY_LAYERS
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.equation import Equation
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.plan import Step, between_layers, plan, stack_plan, unlike_layers
from encoder_conformance.spec.steps import STEPS

LayerOrder = Callable[[int], tuple[int | None, ...]]
"""The number of layers of a stack → the number of the layer at each place; None where there is none."""

LAYER_ORDER: dict[str, LayerOrder] = {
    "standard": lambda layers: tuple(range(layers)),
    "without-last": lambda layers: (*range(layers - 1), None),
    "first-for-all": lambda layers: (0,) * layers,
}

FORMS: Mapping[str, Form] = {
    "norm": norm.NORM,
    "projection": linear.PROJECTION,
    "linear": linear.LINEAR,
    "split_heads": heads.SPLIT_HEADS,
    "rotation": rotation.ROTATION,
    "repeat_heads": heads.REPEAT_HEADS,
    "append": heads.APPEND,
    "scores": attention.SCORES,
    "position_bias": position_bias.POSITION_BIAS,
    "softcap": attention.SOFTCAP,
    "bias": attention.BIAS,
    "softmax": softmax.SOFTMAX,
    "attend": attention.ATTEND,
    "merge_heads": heads.MERGE_HEADS,
    "activation": activation.ACTIVATION,
    "after_ffn": activation.AFTER_FFN,
    "product": scaling.PRODUCT,
    "by_feature": scaling.BY_FEATURE,
    "times": scaling.TIMES,
    "sum": residual.SUM,
    "end": norm.END,
    "same": Form({}, {"standard": "{0}"}, makes_no_tensor=True),
    "tokens": embedding.TOKENS,
    "token_types": embedding.TOKEN_TYPES,
    "positions": embedding.POSITIONS,
    "learned_positions": learned_positions.LEARNED_POSITIONS,
    "after_embedding": embedding.AFTER_EMBEDDING,
    "between_layers": embedding.BETWEEN_LAYERS,
    "global_layers": by_layer.GLOBAL_LAYERS,
    "layers": Form(LAYER_ORDER, {}, needs={"first-for-all": (MANY_LAYERS,)}),
    "stack_norm": norm.STACK_NORM,
    "stack_end": norm.STACK_END,
}
"""Form of a step of the plan → what it computes."""

VARIANTS: Mapping[str, Mapping[str, Any]] = {
    name: variants for name, step in STEPS.items() if (variants := FORMS[step.form].variants)
}
"""Step that a deviation may name → its variants by name."""


@lru_cache(maxsize=512)
def steps_of(layer: Layer) -> dict[str, Step]:
    """The steps that a layer or stack takes, by the names that deviations have for them; of a stack's layers the
    first that takes each."""
    if not layer.is_stack:
        return {step.step: step for step in plan(layer)}
    of_layers = [step for number in unlike_layers(layer) for step in plan(layer, number)]
    of_stack = (*stack_plan(layer), *between_layers(layer))
    found = {step.step: step for step in reversed(of_layers)}
    return {step.step: found.get(step.step, step) for step in of_layers} | {step.step: step for step in of_stack}


def variant_of(step: Step, wrong: str) -> str | None:
    """The variant of a step that has the wrong one's mistake; None where the mistake says nothing of the right one.

    Wrong variants are of the standard one: an unbiased variance says nothing of an RMSNorm. What can go wrong with
    another choice of the layer too has a variant of its own there, by `forms_of`.
    """
    if step.right == "standard" or step.form == "activation":  # `replaces` says in the place of which activation
        return wrong
    beside = f"{step.right}-{wrong}"
    return beside if beside in FORMS[step.form].variants else None


def takes(case: Case, step: Step) -> bool:
    """Whether a case gives what the step reads: without a bias of the scores none is added."""
    return step.form != "bias" or case.situation.mask.bias is not None


@lru_cache(maxsize=512)
def stage_equations(layer: Layer) -> Mapping[str, Equation]:
    """Stage → its equation, of one layer or of attention alone; {} of a stack, whose stages are whole layers.

    An equation names only stages before its own: a step that shows none is written into those that read it.
    """
    found: dict[str, Equation] = {}
    inside: dict[str, str] = {}
    for step in () if layer.is_stack else plan(layer):
        text = FORMS[step.form].equation_of(step, inside)
        if step.shown:
            found[step.makes] = _parsed(text)
        else:
            inside[step.makes] = text
    return found


_parsed = lru_cache(maxsize=512)(Equation)
"""Layers share most of their equations, and each case asks for them."""


NOISY = frozenset(
    {
        "in-bfloat16",
        "in-float16",
        "in-tf32",
        "in-float32",
        "fast-variance",
        "without-largest",
        "without-largest-flushed",
    }
    | {"dropout", "dropout-broadcast"}
)
"""Forms whose values depend on bits that nobody specifies; only their size can be predicted."""

MIXES_ITEMS = frozenset({"over-batch", "across-batch"})
"""Forms that compute an item of the batch from the others too."""

FAINT = frozenset(
    {*softmax.FILLED_WITH, softmax.ZEROED, *softmax.ADDED, "scaled"} - {"filled-minus-10", "added-minus-10"}
)
"""Forms that may change no number: a fill shows only where a score is as low, or a query has no key (exp(−10000) is 0);
a query that is scaled in place of the scores shows at the query itself, which a stack does not show."""
