"""Residual sums (E-3, E-4), and their wrong forms."""

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.forms.form import Form
from encoder_conformance.oracle.forms.forward_only import forward_only
from encoder_conformance.oracle.forms.needs import NORMED_APART
from encoder_conformance.oracle.tape import Pullback, Step
from encoder_conformance.spec.axes import BSD


def residual(a: Arithmetic, x: BSD, change: BSD, normed: BSD, first: BSD) -> tuple[BSD, Pullback]:
    """x + change; `normed` is what the sub-layer was given, `first` the layer's own input."""
    return a.add(x, change), lambda g: (g, g)


def missing(a: Arithmetic, x: BSD, change: BSD, normed: BSD, first: BSD) -> BSD:
    """The sub-layer's result alone."""
    return change


def from_normed(a: Arithmetic, x: BSD, change: BSD, normed: BSD, first: BSD) -> BSD:
    """The sub-layer's own, normed input in place of x."""
    return a.add(normed, change)


def from_first(a: Arithmetic, x: BSD, change: BSD, normed: BSD, first: BSD) -> BSD:
    """The layer's input in place of what the first sub-layer made of it."""
    return a.add(first, change)


def twice(a: Arithmetic, x: BSD, change: BSD, normed: BSD, first: BSD) -> BSD:
    """x added two times."""
    return a.add(a.add(x, x), change)


def subtracted(a: Arithmetic, x: BSD, change: BSD, normed: BSD, first: BSD) -> BSD:
    """x − change."""
    return a.subtract(x, change)


VARIANTS: dict[str, Step] = {
    "standard": residual,
    "missing": forward_only(missing),
    "from-normed": forward_only(from_normed),
    "from-first": forward_only(from_first),
    "twice": forward_only(twice),
    "subtracted": forward_only(subtracted),
}

SUM = Form(VARIANTS, {"standard": "{0} + {1}"}, needs={"from-normed": (NORMED_APART,)})
