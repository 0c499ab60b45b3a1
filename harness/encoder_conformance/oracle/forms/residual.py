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


VARIANTS: dict[str, Step] = {
    "standard": residual,
    "missing": forward_only(lambda a, x, change, normed, first: change),
    "from-normed": forward_only(lambda a, x, change, normed, first: a.add(normed, change)),
    "from-first": forward_only(lambda a, x, change, normed, first: a.add(first, change)),
    "twice": forward_only(lambda a, x, change, normed, first: a.add(a.add(x, x), change)),
    "subtracted": forward_only(lambda a, x, change, normed, first: a.subtract(x, change)),
}

SUM = Form(VARIANTS, {"standard": "{0} + {1}"}, needs={"from-normed": (NORMED_APART,)})
