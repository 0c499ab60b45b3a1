"""What a stage was computed from and what came out, case by case: the data that an equation is fitted to."""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from encoder_conformance.diagnosis.evidence import UNCOMPARABLE, Evidence
from encoder_conformance.judge.observation import Array
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.encoder import given, softmax_choices
from encoder_conformance.oracle.equation import Operands, evaluate_tree, named_inputs
from encoder_conformance.spec.equation import Equation
from encoder_conformance.spec.stage_equations import stage_equations

EXACT = Arithmetic(np.float64)


@dataclass(frozen=True)
class Sample:
    """A stage of one case. `observed` and `sigma`, float64, are at the flat `positions` that are compared in `shape`;
    σ is that of the specified step, and `relative` times a value is a guess of what it would be for another step."""

    evidence: Evidence
    operands: Operands
    specified: Equation
    shape: tuple[int, ...]
    positions: Array
    observed: Array
    sigma: Array
    relative: float

    def errors(self, tree: ast.expr, constant: float | None = None) -> Array | None:
        """(computed − observed) / σ, [n], of an equation's tree; None where it gives another shape or cannot be. σ is a
        guess: the larger of the specified step's and one in proportion to the computed value.

        `constant` is the value of the name `c` in the tree.
        """
        computed = self.computed(tree, constant)
        if computed is None:
            return None
        both = np.isfinite(computed) & np.isfinite(self.observed)
        same = both | (np.isnan(computed) & np.isnan(self.observed)) | (computed == self.observed)
        with np.errstate(all="ignore"):
            sigma = np.maximum(self.sigma, self.relative * np.abs(computed))
            apart = np.where(both, (computed - self.observed) / sigma, np.where(same, 0.0, UNCOMPARABLE))
        return np.clip(apart, -UNCOMPARABLE, UNCOMPARABLE)

    @property
    def stage_shape(self) -> tuple[int, ...]:
        """The shape of what the equation gives."""
        return self.shape

    def computed(self, tree: ast.expr, constant: float | None = None) -> Array | None:
        """What the tree gives at `positions`, [n], exact; None where it gives another shape or cannot be."""
        operands = self.operands if constant is None else self.operands.having("c", np.asarray(constant))
        try:
            with np.errstate(all="ignore"):
                value = evaluate_tree(tree, EXACT, operands)
        except (ValueError, IndexError, TypeError, KeyError):
            return None
        if value.shape != self.shape:
            return None
        return value.astype(np.float64).reshape(-1)[self.positions]


def samples_of(stage: str, evidence: Sequence[Evidence]) -> list[Sample]:
    """The cases that show this stage and all stages before it whole, and where something of it is compared."""
    found = []
    for piece in evidence:
        specified = stage_equations(piece.case.layer)
        if stage not in specified:
            continue
        before = list(specified)[: list(specified).index(stage)]
        seen, places = piece.seen, piece.places.get(stage)
        if stage not in seen or places is None or not all(name in seen for name in before):
            continue
        shape, positions = places
        if seen[stage].shape != shape:
            continue
        operands = operands_of(piece, {name: seen[name] for name in before})
        observed = seen[stage].reshape(-1)[positions]
        sigma = piece.sigma(stage).reshape(-1)[positions]
        relative = piece.relative_noise(stage) * piece.dtype.roundoff
        found.append(Sample(piece, operands, specified[stage], shape, positions, observed, sigma, relative))
    return found


def operands_of(piece: Evidence, seen: Mapping[str, Array] = {}) -> Operands:
    """The inputs and parameters of a case, and the stages that were seen."""
    what = given(piece.case)
    values = named_inputs(what.parameters, x=what.x, memory=what.memory, mask=what.mask, bias=what.bias)
    return Operands(piece.case.layer, {**values, **seen}, softmax_choices(piece.case.layer))


def cost(samples: Sequence[Sample], tree: ast.expr, constant: float | None = None) -> float:
    """Mean of log(1 + error²) over elements and cases, which no one element decides; ∞ where it cannot be."""
    total = 0.0
    for sample in samples:
        errors = sample.errors(tree, constant)
        if errors is None:
            return np.inf
        total += float(np.mean(np.log1p(errors * errors)))
    return total / len(samples)


def rms(samples: Sequence[Sample], tree: ast.expr) -> float:
    """The largest rms error of any case, in σ of the specified step."""
    found = [sample.errors(tree) for sample in samples]
    return max((np.inf if errors is None else float(np.sqrt(np.mean(errors**2))) for errors in found), default=np.inf)
