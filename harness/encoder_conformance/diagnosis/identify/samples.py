"""Samples: what a stage was computed from and what came out, case by case, which an equation is fitted to."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.diagnosis.in_sigma import UNCOMPARABLE, in_sigma, rms, robust_cost
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.equation import Operands, evaluate_tree
from encoder_conformance.oracle.forms import stage_equations
from encoder_conformance.oracle.inputs import given
from encoder_conformance.oracle.play import softmax_choices
from encoder_conformance.spec.axes import Array, P
from encoder_conformance.spec.equation import Equation
from encoder_conformance.spec.parameters import prefix
from encoder_conformance.spec.stages import layer_stage

EXACT = Arithmetic(np.float64)
Asked = tuple[ast.expr, float | None]
"""A tree, and the value of the name `c` in it."""


@dataclass(frozen=True)
class StepSample:
    """A stage of one case, of the layer of a stack that its name begins `within` (`layer_0.`; "" of no stack).

    `observed` and `sigma`, float64 [P], are at the P flat `positions` that are compared in `shape`; σ is that of the
    specified step, and `relative` times a value is a guess of what it would be for another step.
    """

    stage: str
    within: str
    operands: Operands
    specified: Equation
    shape: tuple[int, ...]
    positions: P
    observed: P
    sigma: P
    relative: float

    @property
    def has_mask(self) -> bool:
        return "mask" in self.operands.values

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return how many items and positions the case has."""
        return self.shape[:2]

    @property
    def built_with(self) -> object:
        """Return what is the same in cases that have the same parameters."""
        return None

    def errors(self, tree: ast.expr, constant: float | None = None) -> Array | None:
        """Return (computed − observed) / σ, [P], of an equation's tree; None where it gives another shape or cannot be
        computed. σ is a guess: the larger of the specified step's and one in proportion to the computed value.

        `constant` is the value of the name `c` in the tree.
        """
        computed = self.computed(tree, constant)
        return None if computed is None else self._errors(computed)

    def _errors(self, computed: Array) -> Array:
        """Return the errors of what was computed, [..., P]."""
        with np.errstate(all="ignore"):
            sigma = np.maximum(self.sigma, self.relative * np.abs(computed))
        return np.clip(in_sigma(computed, self.observed, sigma), -UNCOMPARABLE, UNCOMPARABLE)

    def costs(self, tree: ast.expr, constants: Sequence[float]) -> list[float]:
        """Return `cost` with each value of the name `c`."""
        at_once = self._at_once(tree, constants)
        if at_once is None and self.computed(tree, constants[0]) is None:
            return [np.inf] * len(constants)
        if at_once is None:
            return self.costs_of([(tree, constant) for constant in constants])
        return [float(each) for each in robust_cost(self._errors(at_once))]

    def costs_of(self, asked: Sequence[Asked]) -> list[float]:
        """Return `cost` of each tree, with its value of `c`; ∞ where it gives another shape or cannot be computed."""
        every = self.errors_of(asked)
        known = [errors for errors in every if errors is not None]
        costs = iter(robust_cost(np.stack(known)) if known else ())
        return [np.inf if errors is None else float(next(costs)) for errors in every]

    def errors_of(self, asked: Sequence[Asked]) -> list[Array | None]:
        """Return `errors` of each tree, with its value of `c`: of all together, which takes less time than one by
        one."""
        every = self.computed_of(asked)
        known = [computed for computed in every if computed is not None]
        errors = iter(self._errors(np.stack(known)) if known else ())
        return [None if computed is None else next(errors) for computed in every]

    def computed_of(self, asked: Sequence[Asked]) -> list[Array | None]:
        """Return `computed` of each tree, with its value of `c`."""
        return [self.computed(tree, constant) for tree, constant in asked]

    def _at_once(self, tree: ast.expr, constants: Sequence[float]) -> Array | None:
        """Return what the tree gives at `positions` with each value of `c`, [len(constants), P]: the values are one
        more axis before all others. None where the tree does not leave that axis alone, as two of the values show."""
        values = np.reshape(np.asarray(constants, np.float64), (-1, *([1] * len(self.shape))))
        try:
            with np.errstate(all="ignore"):
                whole = evaluate_tree(tree, EXACT, self._knowing.having_number("c", values))
        except (ValueError, IndexError, TypeError, KeyError):
            return None
        if whole.shape != (len(constants), *self.shape):
            return None
        found = whole.reshape(len(constants), -1)[:, self.positions].astype(np.float64)
        for at in (0, -1):
            alone = self.computed(tree, constants[at])
            if alone is None or not np.allclose(found[at], alone, rtol=1e-9, atol=0.0, equal_nan=True):
                return None
        return found

    def _with(self, constant: float | None) -> Operands:
        """Return the operands, `c` among them if it is given."""
        return self._knowing if constant is None else self._knowing.having_number("c", np.asarray(constant))

    @cached_property
    def _knowing(self) -> Operands:
        """The operands, with the value of each part of the specified equation: an edit leaves most of them."""
        with np.errstate(all="ignore"):
            return self.operands.knowing(self.specified.tree, EXACT)

    @property
    def operands_of_its_shape(self) -> list[str]:
        """Return the names of the operands that have the shape of the sample."""
        return [name for name, value in self.operands.values.items() if value.shape == self.shape]

    @property
    def stage_shape(self) -> tuple[int, ...]:
        """Return the shape of what the equation gives."""
        return self.shape

    def computed(self, tree: ast.expr, constant: float | None = None) -> Array | None:
        """Return what the tree gives at `positions`, [P], exact; None where it gives another shape or cannot be."""
        value = self.whole(tree, constant)
        return None if value is None else value.reshape(-1)[self.positions]

    def whole(self, tree: ast.expr, constant: float | None = None) -> Array | None:
        """Return what the tree gives, in the stage's shape; None where it gives another shape or cannot be."""
        operands = self._with(constant)
        try:
            with np.errstate(all="ignore"):
                value = evaluate_tree(tree, EXACT, operands)
        except (ValueError, IndexError, TypeError, KeyError):
            return None
        return value.astype(np.float64) if value.shape == self.shape else None

    def at_all_positions(self) -> Self:
        """Return the sample with all that may be compared."""
        return self

    def observed_whole(self) -> Array:
        """Return what was observed, in the stage's shape; NaN where nothing is compared."""
        whole = np.full(self.shape, np.nan)
        whole.reshape(-1)[self.positions] = self.observed
        return whole

    def rows(self, source: str) -> tuple[Array, Array, Array]:
        """Return inputs [rows, K], outputs [rows, M] and σ [rows, M] of a linear map, where rows are compared whole."""
        given, out = self.operands[source], self.shape[-1]
        compared = np.bincount(self.positions // out, minlength=int(np.prod(self.shape[:-1])))
        whole = np.flatnonzero(compared == out)
        kept = np.isin(self.positions // out, whole)
        sigma = np.maximum(self.sigma, self.relative * np.abs(self.observed))
        return (
            given.reshape(-1, given.shape[-1])[whole],
            self.observed[kept].reshape(-1, out),
            sigma[kept].reshape(-1, out),
        )


@dataclass(frozen=True)
class Sample(StepSample):
    """A stage as the layer of a case has it."""

    evidence: Evidence

    @property
    def has_mask(self) -> bool:
        return self.evidence.case.mask() is not None

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.evidence.case.x_shape[:2]

    @property
    def built_with(self) -> object:
        case = self.evidence.case
        return case.layer.layer, self.within, case.situation.parameter_exponents

    def at_all_positions(self) -> Self:
        """Return the sample with all that may be compared; the goldens keep some of it, which is enough to judge by."""
        name, case = self.within + self.stage, self.evidence.case
        compared = np.flatnonzero(case.compared("stages")[name])
        seen, sigma = self.evidence.seen[name], self.evidence.sigma(name)
        return replace(self, positions=compared, observed=seen.reshape(-1)[compared], sigma=sigma.reshape(-1)[compared])


def samples_of(stage: str, evidence: Sequence[Evidence]) -> list[Sample]:
    """Sample this stage of the layers, and layers of stacks, that show it and all stages before it whole, where some of
    it is compared."""
    found = []
    for piece in evidence:
        specified = stage_equations(piece.case.layer.one_of_it)
        if stage not in specified:
            continue
        before = list(specified)[: list(specified).index(stage)]
        for within, x in _layers(piece):
            name, seen = within + stage, piece.seen
            places = piece.places.get(name)
            if name not in seen or places is None or not all(within + each in seen for each in before):
                continue
            shape, positions = places
            operands = operands_of(piece, {each: seen[within + each] for each in before}, within, x)
            observed = seen[name].reshape(-1)[positions]
            sigma = piece.sigma(name).reshape(-1)[positions]
            relative = piece.relative_noise(name) * piece.dtype.roundoff
            at = stage, within, operands, specified[stage], shape
            found.append(Sample(*at, positions, observed, sigma, relative, piece))
    return found


def _layers(piece: Evidence) -> Iterator[tuple[str, Array | None]]:
    """Yield what the names of a layer's stages begin with, and its input as it was seen: of each layer of a stack, as
    far as its input was; or of the one layer there is, whose input is the case's."""
    layer = piece.case.layer
    if not layer.is_stack:
        yield "", None
        return
    before = piece.seen.get("embedded") if layer.embedding is not None else piece.case.x()
    for number in range(layer.stack.layers):
        if before is not None and before.shape == piece.case.x_shape:
            yield f"{layer_stage(number)}.", before
        before = piece.seen.get(layer_stage(number))


def operands_of(piece: Evidence, seen: Mapping[str, Array] = {}, within: str = "", x: Array | None = None) -> Operands:
    """Return the inputs and parameters of a case, and the stages that were seen; of the layer of a stack whose stages
    begin with `within`, and whose input is `x`."""
    inputs = given(piece.case)
    number = int(within.removeprefix("layer_").removesuffix(".") or 0)
    start = prefix(number) if within else ""
    parameters = {
        name.removeprefix(start): value for name, value in inputs.parameters.items() if name.startswith(start)
    }
    named = {**parameters, "x": inputs.x if x is None else x, **inputs.beside_x(piece.case.layer)}
    return Operands(piece.case.layer, {**named, **seen}, softmax_choices(piece.case.layer, number))


def assigned(distances: Array) -> tuple[list[int], float, float]:
    """Return the order in which rows [n, n] match columns with the least sum; its mean, and that of the given order."""
    from scipy.optimize import linear_sum_assignment  # with every command, if it were imported above

    rows, columns = linear_sum_assignment(distances)
    return columns.tolist(), float(distances[rows, columns].mean()), float(np.diag(distances).mean())


def cost(samples: Sequence[StepSample], tree: ast.expr, constant: float | None = None) -> float:
    """Return the mean of log(1 + error²) over elements and cases, which no one element decides; ∞ if it has none."""
    total = 0.0
    for sample in samples:
        errors = sample.errors(tree, constant)
        if errors is None:
            return np.inf
        total += float(robust_cost(errors))
    return total / len(samples)


def largest_rms(samples: Sequence[StepSample], tree: ast.expr) -> float:
    """Return the largest rms error of any case, in σ of the specified step."""
    found = [sample.errors(tree) for sample in samples]
    return max((np.inf if errors is None else rms(errors) for errors in found), default=np.inf)
