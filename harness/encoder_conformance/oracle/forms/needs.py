"""The conditions under which a wrong variant of a step changes anything, and the reasons where it does not."""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

import numpy as np

from encoder_conformance.spec.axes import Bools
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.plan import Step, layer_sizes


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
    NO_POSITIONS = "no case says where its positions lie"
    NOT_ROTATED = "nothing is rotated"
    HEADS_NOT_NORMED = "the heads of queries and keys are not normed"
    ALL_ROTATED = "all features of a head are rotated, or none"
    ONE_KV_HEAD = "one head of keys serves every head of queries"
    OWN_HEAD_SIZE = "a head has its share of d_model"
    NO_WINDOW = "the layer has no window"
    NONE_APPENDED = "every key of the layer is a position's"
    SAME_SIDES = "the window reaches as far before a query as after it"
    UNGATED = "the feed-forward network has no gate"
    NO_CAP = "scores are not capped"
    NO_MASK = "no case masks anything"
    NO_CAUSAL_MASK = "no case has a causal mask"
    SAME_MASK = "it leaves every mask as it is"
    NO_EMPTY_ROW = "no case has a query with no key to attend to"
    UNSPECIFIED = "the layer does not specify what a query with no key is given"
    SAME_NUMBERS = "played, it gives the right numbers to the last bit"


class Need(NamedTuple):
    """A condition on a case and the step that goes wrong there, and the reason where it is not met."""

    met: Callable[[Case, Step], bool]
    otherwise: Inapplicable


def of_layer(met: Callable[[Layer], bool], otherwise: Inapplicable) -> Need:
    return Need(lambda case, step: met(case.layer), otherwise)


def masks_something(case: Case) -> bool:
    mask = case.seen()
    return mask is not None and not bool(mask.all())


def has_empty_row(case: Case) -> bool:
    """Whether a query has no key to attend to, in any head, padded queries too."""
    return leaves_no_key(case.seen())


def rows_without_key(case: Case) -> Bools | None:
    """[B, S], true where a query has no key to attend to, in one head or more; None without a mask."""
    mask = case.seen()
    return None if mask is None else np.broadcast_to(~np.all(np.any(mask, axis=-1), axis=1), case.x_shape[:2])


def leaves_no_key(mask: Bools | None) -> bool:
    """Whether a mask hides every key from some query."""
    return mask is not None and not bool(np.all(np.any(mask, axis=-1)))


def _is_square(layer: Layer, step: Step) -> bool:
    sizes = layer_sizes(layer)
    first, last = (sizes[axis] for axis in step.parameters["weight"].split())
    return first == last


MANY_HEADS = of_layer(lambda layer: layer.attention.num_heads > 1, Inapplicable.ONE_HEAD)
WIDE_HEADS = of_layer(lambda layer: layer.head_dim > 1, Inapplicable.ONE_FEATURE)
MANY_LAYERS = of_layer(lambda layer: layer.stack.layers > 1, Inapplicable.ONE_LAYER)
SCALED = of_layer(lambda layer: layer.scaled_by > 1, Inapplicable.ROOT_OF_ONE)
INEXACT_ROOT = of_layer(lambda layer: np.log2(layer.scaled_by) % 2 != 0, Inapplicable.EXACT_ROOT)
ONE_SEQUENCE = of_layer(lambda layer: not layer.takes_memory, Inapplicable.OTHER_SEQUENCE)
ROW_SPECIFIED = of_layer(lambda layer: layer.attention.fully_masked_row != "unspecified", Inapplicable.UNSPECIFIED)
"""Zero is what the oracle carries on with where nobody specifies anything."""
SQUARE = Need(lambda case, step: _is_square(case.layer, step), Inapplicable.OTHER_SHAPE)
"""What comes out has the shape of what goes in."""
HAS_BIAS = Need(lambda case, step: "bias" in step.parameters, Inapplicable.NO_PARAMETER)
NORMED_APART = Need(lambda case, step: step.beside["normed"] not in step.reads, Inapplicable.POST_NORM)
"""The sub-layer's normed input is another than the residual's."""
PLACED = Need(lambda case, step: case.situation.positions is not None, Inapplicable.NO_POSITIONS)
ROTATED = of_layer(lambda layer: layer.attention.rope is not None, Inapplicable.NOT_ROTATED)
NORMED_HEADS = of_layer(
    lambda layer: layer.attention.qk_norm is not None and layer.attention.qk_norm.over == "head",
    Inapplicable.HEADS_NOT_NORMED,
)
PARTLY_ROTATED = Need(
    lambda case, step: step.choices["rotated"] // 2 < case.layer.head_dim // 2, Inapplicable.ALL_ROTATED
)
MANY_KV_HEADS = of_layer(lambda layer: layer_sizes(layer)["K"] > 1, Inapplicable.ONE_KV_HEAD)
OWN_WIDTH = of_layer(
    lambda layer: layer.head_dim * layer.attention.num_heads != layer.d_model, Inapplicable.OWN_HEAD_SIZE
)
NOT_BY_HEAD_DIM = of_layer(lambda layer: layer.scaled_by != layer.head_dim, Inapplicable.OWN_CHOICE)
APPENDED = of_layer(lambda layer: layer.attention.appended_key is not None, Inapplicable.NONE_APPENDED)
WINDOW = of_layer(lambda layer: layer.attention.window is not None, Inapplicable.NO_WINDOW)
UNEVEN_WINDOW = of_layer(
    lambda layer: layer.attention.window is not None and layer.attention.window.left != layer.attention.window.right,
    Inapplicable.SAME_SIDES,
)
GATED = of_layer(lambda layer: layer.feed_forward.gated, Inapplicable.UNGATED)
CAPPED = of_layer(lambda layer: layer.attention.softcap is not None, Inapplicable.NO_CAP)
MASK = Need(lambda case, step: masks_something(case), Inapplicable.NO_MASK)
EMPTY_ROW = Need(lambda case, step: has_empty_row(case), Inapplicable.NO_EMPTY_ROW)


def not_its_row(row: str) -> Need:
    return of_layer(lambda layer: layer.attention.fully_masked_row != row, Inapplicable.OWN_CHOICE)


def not_its_fill(value: float) -> Need:
    return of_layer(lambda layer: layer.attention.masked_score != value, Inapplicable.OWN_CHOICE)


def not_its_theta(theta: float) -> Need:
    return Need(lambda case, step: step.choices["theta"] != theta, Inapplicable.OWN_CHOICE)


def not_its_distance(max_distance: int) -> Need:
    return Need(lambda case, step: step.choices.get("max_distance") != max_distance, Inapplicable.OWN_CHOICE)


def not_its_cap(cap: float) -> Need:
    return of_layer(lambda layer: layer.attention.softcap != cap, Inapplicable.OWN_CHOICE)
