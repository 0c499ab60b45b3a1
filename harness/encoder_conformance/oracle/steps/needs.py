"""The conditions under which a step, or a wrong form of it, changes anything: data, read by `deviant`."""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

import numpy as np

from encoder_conformance.oracle.steps.softmax import EMPTY_ROW, FILLED_WITH
from encoder_conformance.spec.axes import Bools
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.layer import Layer


class Inapplicable(Enum):
    """The reason why a deviation changes nothing in a case: the kind, and the words for it.

    In order: of the reasons that the cases of a layer have, the last is the one that is nearest to applying.
    """

    NO_STEP = "the layer does not take the step that goes wrong"
    NO_PARAMETER = "the layer does not have the parameter that goes wrong"
    OTHER_SHAPE = "the parameters that would be taken for each other differ in shape"
    OTHER_SEQUENCE = "keys and queries are of two sequences, and what would come out has another shape"
    OTHER_CHOICE = "it is a wrong form of another choice than the layer's"
    OWN_CHOICE = "the layer itself asks for what the deviation does"
    ONE_HEAD = "the layer has one head"
    ONE_FEATURE = "each head has one feature"
    ONE_LAYER = "the stack has one layer"
    ROOT_OF_ONE = "the scores are divided by 1"
    EXACT_ROOT = "the scores are divided by a power of two, which every format holds exactly"
    NO_DROPOUT = "the layer drops nothing there"
    IN_TRAINING = "it shows in training alone, where the check dropout names it"
    POST_NORM = "only a pre-norm layer has a sub-layer's normed input apart from the residual's"
    NO_BIAS = "no case adds a bias to the scores"
    NO_MASK = "no case masks anything"
    NO_CAUSAL_MASK = "no case has a causal mask"
    SAME_MASK = "it leaves every mask as it is"
    NO_EMPTY_ROW = "no case has a query with no key to attend to"
    UNSPECIFIED = "the layer does not specify what a query with no key is given"
    SAME_NUMBERS = "played, it gives the right numbers to the last bit"


class Need(NamedTuple):
    """A condition on a case, and the reason where it is not met."""

    met: Callable[[Case], bool]
    otherwise: Inapplicable


def _of_layer(met: Callable[[Layer], bool], otherwise: Inapplicable) -> Need:
    return Need(lambda case: met(case.layer), otherwise)


def masks_something(case: Case) -> bool:
    mask = case.mask()
    return mask is not None and not bool(mask.all())


def has_empty_row(case: Case) -> bool:
    """Whether a query has no key to attend to, in any head, padded queries too."""
    return leaves_no_key(case.mask())


def rows_without_key(case: Case) -> Bools | None:
    """[B, S], true where a query has no key to attend to, in one head or more; None without a mask."""
    mask = case.mask()
    return None if mask is None else np.broadcast_to(~np.all(np.any(mask, axis=-1), axis=1), case.x_shape[:2])


def leaves_no_key(mask: Bools | None) -> bool:
    """Whether a mask hides every key from some query."""
    return mask is not None and not bool(np.all(np.any(mask, axis=-1)))


_MANY_HEADS = _of_layer(lambda layer: layer.attention.num_heads > 1, Inapplicable.ONE_HEAD)
_WIDE_HEADS = _of_layer(lambda layer: layer.head_dim > 1, Inapplicable.ONE_FEATURE)
_MANY_LAYERS = _of_layer(lambda layer: layer.stack.layers > 1, Inapplicable.ONE_LAYER)
_SCALED = _of_layer(lambda layer: layer.scaled_by > 1, Inapplicable.ROOT_OF_ONE)
_INEXACT_ROOT = _of_layer(lambda layer: np.log2(layer.scaled_by) % 2 != 0, Inapplicable.EXACT_ROOT)
_PRE_NORM = _of_layer(lambda layer: layer.norm.placement == "pre", Inapplicable.POST_NORM)
_EMBEDDING = _of_layer(lambda layer: layer.embedding is not None, Inapplicable.NO_STEP)
_POSITIONS = _of_layer(
    lambda layer: layer.embedding is not None and layer.embedding.positions == "sinusoidal", Inapplicable.NO_STEP
)
_STACK = _of_layer(lambda layer: layer.is_stack, Inapplicable.NO_STEP)
_FINAL_NORM = _of_layer(lambda layer: layer.stack.final_norm, Inapplicable.NO_STEP)
_NO_FINAL_NORM = _of_layer(lambda layer: layer.is_stack and not layer.stack.final_norm, Inapplicable.NO_STEP)
_QKV_BIAS = _of_layer(lambda layer: layer.attention.qkv_bias, Inapplicable.NO_PARAMETER)
_OUTPUT_BIAS = _of_layer(lambda layer: layer.attention.output_bias, Inapplicable.NO_PARAMETER)
_FFN_BIAS = _of_layer(lambda layer: layer.feed_forward.bias, Inapplicable.NO_PARAMETER)
_ONE_SEQUENCE = _of_layer(lambda layer: not layer.takes_memory, Inapplicable.OTHER_SEQUENCE)
_BIAS = Need(lambda case: case.situation.mask.bias is not None, Inapplicable.NO_BIAS)
_MASK = Need(masks_something, Inapplicable.NO_MASK)
_EMPTY_ROW = Need(has_empty_row, Inapplicable.NO_EMPTY_ROW)


def _not_its_row(row: str) -> Need:
    return _of_layer(lambda layer: layer.attention.fully_masked_row != row, Inapplicable.OWN_CHOICE)


def _not_its_fill(value: float) -> Need:
    return _of_layer(lambda layer: layer.attention.masked_score != value, Inapplicable.OWN_CHOICE)


_ROW_SPECIFIED = _of_layer(
    lambda layer: layer.attention.fully_masked_row != "unspecified", Inapplicable.UNSPECIFIED
)  # zero is what the oracle carries on with where nobody specifies anything

IN_ATTENTION = frozenset(
    {"query", "key", "value", "query_heads", "key_heads", "value_heads", "attention_scores", "attention_bias"}
    | {"masked_softmax", "attend", "merge_heads", "attention_output"}
)
"""The steps that attention alone takes (E-17)."""

OF_STEP: dict[str, Need] = {
    "tokens": _EMBEDDING,
    "positions": _POSITIONS,
    "after_embedding": _EMBEDDING,
    "between_layers": _POSITIONS,
    "layer_order": _STACK,
    "stack_norm": _FINAL_NORM,
    "stack_end": _NO_FINAL_NORM,
    "final_norm": _PRE_NORM,
    "attention_bias": _BIAS,
}
"""Step → what a layer, or a case, needs to take it at all."""

OF_FORM: dict[tuple[str, str], tuple[Need, ...]] = {
    **{
        (step, form): needs
        for step in ("query_heads", "key_heads", "value_heads", "merge_heads")
        for form, needs in {"interleaved": (_MANY_HEADS, _WIDE_HEADS), "by-reshape": (_MANY_HEADS,)}.items()
    },
    ("merge_heads", "reversed"): (_MANY_HEADS,),
    ("query_heads", "across-batch"): (_ONE_SEQUENCE,),
    ("attend", "identity"): (_ONE_SEQUENCE,),
    **{
        (step, form): needs
        for step in ("query", "key", "value")
        for form, needs in {
            "bias-twice": (_QKV_BIAS,),
            "first-head-for-all": (_MANY_HEADS,),
            "scaled": (_SCALED,),
            "scaled-before-bias": (_SCALED,),
        }.items()
    },
    ("attention_output", "bias-twice"): (_OUTPUT_BIAS,),
    ("ffn_hidden", "bias-twice"): (_FFN_BIAS,),
    ("ffn_output", "bias-twice"): (_FFN_BIAS,),
    **{("attention_scores", form): (_SCALED,) for form in ("not-scaled", "scaled-twice", "multiplied")},
    ("attention_scores", "scale-in-float32"): (_INEXACT_ROOT,),
    ("attention_scores", "by-d-model"): (_MANY_HEADS,),
    ("attention_scores", "by-head-dim"): (_MANY_HEADS,),
    ("attention_scores", "key-by-reshape"): (_WIDE_HEADS,),
    ("attention_bias", "of-head-0"): (_MANY_HEADS,),
    ("between_layers", "positions-again"): (_MANY_LAYERS,),
    ("layer_order", "first-for-all"): (_MANY_LAYERS,),
    ("residual1", "from-normed"): (_PRE_NORM,),
    ("residual2", "from-normed"): (_PRE_NORM,),
    **{("masked_softmax", form): (_MASK, _not_its_fill(value)) for form, value in FILLED_WITH.items()},
    **{
        ("masked_softmax", form): (_MASK,)
        for form in (
            "added-minus-10",
            "added-minus-1e4",
            "added-minus-1e9",
            "added-minus-1e12",
            "multiplied",
            "masked-after",
            "masked-after-renormalised",
        )
    },
    **{("masked_softmax", form): (_EMPTY_ROW, _not_its_row(row)) for form, row in EMPTY_ROW.items()},
    ("masked_softmax", "empty-row-zero"): (_EMPTY_ROW, _not_its_row("zero"), _ROW_SPECIFIED),
}
"""(step, wrong form) → what a case needs for the form to change anything."""

IS_CHOICE: dict[tuple[str, str], str] = {
    **{(step, "root-mean-square"): "rms_norm" for step in ("norm1", "norm2")},
    **{(step, "layer-norm"): "standard" for step in ("norm1", "norm2")},
    **{(step, "first-head-for-all"): "shared_by_heads" for step in ("query", "key", "value")},
    ("attention_scores", "by-d-model"): "by-d-model",
    ("attention_scores", "by-head-dim"): "standard",
}
"""(step, form) → the right form that it is, where a layer chooses that."""

FAINT = frozenset(
    {"filled-minus-1e4", "filled-minus-1e9", "filled-minus-1e20", "filled-lowest"}
    | {"added-minus-1e4", "added-minus-1e9", "added-minus-1e12"}
    | {"scaled"}
)
"""Forms that may change no number: a fill shows only where a score is as low, or a query has no key (exp(−10000) is 0);
a query that is scaled in place of the scores shows at the query itself, which a stack does not show."""


def takes_step(case: Case, step: str) -> bool:
    """Whether the case takes the step at all."""
    if case.layer.part == "attention" and step not in IN_ATTENTION:
        return False
    return step not in OF_STEP or OF_STEP[step].met(case)


def unmet(case: Case, step: str, form: str) -> Inapplicable | None:
    """The first thing that the form of the step needs of the case and does not find."""
    if not takes_step(case, step):
        need = OF_STEP.get(step)
        return Inapplicable.NO_STEP if need is None or need.met(case) else need.otherwise
    return next((need.otherwise for need in OF_FORM.get((step, form), ()) if not need.met(case)), None)
