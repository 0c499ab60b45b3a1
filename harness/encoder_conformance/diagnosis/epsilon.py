"""Measures the epsilon that a norm has, by least squares from what the norm gave.

A catalogue has some epsilons, and a layer may have any. The oracle plays the layer with an epsilon, and Gauss and
Newton's method finds the one that leaves least, in σ, of what was observed. Whether that accounts for everything is
judged as of any hypothesis.
"""

from collections.abc import Sequence

import numpy as np

from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.diagnosis.in_sigma import robust_cost
from encoder_conformance.diagnosis.match import Match
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.deviant import changes
from encoder_conformance.spec.axes import Bools
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.deviation import LayerPatch, Measured, NormPatch, Patch
from encoder_conformance.spec.stages import step_of
from encoder_conformance.spec.steps import STEPS_OF_LAYERS, form_of

_NORMS = [step.makes for step in STEPS_OF_LAYERS.values() if step.form == "norm"]
NORMS: dict[str, tuple[str, ...]] = {"norm": (), **{norm: (norm,) for norm in _NORMS}}
"""What is called so → the norms that have the epsilon; () is all of them."""
_START = 10.0 ** np.arange(-14.0, 1.0, 0.5)
_PIECES = 3
"""Cases that it is measured in: those where an epsilon shows most."""
_STEPS = 12
_LEAST, _LARGEST = 1e-30, 1e3
"""Beyond these it is no epsilon."""
_SMALL = 1e-4
"""The relative step that a derivative is taken over."""
_SURE = 3.0
"""Uncertainties within which a measured epsilon is the decimal that someone wrote."""
_DIGITS = 3
_MEASURABLE = 1 / 3
"""The relative uncertainty up to which there is anything to tell: an epsilon of all but 0 shows in no row."""


def measured_epsilons(first: Sequence[Evidence], evidence: Sequence[Evidence], null: Match) -> list[Measured]:
    """Measure an epsilon for both norms, and for each alone, where a norm, or what shows none, is out of line.

    It is measured in the `first` of the evidence, on which a play does not take long; `null` is the null hypothesis.
    """
    if not any(_may_be_of_a_norm(fit.stages, ~fit.in_line) for fit in null.fits):
        return []
    found = [_measured(name, first, evidence) for name in NORMS]
    return [each for each in found if each is not None and not _in_catalogue(each)]


def _in_catalogue(measured: Measured) -> bool:
    known = [patch.norm.epsilon for d in catalogue().values() if (patch := d.patch.layer) and patch.norm]
    near = [each for each in known if each and abs(each - measured.value) <= _SURE * measured.uncertainty]
    return bool(near) and not measured.epsilons


def _may_be_of_a_norm(stages: tuple[str, ...], out: Bools) -> bool:
    norms = [at for at, name in enumerate(stages) if form_of(step_of(name)) in ("norm", "stack_norm")]
    return bool(out[norms].any() if norms else out.any())


def _measured(name: str, first: Sequence[Evidence], evidence: Sequence[Evidence]) -> Measured | None:
    effects = {piece: _effect(name, piece) for piece in first}
    pieces = [piece for piece in sorted(first, key=lambda piece: -effects[piece]) if effects[piece] > 0][:_PIECES]
    if not pieces:
        return None
    epsilon = min(_START, key=lambda start: _left(name, float(start), pieces[:1]))
    fitted = _fitted(name, float(epsilon), pieces)
    if fitted is None or fitted[1] > _MEASURABLE * fitted[0]:
        return None
    value = _as_written(*fitted)
    return compared(name, value, fitted[1], [piece.case for piece in evidence])


def compared(name: str, value: float, uncertainty: float, cases: Sequence[Case]) -> Measured | None:
    """Return the deviation, compared with what the layers of these cases specify; None where each has the same."""
    deviation = measured_epsilon(name, value, uncertainty)
    changed = [case.layer.norm.epsilon for case in cases if changes(case, deviation)]
    return deviation.model_copy(update={"sentence": _sentence(name, deviation, changed)}) if changed else None


def _effect(name: str, piece: Evidence) -> float:
    """Return how much of an epsilon would be seen: the sum of squares of the change, in σ, that 1e-4 makes."""
    return float(np.sum(piece.distance(piece.predicted([measured_epsilon(name, 1e-4)]), piece.right) ** 2))


def _left(name: str, epsilon: float, pieces: Sequence[Evidence]) -> float:
    """Return the `robust_cost` of this epsilon in all pieces together."""
    hypothesis = [measured_epsilon(name, epsilon)]
    errors = np.concatenate([piece.distance(piece.observed, piece.predicted(hypothesis)) for piece in pieces])
    return float(robust_cost(errors))


def _fitted(name: str, epsilon: float, pieces: Sequence[Evidence]) -> tuple[float, float] | None:
    """Return the epsilon that leaves the least square error, and its uncertainty; None if there is none.

    The noise of a row's scale is the same in all its features: a row counts as one observation.
    """
    for _ in range(_STEPS):
        along, length = 0.0, 0.0
        here, above, below = ([measured_epsilon(name, epsilon * (1 + step))] for step in (0.0, _SMALL, -_SMALL))
        for piece in pieces:
            error = piece.distance(piece.observed, piece.predicted(here))
            slope = piece.distance(piece.predicted(above), piece.predicted(below)) / (2 * _SMALL)
            along, length = along + float(slope @ error), length + float(slope @ slope)
        if not length or not np.isfinite(along):
            return None
        step = float(np.clip(along / length, -2.0, 2.0))
        epsilon *= float(np.exp(step))
        if not _LEAST < epsilon < _LARGEST:
            return None
        unsure = np.sqrt(max(piece.case.layer.d_model for piece in pieces) / length)
        if abs(step) < 0.01 * unsure:
            break
    return epsilon, float(epsilon * unsure)


def _as_written(epsilon: float, uncertainty: float) -> float:
    """Return the shortest decimal that it may be, or float32's; as it was measured if there is none."""
    for digits in range(_DIGITS):
        decimal = float(f"{epsilon:.{digits}e}")
        for value in (float(np.float32(decimal)), decimal):  # L-2's reading, unless that is too far
            if abs(value - epsilon) <= _SURE * uncertainty:
                return value
    return epsilon


def measured_epsilon(name: str, epsilon: float, uncertainty: float = 0.0) -> Measured:
    """Return the deviation that has this epsilon, in the norms that `name` stands for in `NORMS`."""
    norms = NORMS[name]
    everywhere = LayerPatch(norm=NormPatch(epsilon=epsilon))
    return Measured.model_construct(  # a patch that changes nothing is none of the language
        deviation=f"{name}-epsilon",
        sentence="An epsilon that was measured.",
        kind="numerics",
        patch=Patch.model_construct(layer=None if norms else everywhere, steps={}, parameters={}, mask=None),
        unseen=None,
        links=(),
        epsilons=dict.fromkeys(norms, epsilon),
        value=epsilon,
        uncertainty=uncertainty,
    )


def _sentence(name: str, measured: Measured, right: Sequence[float]) -> str:
    """`right` are the epsilons of the layers that have another one."""
    which = "Norm epsilon" if name == "norm" else f"The epsilon of {name}"
    decimal = _decimal(measured.value)
    others = sorted({_decimal(value) for value in right} - {decimal}, key=float)
    parts = []
    if others:
        parts.append(f"{which} is {_shown(measured)} where the layer says {_listed(others)}.")
    if any(_decimal(value) == decimal for value in right):
        float32 = f"float32's {decimal}, {np.float32(decimal):.15g} (clause L-2)"
        parts.append(f"{which} is the double {decimal}, where the layer's is {float32}.")
    return " ".join(parts)


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _shown(measured: Measured) -> str:
    """Write a decimal as it is; float32's where the two differ; else as many digits as are certain, and how far."""
    decimal = float(_decimal(measured.value))
    if _is_float32(measured.value):
        near = abs(decimal - measured.value) <= _SURE * measured.uncertainty
        return f"{decimal:.2e}" if near else f"float32's {decimal:.2e}"
    if measured.value == float(f"{measured.value:.{_DIGITS - 1}e}"):
        return f"{decimal:.2e}"
    relative = measured.uncertainty / measured.value
    digits = int(np.clip(np.ceil(-np.log10(relative)), 2, 12)) if relative else 12
    return f"{measured.value:.{digits}e} ± {measured.uncertainty:.0e}"


def _is_float32(value: float) -> bool:
    return value == float(np.float32(value))


def _decimal(value: float) -> str:
    """Write it as someone would have: float32's 1e-5 is 1e-05."""
    return str(np.float32(value)) if _is_float32(value) else f"{value:.4g}"
