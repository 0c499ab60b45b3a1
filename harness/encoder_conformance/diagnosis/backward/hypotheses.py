"""Hypotheses on a backward pass whose forward pass is right: equations of equal values, and other gradients.

Through each part of each equation what goes back may be left out (`detach`) or multiplied (`scale_gradient`); a
softmax may be taken as if its denominator were constant; an activation may have the derivative of another one.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import filterfalse

import numpy as np

from encoder_conformance.diagnosis.backward.observed import EXACT, Equations, ObservedGradients
from encoder_conformance.diagnosis.identify.edits import in_forms, parsed, places
from encoder_conformance.diagnosis.identify.fitted_numbers import SURE, Number, has_constant, written
from encoder_conformance.oracle.backward import through_each_part
from encoder_conformance.oracle.functions_of_one import FUNCTIONS_OF_ONE
from encoder_conformance.spec.axes import P
from encoder_conformance.spec.equation import Equation
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.stages import reads_of
from encoder_conformance.spec.steps import form_of

_SIZES = (
    "1 / batch_size",
    "1 / sequence_length",
    "1 / (batch_size * sequence_length)",
    "batch_size",
    "sequence_length",
    "batch_size * sequence_length",
    "1 / sqrt(head_dim)",
    "sqrt(head_dim)",
    "1 / head_dim",
    "1 / num_heads",
    "num_heads",
    "1 / d_model",
)
"""Factors that differ from one case or layer to the next: a mean that was to be a sum, a scale applied twice."""
_ROUGHLY = 1e-3
"""A part of a factor: rounding in the step itself may move it by more than the noise of a right one."""
_EXPONENTIALS = "where(mask, exp({0} - detach(largest({0}, -1))), 0)"


Factors = tuple[str, list[float]]
"""A factor as it is written, and its value in each case."""


@dataclass(frozen=True)
class Hypothesis:
    """Another equation of a stage, and each case's gradients with it, in the order of the cases: gradient → [P], P its
    compared positions. `part` is what is written otherwise."""

    stage: str
    text: str
    part: str
    gradients: tuple[Mapping[str, P], ...]


def hypotheses(
    cases: Sequence[ObservedGradients], now: Equations, right: Sequence[Mapping[str, P]], first: str
) -> Iterator[Hypothesis]:
    """Yield one wrong equation more, where `now` has those that were found and gives the gradients in `right`.

    The factor of a part is fitted to the gradient `first`, the first in the backward pass that is out of line.
    """
    yield from _by_parts(cases, now, right, first)
    for stage, text in _other_derivatives(now, cases[0].case.layer):
        equations = {**now, stage: Equation(text)}
        yield Hypothesis(stage, text, text, tuple(case.given_by(equations) for case in cases))


def _by_parts(
    cases: Sequence[ObservedGradients], now: Equations, right: Sequence[Mapping[str, P]], first: str
) -> Iterator[Hypothesis]:
    through = [_through(case, now) for case in cases]
    for stage, node, put in ((stage, *place) for stage, equation in now.items() for place in places(equation.tree)):
        parts = [part for found in through if (part := found.get((stage, id(node)))) is not None]
        factors = _factors(cases, right, parts, first) if len(parts) == len(cases) else None
        if factors is None:
            continue
        by_case = tuple(
            {name: whole[name] + (factor - 1.0) * part[name] for name in whole}
            for whole, part, factor in zip(right, parts, factors[1], strict=True)
        )
        text = ast.unparse(node)
        scaled = f"detach({text})" if factors[0] == "0" else f"scale_gradient({text}, {factors[0]})"
        yield Hypothesis(stage, ast.unparse(put(parsed(scaled))), scaled, by_case)


def _through(case: ObservedGradients, equations: Equations) -> dict[tuple[str, int], dict[str, P]]:
    """Return (stage, part) → what of the gradients goes back through it, by gradient, [P]."""
    layer = case.played(equations)
    return {
        (stage, id(term.node)): case.at_positions(found)
        for stage, term, found in through_each_part(layer, EXACT, case.cotangent)
    }


def _factors(
    cases: Sequence[ObservedGradients],
    right: Sequence[Mapping[str, P]],
    parts: Sequence[Mapping[str, P]],
    first: str,
) -> Factors | None:
    """Return the factor as someone may have written it, and its value in each case; None where nothing goes through."""
    fitted = []
    for case, whole, part in zip(cases, right, parts, strict=True):
        if first not in part:
            return None
        direction = part[first] / case.sigma[first]
        length = float(direction @ direction)
        if length < 1.0:
            continue
        error = (case.observed[first] - whole[first]) / case.sigma[first]
        fitted.append((case, Number(1.0 + float(error @ direction) / length, 1.0 / np.sqrt(length))))
    if not fitted:
        return None
    numbers = [number for _, number in fitted]
    plain, measured = _constant(numbers, cases)
    return plain or _of_sizes(fitted, cases) or measured


def _constant(numbers: Sequence[Number], cases: Sequence[ObservedGradients]) -> tuple[Factors | None, Factors | None]:
    """Return a number that people write, and the same as it was measured; None where cases differ, or it is none."""
    weights = np.array([1.0 / number.uncertainty**2 for number in numbers])
    value = float(weights @ [number.value for number in numbers] / weights.sum())
    mean = Number(value, float(np.sqrt(1.0 / weights.sum())))
    if not all(_is(value, each) for each in numbers):
        return None, None
    *plain, measured = ((text, [cases[0].number(text)] * len(cases)) for text in written(mean))
    return next(iter(plain), None), measured


def _of_sizes(fitted: Sequence[tuple[ObservedGradients, Number]], cases: Sequence[ObservedGradients]) -> Factors | None:
    """Return the factor of sizes that is right in every case; None if there is none."""
    for text in _SIZES:
        if all(_is(case.number(text), number) for case, number in fitted):
            return text, [case.number(text) for case in cases]
    return None


def _is(value: float, number: Number) -> bool:
    return abs(value - number.value) <= SURE * number.uncertainty + _ROUGHLY * abs(number.value)


def _other_derivatives(equations: Equations, layer: Layer) -> Iterator[tuple[str, str]]:
    """Yield (stage, equation) with the same values, and the derivative of something else."""
    for stage in filter(lambda stage: form_of(stage) == "activation", equations):
        for other in map(ast.unparse, filterfalse(has_constant, in_forms(FUNCTIONS_OF_ONE, *reads_of(stage, layer)))):
            yield stage, f"{other} + detach({equations[stage].text} - ({other}))"
    for stage in filter(lambda stage: form_of(stage) == "softmax", equations):
        match equations[stage].tree:
            case ast.Call(func=ast.Name(id="softmax"), args=[scores, ast.Name(id="mask")]):
                above = _EXPONENTIALS.format(ast.unparse(scores))
                yield stage, f"{above} / detach(sum({above}, -1))"
