"""Which layers of a stack attend without the window of the others (E-33), and the wrong forms of it."""

from collections.abc import Callable

from encoder_conformance.oracle.forms.form import Form
from encoder_conformance.oracle.forms.needs import Inapplicable, of_layer
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.plan import Step, plan

Planned = Callable[[Layer, int], tuple[Step, ...]]
"""(the stack, the number of one of its layers) → the steps of that layer."""


def _without(layer: Layer) -> Layer:
    """The stack of which no layer is global."""
    return layer.model_copy(update={"stack": layer.stack.model_copy(update={"global_layers": None})})


def _unbounded(layer: Layer) -> Layer:
    """The stack of which no layer has a window."""
    return layer.model_copy(update={"attention": layer.attention.model_copy(update={"window": None})})


def _with(form: str, other: Callable[[Layer], Layer]) -> Planned:
    """The steps of each layer, but those of one form as another stack has them."""

    def planned(layer: Layer, number: int) -> tuple[Step, ...]:
        both = zip(plan(layer, number), plan(other(layer), number), strict=True)
        return tuple(theirs if own.form == form else own for own, theirs in both)

    return planned


def one_later(layer: Layer, number: int) -> tuple[Step, ...]:
    """Each global layer is the next one: counted from 1, or tested before the count goes on."""
    those = layer.stack.global_layers
    assert those is not None
    next_ones = those.model_copy(update={"first": (those.first + 1) % those.every})
    return plan(layer.model_copy(update={"stack": layer.stack.model_copy(update={"global_layers": next_ones})}), number)


_HAS_WINDOW = of_layer(lambda layer: layer.attention.window is not None, Inapplicable.NO_STEP)
_OWN_THETA = of_layer(
    lambda layer: layer.stack.global_layers is not None and layer.stack.global_layers.theta is not None,
    Inapplicable.NO_STEP,
)

GLOBAL_LAYERS = Form(
    {
        "standard": plan,
        "window-everywhere": _with("softmax", _without),
        "window-nowhere": _with("softmax", _unbounded),
        "one-theta": _with("rotation", _without),
        "one-later": one_later,
    },
    {"standard": ""},
    makes_no_tensor=True,
    needs={"window-everywhere": (_HAS_WINDOW,), "window-nowhere": (_HAS_WINDOW,), "one-theta": (_OWN_THETA,)},
)
