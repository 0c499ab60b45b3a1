"""Token embedding (E-15, E-35), types of tokens (E-36) and sinusoidal positions (E-16), and their wrong forms."""

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.forms.form import Form
from encoder_conformance.oracle.forms.forward_only import forms_of, forward_only, left_on, pass_on
from encoder_conformance.oracle.forms.needs import MANY_LAYERS, PLACED
from encoder_conformance.oracle.tape import ByOperands, Pullback, Step
from encoder_conformance.spec.axes import BS, BSA, BSD, SD, UD, VD


def tokens(a: Arithmetic, weight: VD, ids: BS) -> tuple[BSD, Pullback]:
    """Row ids[b, s] of the weight, as it is (E-15)."""

    def pullback(g: BSD) -> ByOperands:
        by_weight = np.zeros_like(weight)
        for row in np.unique(ids):
            by_weight[row] = a.sum(g[ids == row], 0, keepdims=False)
        return (by_weight,)

    return weight[ids], pullback


def scaled(a: Arithmetic, weight: VD, ids: BS) -> tuple[BSD, Pullback]:
    """The row times √D, as Vaswani et al. (2017, §3.4) have it (E-35)."""
    rows, by_rows = tokens(a, weight, ids)
    root = a.sqrt(a.exact(float(weight.shape[1])))
    return a.multiply(rows, root), lambda g: by_rows(a.multiply(g, root))


def typed(a: Arithmetic, x: BSD, weight: UD, types: BS) -> tuple[BSD, Pullback]:
    """The row of its type added to each token (E-36)."""
    rows, by_rows = tokens(a, weight, types)
    return a.add(x, rows), lambda g: (g, *by_rows(g))


def sinusoidal(a: Arithmetic, x: BSD, positions: BSA | None = None) -> tuple[BSD, Pullback]:
    """x + sin(s / 10000^(2i/D)) at features 2i, and + the cosine at features 2i + 1 (E-16).

    s: [B or 1, S, 1], where the positions of x lie; else from 0.
    """
    return a.add(x, table(a, x, positions)), lambda g: (g,)


def table(a: Arithmetic, x: BSD, positions: BSA | None = None, first: int = 0) -> SD:
    """What is added at the positions of x, `first` further than they lie, sine and cosine by turns; [B, S, D] where
    they are given by item."""
    waves = np.stack(_waves(a, x, positions, first), axis=-1)
    return waves.reshape(*waves.shape[:-2], -1)[..., : x.shape[2]]


def _waves(a: Arithmetic, x: BSD, positions: BSA | None, first: int = 0) -> tuple[SD, SD]:
    """The sines and the cosines, [S, ⌈D / 2⌉] each, or [B or 1, S, ⌈D / 2⌉].

    10000^(−2i/D) is written as exp(−2i · (ln 10000 / D)), as implementations do that have no power: it rounds most,
    since what is rounded below goes on to 9.2 times as much above.
    """
    _, sequence, size = x.shape
    step = a.divide(a.log(a.exact(1e4)), a.exact(float(size)))
    even = a.exact(2.0 * np.arange((size + 1) // 2))
    position = a.exact((np.arange(sequence, dtype=np.float64)[:, None] if positions is None else positions) + first)
    angle = a.multiply(position, a.exp(-a.multiply(even, step)))
    return a.sin(angle), a.cos(angle)


def halves(a: Arithmetic, x: BSD, positions: BSA | None) -> BSD:
    """Every sine in the first half of the features, every cosine in the second, as in tensor2tensor."""
    return a.add(x, np.concatenate(_waves(a, x, positions), axis=-1)[..., : x.shape[2]])


def dropout(a: Arithmetic, x: BSD, *, dropout: float) -> BSD:
    """Dropout left on, after the positions."""
    return left_on(a, x, "embedded", x.shape, dropout)


def _value_of(step: Step) -> Step:
    """A right step where it is the wrong one."""
    return forward_only(lambda *operands, **choices: step(*operands, **choices)[0])


_TOKENS: dict[str, Step] = {
    "standard": tokens,
    "by-root": scaled,
    "scaled": _value_of(scaled),
    "unscaled": _value_of(tokens),
    **forms_of("by-root", {"unscaled": _value_of(tokens)}),
}
_TYPES: dict[str, Step] = {
    "standard": typed,
    "missing": forward_only(lambda a, x, weight, types: x),
    "of-type-0": forward_only(lambda a, x, weight, types: typed(a, x, weight, np.zeros_like(types))[0]),
}
_POSITIONS: dict[str, Step] = {
    "standard": sinusoidal,
    "missing": forward_only(lambda a, x, positions: x),
    "from-one": forward_only(lambda a, x, positions: a.add(x, table(a, x, positions, first=1))),
    "halves": forward_only(halves),
    "ignored": forward_only(lambda a, x, positions: a.add(x, table(a, x))),  # from 0, wherever they lie
}
_AFTER: dict[str, Step] = {"standard": lambda a, x, *, dropout: pass_on(a, x), "dropout": forward_only(dropout)}
"""The step between the embedded tokens and the first layer outside of training (A-3)."""
_BETWEEN: dict[str, Step] = {"standard": lambda a, x, positions: pass_on(a, x), "positions-again": sinusoidal}
"""The step before each layer of a stack but the first."""

TOKENS = Form(
    _TOKENS, {"standard": "", "by-root": ""}, ("weight",), is_choice={"scaled": "by-root", "unscaled": "standard"}
)
TOKEN_TYPES = Form(_TYPES, {"standard": ""}, ("weight",))
POSITIONS = Form(_POSITIONS, {"standard": ""}, needs={"ignored": (PLACED,)})
AFTER_EMBEDDING = Form(_AFTER, {"standard": ""}, makes_no_tensor=True)
BETWEEN_LAYERS = Form(_BETWEEN, {"standard": ""}, makes_no_tensor=True, needs={"positions-again": (MANY_LAYERS,)})
