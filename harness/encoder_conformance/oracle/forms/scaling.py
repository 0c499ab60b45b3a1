"""Products of elements: a gain by feature (E-31), a gate (E-19), a factor (E-29); and their wrong forms."""

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.forms.form import Form
from encoder_conformance.oracle.forms.forward_only import forward_only
from encoder_conformance.oracle.tape import ByOperands, Pullback
from encoder_conformance.spec.axes import BSD, BSF, D, Elementwise


def by_feature(a: Arithmetic, x: BSD, gain: D) -> tuple[BSD, Pullback]:
    """x · gain (E-31; Touvron et al., 2021, arXiv 2103.17239, LayerScale)."""

    def pullback(g: BSD) -> ByOperands:
        rows = tuple(range(x.ndim - 1))
        return a.multiply(g, gain), a.sum(a.multiply(g, x), rows, keepdims=False)

    return a.multiply(x, gain), pullback


def left_out(a: Arithmetic, x: BSD, gain: D) -> BSD:
    """The gain declared and never used."""
    return x


def gain_plus_one(a: Arithmetic, x: BSD, gain: D) -> BSD:
    """The stored gain read as gain − 1."""
    return a.multiply(x, a.add(gain, a.exact(1.0)))


def product(a: Arithmetic, gate: BSF, hidden: BSF) -> tuple[BSF, Pullback]:
    """gate · hidden (E-19; Shazeer, 2020, arXiv 2002.05202)."""
    return a.multiply(gate, hidden), lambda g: (a.multiply(g, hidden), a.multiply(g, gate))


def added(a: Arithmetic, gate: BSF, hidden: BSF) -> BSF:
    """gate + hidden."""
    return a.add(gate, hidden)


def gate_alone(a: Arithmetic, gate: BSF, hidden: BSF) -> BSF:
    """The hidden features forgotten."""
    return gate


def times(a: Arithmetic, x: Elementwise, *, factor: float) -> tuple[Elementwise, Pullback]:
    """x · factor (E-29)."""
    by = a.constant(factor)
    return a.multiply(x, by), lambda g: (a.multiply(g, by),)


def not_weighed(a: Arithmetic, x: Elementwise, *, factor: float) -> Elementwise:
    """The factor left out."""
    return x


BY_FEATURE = Form(
    {"standard": by_feature, "missing": forward_only(left_out), "gain-plus-one": forward_only(gain_plus_one)},
    {"standard": "{0} * {gain}"},
    ("gain",),
    "what it reads",
)
PRODUCT = Form(
    {"standard": product, "added": forward_only(added), "gate-alone": forward_only(gate_alone)},
    {"standard": "{0} * {1}"},
    keeps="what it reads",
)
TIMES = Form({"standard": times, "missing": forward_only(not_weighed)}, {"standard": "{0} * {factor!r}"})
