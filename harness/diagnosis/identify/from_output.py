"""The equation of one wrong step, where an implementation shows its output alone.

No stage was seen, so each edit of each stage's equation is played to the output: the stages before it are the
specified ones, and those after it follow by their specified equations.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.diagnosis.identify.constants import fitted, has_constant, having, written
from encoder_conformance.diagnosis.identify.edits import activations, edits, normalisations
from encoder_conformance.diagnosis.identify.effort import Effort
from encoder_conformance.diagnosis.identify.samples import EXACT, Sample, cost, operands_of
from encoder_conformance.diagnosis.identify.search import Candidate
from encoder_conformance.judge.observation import Array
from encoder_conformance.oracle.equation import Operands, evaluate_tree
from encoder_conformance.spec.equation import Equation
from encoder_conformance.spec.stage_equations import stage_equations

_NEAR = 30.0
"""The rms error, in σ of the specified output, up to which a wrong step's own noise may be all that is left."""
_SCOUTS = 2
_STARTS = (1.0, 0.5, 2.0, -1.0, 0.1, 0.0, 10.0)
"""Where a number is looked for: a play to the output takes twenty evaluations."""
_FIT = 20
"""Plays that fitting a number takes, about."""


@dataclass(frozen=True)
class OutputSample(Sample):
    """An output of one case, as computed with another equation of `stage`; `later` are the stages after it."""

    stage: str
    later: Mapping[str, Equation]

    def computed(self, tree: ast.expr, constant: float | None = None) -> Array | None:
        operands = self.operands if constant is None else self.operands.having("c", np.asarray(constant))
        try:
            with np.errstate(all="ignore"):
                stage = evaluate_tree(tree, EXACT, operands)
                if stage.shape != self.operands[self.stage].shape:
                    return None
                values = {**self.operands.values, self.stage: stage}
                for name, equation in self.later.items():
                    held = Operands(operands.layer, values, operands.softmax_choices)
                    values[name] = evaluate_tree(equation.tree, EXACT, held)
        except (ValueError, IndexError, TypeError, KeyError):
            return None
        return np.asarray(values["output"], dtype=np.float64).reshape(-1)[self.positions]


def output_samples(stage: str, evidence: Sequence[Evidence]) -> list[OutputSample]:
    """The cases that show an output alone, of layers that have this stage."""
    found = []
    for piece in evidence:
        equations = stage_equations(piece.case.layer)
        if stage not in equations or piece.stages != ("output",) or not _is_plain(piece, evidence):
            continue
        operands = operands_of(piece)
        values = dict(operands.values)
        for name, equation in equations.items():
            held = Operands(operands.layer, values, operands.softmax_choices)
            values[name] = evaluate_tree(equation.tree, EXACT, held)
        order = list(equations)
        later = {name: equations[name] for name in order[order.index(stage) + 1 :]}
        shape, positions = piece.places["output"]
        sigma = piece.output_sigma()
        relative = piece.relative_noise("output") * piece.dtype.roundoff
        whole = Operands(operands.layer, values, operands.softmax_choices)
        found.append(
            OutputSample(
                piece, whole, equations[stage], shape, positions, piece.observed, sigma, relative, stage, later
            )
        )
    return found


def _is_plain(piece: Evidence, evidence: Sequence[Evidence]) -> bool:
    """Whether nothing hangs on what padded positions hold, or no case is free of padding."""
    return bool(piece.case.valid().all()) or not any(other.case.valid().all() for other in evidence)


def nearest_by_output(stage: str, samples: Sequence[OutputSample], effort: Effort, *, numbers: bool) -> list[Candidate]:
    """Equations one edit away that give every output, but for their own noise. `numbers`: those with a fitted number,
    which take longer, and no others."""
    scouts = sorted(samples, key=lambda sample: sample.observed.size)[:_SCOUTS]
    right = cost(scouts, scouts[0].specified.tree)
    found, tried = list[Candidate](), set[str]()
    for tree in _trees(stage, scouts[0]):
        text = ast.unparse(tree)
        if text in tried or has_constant(tree) is not numbers:
            continue
        tried.add(text)
        if not effort.spend(_FIT if numbers else 1):
            break
        if not numbers:
            found.append(Candidate(tree, 1, cost(scouts[:1], tree)))
        elif number := fitted(scouts[:1], tree, _STARTS):
            form = having(tree, next(written(number)))
            found.append(Candidate(form, 1, cost(scouts[:1], form)))
    hopeful = sorted((one for one in found if one.cost < right / 2), key=lambda one: (one.cost, one.length))[:4]
    return [one for one in hopeful if all(_near(sample, one.tree) for sample in samples)]


def _near(sample: OutputSample, tree: ast.expr) -> bool:
    errors = sample.errors(tree)
    return errors is not None and float(np.sqrt(np.mean(errors**2))) < _NEAR


def _trees(stage: str, sample: OutputSample) -> Iterator[ast.expr]:
    before = [name for name in sample.operands.values if name not in (stage, *sample.later)]
    shapes = {name: sample.operands.values[name].shape for name in before}
    shape = sample.operands[stage].shape
    yield from edits(sample.specified.tree, shapes, shape)
    if stage == "ffn_activation":
        yield from activations("ffn_hidden")
    if stage in ("norm1", "norm2"):
        sources = [name for name in sample.specified.names if "." not in name and shapes.get(name) == shape]
        for source in sources:
            yield from normalisations(source, f"{stage}.gain", f"{stage}.shift")
