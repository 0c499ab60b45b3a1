"""Observed gradients of a case, beside those that are right, and beside those of other equations."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from encoder_conformance.diagnosis.in_sigma import rms
from encoder_conformance.oracle.arithmetic import Arithmetic, Rounded
from encoder_conformance.oracle.backward import Gradients, Played, gradients, played
from encoder_conformance.oracle.condition import SAMPLE_ROUNDOFF, Spread
from encoder_conformance.oracle.deviant import Deviant
from encoder_conformance.oracle.equation import Operands, evaluate_tree
from encoder_conformance.oracle.expected import Expected, ExpectedTensor, key
from encoder_conformance.oracle.forms import stage_equations
from encoder_conformance.oracle.forms.needs import has_empty_row
from encoder_conformance.oracle.inputs import given
from encoder_conformance.oracle.play import softmax_choices
from encoder_conformance.protocol.answers import Answers, Sampled, values_at
from encoder_conformance.spec.axes import BSD, Array, P
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import Format
from encoder_conformance.spec.equation import Equation
from encoder_conformance.spec.size import is_large

EXACT = Arithmetic(np.float64)
Equations = Mapping[str, Equation]
_NOISE_RUNS = 24
_NOISIER = 4.0
"""How much more noise the specified step of a framework may make than the same equation does here, at most."""


@dataclass(frozen=True)
class ObservedGradients:
    """The gradients of one case, by input and parameter in the order of the backward pass.

    `observed` are float64 [P] at the P positions that are compared, and `whole` have the shapes of the answer;
    `cotangent` [B, S, D] is what the output is weighted by. `explained`: the wrong layer that is taken for right.
    """

    case: Case
    dtype: Format
    expected: Mapping[str, ExpectedTensor]
    observed: Mapping[str, P]
    whole: Mapping[str, Array]
    cotangent: BSD
    failed: bool
    explained: Deviant | None = None

    @cached_property
    def specified(self) -> Mapping[str, Equation]:
        """Return the equations, by stage, of the layer that is right, or taken for it."""
        if self.explained is None:
            return stage_equations(self.case.layer)
        wrong = self.explained.given
        specified = {**stage_equations(self.explained.layer), **wrong.equations}
        epsilons = {
            norm: Equation(re.sub(r"\bepsilon\b", repr(value), specified[norm].text))
            for norm, value in wrong.epsilons.items()
        }
        return {**specified, **epsilons}

    @cached_property
    def sigma(self) -> dict[str, P]:
        """Return gradient → σ of the right ones, [P]."""
        if self.explained is not None:
            return self.noise_of(self.specified)
        return {name: self.dtype.sigma(self.expected[name].condition) for name in self.observed}

    def errors(self, found: Mapping[str, P], sigma: Mapping[str, P] | None = None) -> dict[str, P]:
        """Return gradient → (observed − found) / σ, [P]; σ is that of right gradients if none is given."""
        sigma = sigma or self.sigma
        with np.errstate(over="ignore"):  # of a σ that is next to nothing
            return {name: (value - found[name]) / sigma[name] for name, value in self.observed.items()}

    @cached_property
    def right(self) -> dict[str, P]:
        """Return gradient → what is right, [P]."""
        if self.explained is not None:
            return self.given_by(self.specified)
        return {name: self.expected[name].golden for name in self.observed}

    def played(self, equations: Equations, a: Arithmetic = EXACT) -> Played:
        """Return the forward pass of these equations, in this arithmetic."""
        return played(equations, a, self._operands)

    def given_by(self, equations: Equations) -> dict[str, P]:
        """Return gradient → [P], as these equations give it. Raises ValueError where there is no rule for one."""
        return self.at_positions(gradients(self.played(equations), EXACT, self.cotangent))

    def number(self, text: str) -> float:
        """Return the value of an expression of numbers and sizes."""
        return float(evaluate_tree(Equation(text).tree, EXACT, self._operands))

    def at_positions(self, found: Gradients) -> dict[str, P]:
        """Return gradient → its values at the compared positions, [P]; 0 of what no equation leads back to."""
        return {
            name: found[name].reshape(-1)[self.expected[name].positions] if name in found else np.zeros(value.shape)
            for name, value in self.observed.items()
        }

    def noise_of(self, equations: Equations) -> dict[str, P]:
        """Return gradient → σ, [P], of these equations: what they make beyond the specified ones, in proportion."""
        wrong, specified = self._conditions(equations), self._right_conditions
        found = {}
        for name, tensor in self.expected.items():
            if name in self.observed:
                plain, measured = rms(specified[name]), rms(tensor.condition)
                times = float(np.clip(measured / plain, 1.0, _NOISIER)) if plain else 1.0
                same = np.array_equal(wrong[name], specified[name])
                found[name] = self.dtype.sigma(tensor.condition if same else times * wrong[name])
        return found

    @cached_property
    def _right_conditions(self) -> dict[str, P]:
        """Return the conditions of the right layer, also where another is taken for it."""
        right = replace(self, explained=None)
        return right._conditions(right.specified)

    def _conditions(self, equations: Equations) -> dict[str, P]:
        spread = Spread(self._whole(equations, EXACT))
        for run in range(_NOISE_RUNS):
            spread.add(self._whole(equations, Rounded(SAMPLE_ROUNDOFF, run)))
        return self.at_positions(spread.conditions())

    def _whole(self, equations: Equations, a: Arithmetic) -> Gradients:
        found = gradients(self.played(equations, a), a, self.cotangent)
        return {name: found[name] for name in self.observed if name in found}

    @cached_property
    def _operands(self) -> Operands:
        inputs = given(self.case) if self.explained is None else self.explained.given
        layer = self.case.layer if self.explained is None else self.explained.layer
        values = {**inputs.parameters, "x": inputs.x, **inputs.beside_x(layer)}
        return Operands(layer, values, softmax_choices(layer))


def observe_gradients(
    case: Case, expected: Expected, dtype: Format, answers: Answers, *, failed: bool
) -> ObservedGradients | None:
    """Return the gradients in the answers to a check; None for what equations say nothing of: stacks and embeddings,
    large layers, a query with no key, answers that cannot be compared or are not finite."""
    layer = case.layer
    if is_large(layer) or layer.is_stack or layer.embedding or case.situation.items or has_empty_row(case):
        return None
    observed, tensors, whole = {}, {}, {}
    for name, answer in answers.items():
        tensor = expected.tensors.get(key("gradients", name))
        if tensor is None or not tensor.positions.size:
            continue
        if isinstance(answer, Sampled) or answer.shape != tensor.shape or answer.dtype != dtype.numpy:
            return None
        observed[name] = values_at(answer, tensor.positions).astype(np.float64)
        tensors[name], whole[name] = tensor, answer
        if not np.isfinite(observed[name]).all():
            return None
    if not observed:
        return None
    ordered = {name: observed[name] for name in _in_order_of_the_backward_pass(case, observed)}
    return ObservedGradients(case, dtype, tensors, ordered, whole, case.cotangent(expected.kinked_rows), failed)


def _in_order_of_the_backward_pass(case: Case, names: Mapping[str, Array]) -> list[str]:
    """Sort what the backward pass reaches first, first: gradients by what the last equations name; x last."""
    equations = [*stage_equations(case.layer).values()]
    last = {name: at for at, equation in enumerate(equations) for name in equation.names}
    return sorted(names, key=lambda name: (name in ("x", "memory"), -last.get(name, -1)))
