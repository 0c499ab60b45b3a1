"""Recognises a norm by its values: LayerNorm or RMSNorm, its epsilon, its gain and its shift."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.forms.norm import BY_DEVIATION
from encoder_conformance.readers.onnx_file.tracing.expressions import NormForm, UnsupportedPattern, WeightSource
from encoder_conformance.spec.axes import Array, Elementwise

CLOSE = 1e-4
NEAR = 0.2
"""A function this close to a norm on ordinary rows, and no closer, is taken for an inexact one; a finding says so."""
FAR = 2.0**23
"""A mean of rows of which, in float64, the square is rounded by a hundredth, and the mean itself by a billionth."""
OF_A_CLAMP = 1e-24
"""The epsilon of a norm that divides by the larger of a row's length and a small number, as `F.normalize` does: it
changes no row that is longer, and gives zeros for zeros, as the clamp does."""
_LARGEST = 1 << 16
"""Of an epsilon, which is none but by mistake."""
_NONE = "none is added"
"""The evidence of a norm without an epsilon: one that is exactly that, as other functions are near it."""
Function = Callable[[Array, Mapping[str, Array]], Array]
Rearrange = Callable[[Array], Array]


@dataclass(frozen=True)
class NormOperand:
    """A constant operand: `source` is flat, `shape` is the file's, whose rows may all be `source`; `name` is "" for an
    attribute."""

    name: str
    source: WeightSource
    evidence: str
    shape: tuple[int, ...] = ()


def standardised(x: Array, kind: str, epsilon: float, form: str = "") -> Array:
    """x [N, F] normed over its features in float64, without a gain or a shift, as the specification does it or in
    another form of BY_DEVIATION."""
    features = x.shape[-1]
    with np.errstate(divide="ignore", invalid="ignore"):  # of one feature no variance is unbiased
        normed: Array = BY_DEVIATION[kind][form](Arithmetic(), x, np.ones(features), np.zeros(features), epsilon)[0]
    return normed


def norm_of(of: Function, at: Rearrange, shape: tuple[int, ...], constants: list[NormOperand]) -> NormForm:
    """Raises UnsupportedPattern. `of` is the function, of the operation's values and of replacements for its constants;
    `at` rearranges values of the operation as the function does.

    Every vector is tried as the gain and as the shift, with numbers drawn for it: the file's own two may be equal. If
    that is no norm, vectors of ones stay: a norm without a gain, which another follows, is written with such a one.
    What follows may be a scale: an exporter of scaled products puts its root on queries and on keys.
    """
    vectors = [c for c in constants if c.name and c.source.value.size == shape[1] and (shape[1] > 1 or c.shape)]
    others = [c for c in vectors if not (c.source.value == 1).all()]
    best = _norm_with(of, at, shape, constants, vectors)
    if best.error > CLOSE and others and len(others) < len(vectors):
        best = min(best, _norm_with(of, at, shape, constants, others), key=lambda form: form.error)
    if best.error <= NEAR:
        fast = not best.error and best.kind == "layer_norm" and _cancels(of, shape)
        return replace(best, form="fast-variance") if fast else best
    raise UnsupportedPattern("a function of each row of features that is neither LayerNorm nor RMSNorm")


def _norm_with(
    of: Function, at: Rearrange, shape: tuple[int, ...], constants: list[NormOperand], vectors: list[NormOperand]
) -> NormForm:
    """The best form, with `vectors` as what may be gain and shift."""
    N, _ = shape
    draw = np.random.default_rng(1)
    ordinary = draw.normal(size=shape) + 0.5
    rows = ordinary * np.resize([1.0, 1e-2, 1e-3, 1e-5], N)[:, None]
    drawn = {c.name: draw.uniform(0.5, 1.5, c.source.value.size) for c in vectors}
    put = {c.name: np.resize(drawn[c.name], c.shape) for c in vectors}
    observed, observed_ordinary = of(rows, put), of(ordinary, put)
    epsilons = _epsilons([c for c in constants if c.source.value.size == 1 and c.name not in drawn])
    if epsilons and np.isfinite(of(np.zeros(shape), put)).all():
        epsilons.append((OF_A_CLAMP, min(epsilons)[1]))
    best = NormForm("", 0, None, None, "", np.inf)
    for gain, shift, kind, used in product((*vectors, None), (*vectors, None), ("layer_norm", "rms_norm"), epsilons):
        epsilon, evidence = used
        g, s = drawn[gain.name] if gain else 1.0, drawn[shift.name] if shift else 0.0
        found = NormForm(kind, epsilon, gain.source if gain else None, shift.source if shift else None, evidence)
        expected = at(standardised(rows, kind, epsilon) * g + s)
        if distance(observed, expected) <= CLOSE:
            return found
        forms = ((each, at(standardised(rows, kind, epsilon, each) * g + s)) for each in BY_DEVIATION[kind] if each)
        form = next((each for each, other in forms if distance(observed, other) <= CLOSE), "")
        factor = float(np.vdot(observed, expected) / np.vdot(expected, expected))
        if factor > 0 and not form and distance(observed, factor * expected) <= CLOSE:
            return replace(found, factor=factor)  # by D − 1 it is another norm, and none that is scaled
        if not form and (epsilon == OF_A_CLAMP or epsilon >= 1 or evidence == _NONE):
            continue
        error = distance(observed_ordinary, at(standardised(ordinary, kind, epsilon) * g + s))
        if (not form, error) < (not best.form, best.error):
            best = replace(found, error=error, form=form)
    return best


def _cancels(of: Function, shape: tuple[int, ...]) -> bool:
    """Whether rows that are far from zero come out otherwise than the same rows near it, with the file's own gain."""
    near = np.random.default_rng(2).normal(size=shape)
    far = near + FAR
    return distance(of(far, {}), of(far - FAR, {})) > CLOSE


def _epsilons(scalars: list[NormOperand]) -> list[tuple[float, str]]:
    """What may be the epsilon, and the evidence; last a size, as of a norm whose first argument is the epsilon."""
    values = [(float(each.source.value.reshape(())), each.evidence) for each in scalars]
    usual = [each for each in values if 0 <= each[0] < 1] or [(0.0, _NONE)]
    return [*usual, *(each for each in values if 1 <= each[0] <= _LARGEST)]


def distance(observed: Elementwise, expected: Elementwise) -> float:
    """The largest error, relative to the largest expected value."""
    error = float(np.abs(observed - expected).max() / (np.abs(expected).max() + 1e-300))
    return error if np.isfinite(error) else np.inf
