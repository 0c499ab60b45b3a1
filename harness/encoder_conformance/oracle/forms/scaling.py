"""Products of elements: a gain by feature (E-31), a gate (E-19), a factor (E-29); and their wrong forms."""

from collections.abc import Callable

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.forms.activation import LAYER as ACTIVATIONS
from encoder_conformance.oracle.forms.form import Form
from encoder_conformance.oracle.forms.forward_only import forward_only
from encoder_conformance.oracle.tape import ByOperands, Pullback
from encoder_conformance.spec.axes import BSD, BSF, D, Elementwise


def by_feature(a: Arithmetic, x: BSD, gain: D, *, skip: BSD) -> tuple[BSD, Pullback]:
    """x · gain (E-31; Touvron et al., 2021, arXiv 2103.17239, LayerScale). `skip`: what it will be added to."""

    def pullback(g: BSD) -> ByOperands:
        rows = tuple(range(x.ndim - 1))
        return a.multiply(g, gain), a.sum(a.multiply(g, x), rows, keepdims=False)

    return a.multiply(x, gain), pullback


Weighing = Callable[..., tuple[Elementwise, Pullback]]


def _wrong_weights(right: Weighing) -> dict[str, Weighing]:
    """The wrong forms of a weight that belongs to what is added to x, and not to x, their sum, or nothing."""

    def weighed(a: Arithmetic, x: Elementwise, *weight: D, **choices: float) -> Elementwise:
        return right(a, x, *weight, skip=x, **choices)[0]

    def twice(a: Arithmetic, x: Elementwise, *weight: D, skip: BSD, **choices: float) -> Elementwise:
        return weighed(a, weighed(a, x, *weight, **choices), *weight, **choices)

    def on_skip(a: Arithmetic, x: Elementwise, *weight: D, skip: BSD, **choices: float) -> Elementwise:
        return a.add(x, a.subtract(weighed(a, skip, *weight, **choices), skip))

    def of_sum(a: Arithmetic, x: Elementwise, *weight: D, skip: BSD, **choices: float) -> Elementwise:
        return a.subtract(weighed(a, a.add(skip, x), *weight, **choices), skip)

    wrong = {"missing": lambda a, x, *weight, **choices: x, "twice": twice, "on-skip": on_skip, "of-sum": of_sum}
    return {name: forward_only(form) for name, form in wrong.items()}


def gain_plus_one(a: Arithmetic, x: BSD, gain: D, *, skip: BSD) -> BSD:
    """The stored gain read as gain − 1."""
    return a.multiply(x, a.add(gain, a.exact(1.0)))


def by_first_feature(a: Arithmetic, x: BSD, gain: D, *, skip: BSD) -> BSD:
    """One number for all features, the first's."""
    return a.multiply(x, gain[:1])


def product(a: Arithmetic, gate: BSF, hidden: BSF, **choices: str) -> tuple[BSF, Pullback]:
    """gate · hidden (E-19; Shazeer, 2020, arXiv 2002.05202)."""
    return a.multiply(gate, hidden), lambda g: (a.multiply(g, hidden), a.multiply(g, gate))


def _activated(a: Arithmetic, x: BSF, activation: str) -> BSF:
    return ACTIVATIONS[activation](a, x)[0]


def added(a: Arithmetic, gate: BSF, hidden: BSF, *, activation: str) -> BSF:
    """gate + hidden."""
    return a.add(gate, hidden)


def gate_alone(a: Arithmetic, gate: BSF, hidden: BSF, *, activation: str) -> BSF:
    """The hidden features forgotten."""
    return gate


def hidden_alone(a: Arithmetic, gate: BSF, hidden: BSF, *, activation: str) -> BSF:
    """The gate forgotten, and the activation with it."""
    return hidden


def hidden_activated(a: Arithmetic, gate: BSF, hidden: BSF, *, activation: str) -> BSF:
    """The gate forgotten: the network that has none."""
    return _activated(a, hidden, activation)


def both_activated(a: Arithmetic, gate: BSF, hidden: BSF, *, activation: str) -> BSF:
    """gate · activation(hidden)."""
    return a.multiply(gate, _activated(a, hidden, activation))


def product_activated(a: Arithmetic, gate: BSF, hidden: BSF, *, activation: str) -> BSF:
    """activation(gate · hidden)."""
    return _activated(a, a.multiply(gate, hidden), activation)


def times(a: Arithmetic, x: Elementwise, *, factor: float, skip: BSD) -> tuple[Elementwise, Pullback]:
    """x · factor (E-29). `skip`: what it will be added to."""
    by = a.constant(factor)
    return a.multiply(x, by), lambda g: (a.multiply(g, by),)


def divided(a: Arithmetic, x: Elementwise, *, factor: float, skip: BSD) -> Elementwise:
    """x / factor."""
    return a.divide(x, a.constant(factor))


BY_FEATURE = Form(
    {
        "standard": by_feature,
        **_wrong_weights(by_feature),
        "gain-plus-one": forward_only(gain_plus_one),
        "by-first-feature": forward_only(by_first_feature),
    },
    {"standard": "{0} * {gain}"},
    ("gain",),
    "what it reads",
)
_PRODUCTS = {
    "added": added,
    "gate-alone": gate_alone,
    "hidden-alone": hidden_alone,
    "hidden-activated": hidden_activated,
    "both-activated": both_activated,
    "product-activated": product_activated,
}
PRODUCT = Form(
    {"standard": product, **{name: forward_only(form) for name, form in _PRODUCTS.items()}},
    {"standard": "{0} * {1}"},
    keeps="what it reads",
)
TIMES = Form(
    {"standard": times, **_wrong_weights(times), "divided": forward_only(divided)}, {"standard": "{0} * {factor!r}"}
)
