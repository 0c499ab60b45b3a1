"""Finds the equation of one wrong step, where an implementation shows its output alone.

No stage was seen, so each edit of each stage's equation is played to the output: the stages before it are the
specified ones, and those after it follow by their specified equations.
"""

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.diagnosis.identify.edits import in_a_part, in_parts
from encoder_conformance.diagnosis.identify.equation_search import (
    Effort,
    EquationCandidate,
    has_numbers,
    is_near,
    neighbours,
    scored,
    sizes_shared,
)
from encoder_conformance.diagnosis.identify.fitted_numbers import Limits, has_constant
from encoder_conformance.diagnosis.identify.quantities import IN_LINE
from encoder_conformance.diagnosis.identify.samples import EXACT, Asked, Sample, cost, operands_of
from encoder_conformance.oracle.equation import Operands, evaluate_tree
from encoder_conformance.oracle.forms import stage_equations
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.equation import Equation
from encoder_conformance.spec.size import is_large

Patches = Mapping[str, Mapping[str, str]]
"""Stage → the specified equation → the one that was found."""
NONE: Patches = {}
_NEAR = 30.0
"""The rms error, in σ of the specified output, up to which a wrong step's own noise may be all that is left."""
_HOPEFUL = 12
"""Equations that are tried on all cases: those that leave least of two."""
_PROBED = (0.0, 0.6, 0.9, 1.1, 1.4, 2.0)
"""Numbers of which one leaves less than 1 does, whatever a part of an operand was multiplied with."""
_LESS = 0.3
"""How much less: the cost of an error that is a seventh smaller."""
_OF_PARTS = 6
"""Parts of operands that a number is fitted to: those that leave least with one of these."""
_STARTS = (1.0, 0.5, 2.0, -1.0, 0.1, 0.0, 10.0)
"""Where a number is looked for: a play to the output takes twenty evaluations."""

_TOGETHER = 32
"""Values of a stage that are played to the output as the items of one batch: a play of a small layer takes as long with
32 times as many items as three plays do."""
_FACTORS = ("0", "-1", "2")
"""Of a part of an axis of each operand: fitting each would take longer than all else. That of the result is fitted."""


@dataclass(frozen=True)
class OutputSample(Sample):
    """The output of one case, as computed with another equation of a stage, which gives `stage_size`. `operands` are
    those before the stage, `every` has all stages as specified, and `later` are the equations that depend on it."""

    changed: str
    stage_size: tuple[int, ...]
    every: Operands
    later: Sequence[tuple[str, Equation]]

    @property
    def stage_shape(self) -> tuple[int, ...]:
        return self.stage_size

    def computed(self, tree: ast.expr, constant: float | None = None) -> Array | None:
        [computed] = self.computed_of([(tree, constant)])
        return computed

    def computed_of(self, asked: Sequence[Asked]) -> list[Array | None]:
        values = [self._stage(tree, constant) for tree, constant in asked]
        known, outputs = [value for value in values if value is not None], list[Array | None]()
        for start in range(0, len(known), _TOGETHER):
            outputs += self._outputs(known[start : start + _TOGETHER])
        of_known = iter(outputs)
        return [None if value is None else next(of_known) for value in values]

    def _stage(self, tree: ast.expr, constant: float | None) -> Array | None:
        """Return what the tree gives for the stage; None where it gives another shape or cannot be computed."""
        try:
            with np.errstate(all="ignore"):
                value = evaluate_tree(tree, EXACT, self._with(constant))
        except (ValueError, IndexError, TypeError, KeyError):
            return None
        return value if value.shape == self.stage_size else None

    def _outputs(self, stages: Sequence[Array]) -> list[Array | None]:
        """Return the output with each of these for the stage, at `positions`: [P] each."""
        together = self._together(stages) if len(stages) > 1 and self._items_are_apart else None
        return [self.output_with(stage) for stage in stages] if together is None else [*together]

    def output_with(self, stage: Array) -> Array | None:
        """Return the output with this for the stage, at `positions`, [P]; None where it cannot be computed."""
        try:
            with np.errstate(all="ignore"):
                output = _with_stages(self.every.having(self.changed, stage), self.later)["output"]
        except (ValueError, IndexError, TypeError, KeyError):
            return None
        return np.asarray(output, dtype=np.float64).reshape(-1)[self.positions]

    def _together(self, stages: Sequence[Array]) -> Array | None:
        """Return the outputs with each of these for the stage, [len(stages), P], computed as items of one batch; None
        where that cannot be."""
        count, of_one = len(stages), self.stage_size[0]
        values = {name: value[: count * of_one] for name, value in self._repeated.items()}
        every = Operands(self.every.layer, {**self.every.values, **values}, self.every.softmax_choices)
        try:
            with np.errstate(all="ignore"):
                output = _with_stages(every.having(self.changed, np.concatenate(stages)), self.later)["output"]
        except (ValueError, IndexError, TypeError, KeyError):
            return None
        if output.shape[0] != count * of_one:
            return None
        return np.asarray(output, dtype=np.float64).reshape(count, -1)[:, self.positions]

    @cached_property
    def _repeated(self) -> dict[str, Array]:
        """The operands of the later stages that have items, with as many times as many of them; not of one item alone,
        which is broadcast."""
        names = {name for _, equation in self.later for name in equation.names if "." not in name}
        of_items = {name: value for name in names if (value := self.every.values.get(name)) is not None}
        many = {name: value for name, value in of_items.items() if value.shape[0] == self.stage_size[0] > 1}
        return {name: np.concatenate([value] * _TOGETHER) for name, value in many.items()}

    @cached_property
    def _items_are_apart(self) -> bool:
        """Whether the output of an item depends on the stage of that item alone, as values of the stage show that are
        played together and alone: so it is of what is specified, and need not be of an equation that was found."""
        specified, right = stage_equations(self.evidence.case.layer), self.every[self.changed]
        at = np.arange(right.size).reshape(right.shape)
        stages = [right + np.cos(number + at) for number in range(_TOGETHER)]
        together = self._together(stages)
        as_specified = all(equation.form == specified[name].form for name, equation in self.later)
        alone = [self.output_with(stage) for stage in stages[: 2 if as_specified else _TOGETHER]]
        if together is None or any(each is None for each in alone):
            return False
        due = np.stack([each for each in alone if each is not None])
        least = 1e-12 * float(np.max(np.abs(due), initial=0.0, where=np.isfinite(due)))
        return np.allclose(together[: len(due)], due, rtol=1e-9, atol=least, equal_nan=True)

    def _at_once(self, tree: ast.expr, constants: Sequence[float]) -> None:
        """Return None: the equations after the stage have no axis for the values of `c` but that of the items."""

    @property
    def variety(self) -> tuple[int, int]:
        """How many axes of the stage have more than one element, and how many operands there are."""
        return sum(size > 1 for size in self.stage_size), len(self.operands.values)

    @cached_property
    def neighbours(self) -> dict[bool, list[ast.expr]]:
        """Equations one edit away: those with a number to be fitted, and those without."""
        every: dict[bool, list[ast.expr]] = {False: [], True: []}
        result = in_a_part(ast.unparse(self.specified.tree), self.stage_size, self.operands)
        for tree in (*neighbours(self.changed, self.specified.tree, self, _FACTORS), *result):
            every[has_constant(tree)].append(tree)
        return every


def _with_stages(operands: Operands, equations: Iterable[tuple[str, Equation]]) -> Operands:
    """Return the operands with these stages computed, one from the other."""
    values = dict(operands.values)
    played = Operands(operands.layer, values, operands.softmax_choices)
    for stage, equation in equations:
        values[stage] = evaluate_tree(equation.tree, EXACT, played)
    return played


def _dependent(stage: str, after: Sequence[tuple[str, Equation]]) -> list[tuple[str, Equation]]:
    """Return the equations after a stage whose stages depend on it."""
    changed, found = {stage}, list[tuple[str, Equation]]()
    for name, equation in after:
        if equation.names & changed:
            changed.add(name)
            found.append((name, equation))
    return found


def output_samples(evidence: Sequence[Evidence], known: Patches = NONE) -> dict[str, list[OutputSample]]:
    """Return stage → the cases of layers that have it; small ones, since a large one takes hours to play so often.

    `known`: equations that were found before, and are played in place of the specified ones.
    """
    found: dict[str, list[OutputSample]] = {}
    for piece in evidence:
        if is_large(piece.case.layer) or not _is_plain(piece, evidence):
            continue
        equations = [
            (stage, Equation(known.get(stage, {}).get(equation.form, equation.text)))
            for stage, equation in stage_equations(piece.case.layer).items()
        ]
        shape, positions = piece.places["output"]
        seen = shape, positions, piece.observed, piece.output_sigma()
        relative = piece.relative_noise("output") * piece.dtype.roundoff
        operands = operands_of(piece)
        every = _with_stages(operands, equations)
        for number, (stage, equation) in enumerate(equations):
            changing = stage, every[stage].shape, every, _dependent(stage, equations[number + 1 :])
            sample = OutputSample("output", "", operands, equation, *seen, relative, piece, *changing)
            found.setdefault(stage, []).append(sample)
            operands = operands.having(stage, every[stage])
    return found


def _is_plain(piece: Evidence, evidence: Sequence[Evidence]) -> bool:
    """Whether nothing hangs on what padded positions hold, or no case is free of padding."""
    return bool(piece.case.valid().all()) or not any(other.case.valid().all() for other in evidence)


def _screened(samples: Sequence[OutputSample]) -> list[OutputSample]:
    """Choose the smallest case that is out of line, and the smallest one of other sizes."""
    out = [sample for sample in samples if cost([sample], sample.specified.tree) > IN_LINE] or samples
    first, *others = sorted(out, key=lambda sample: sample.observed.size)
    return [first, *sorted(others, key=lambda each: sizes_shared(each, first))[:1]]


def nearest_by_output(
    stage: str,
    samples: Sequence[OutputSample],
    effort: Effort,
    *,
    numbers: bool,
    beside: Sequence[OutputSample] = (),
) -> list[EquationCandidate]:
    """Return equations one edit away that give every output, but for their own noise. `numbers`: those with a fitted
    number, which take longer, and no others. Those that give the outputs `beside` too come first."""
    if not has_numbers(samples):
        return []
    screened, fullest = _screened(samples), max(samples, key=lambda sample: sample.variety)
    before = cost(screened[:1], screened[0].specified.tree)
    limits = Limits(_STARTS, before, before / 2)
    edited = fullest.neighbours[numbers]
    if numbers:
        edited = [*edited, *_in_parts(fullest, screened[0], before, effort)]
    found = scored(edited, screened, set(), effort, limits)
    hopeful = sorted((one for one in found if one.cost < limits.enough), key=lambda one: (one.cost, one.length))
    near = [one for one in hopeful[:_HOPEFUL] if is_near(one.tree, samples, _NEAR)]
    return sorted(near, key=lambda one: not gives(one.tree, samples[0].specified.form, beside))


def gives(tree: ast.expr, specified: str, samples: Sequence[OutputSample]) -> bool:
    """Whether an equation in the place of the `specified` one gives the outputs of these cases, but for its noise."""
    of_it = [sample for sample in samples if sample.specified.form == specified]
    return not of_it or is_near(tree, of_it, _NEAR)


def _in_parts(fullest: OutputSample, first: OutputSample, before: float, effort: Effort) -> list[ast.expr]:
    """Return equations with a part of an operand multiplied by `c`, where a number leaves less than `before`."""
    trees = list(in_parts(fullest.specified.tree, fullest.operands))
    if not effort.spend(len(trees) * len(_PROBED)):
        return []
    costs = np.reshape(first.costs_of([(tree, value) for tree in trees for value in _PROBED]), (len(trees), -1))
    least = costs.min(axis=1, initial=np.inf)
    return [trees[at] for at in np.argsort(least, kind="stable")[:_OF_PARTS] if least[at] < before - _LESS]
