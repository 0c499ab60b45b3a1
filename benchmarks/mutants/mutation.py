"""Mutates the specified equation of a stage at random, by a mistake of each kind in turn."""

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from benchmarks.mutants.mistakes import KINDS, Part
from encoder_conformance.diagnosis.identify.identify import deviation_of
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.deviant import deviant
from encoder_conformance.oracle.encoder import forward
from encoder_conformance.oracle.equation import Operands, evaluate_tree
from encoder_conformance.oracle.forms import stage_equations
from encoder_conformance.oracle.inputs import LayerInputs, given
from encoder_conformance.oracle.play import softmax_choices
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.equation import Equation, dotted
from encoder_conformance.spec.load import load

LAYERS = ("pre-gelu", "post-relu", "post-gelu", "post-rms-gelu-tanh", "pre-rms-silu", "pre-gelu-shared-heads")
"""Both placements, every activation and kind of norm, and projections with biases, without, and shared by heads."""
_OTHER_SIZES = ("mask-per-head", "longer-than-wide")
"""Cases of other lengths: what raises an error in them is seen by anybody."""
_TWO = "two"


@dataclass(frozen=True)
class Mutant:
    """`equations`: stage → (the specified equation, the mutated one); two stages of a pair. `mistake` is its kind."""

    layer: str
    equations: dict[str, tuple[str, str]]
    mistake: str = ""

    @property
    def deviation(self) -> Deviation:
        return deviation_of({stage: {right: wrong} for stage, (right, wrong) in self.equations.items()})

    def answers(self, case: Case) -> dict[str, Array]:
        """Every stage as the oracle computes it, in float32."""
        wrong = deviant(case, [self.deviation])
        parameters = {name: value.astype(np.float32) for name, value in wrong.given.parameters.items()}
        inputs = replace(wrong.given, x=wrong.given.x.astype(np.float32), parameters=parameters)
        with np.errstate(all="ignore"):
            return {
                name: np.asarray(stage).astype(np.float32)
                for name, stage in forward(wrong.layer, inputs, Arithmetic(np.float32)).items()
            }

    def output(self, case: Case) -> Array:
        """The same without noise."""
        with np.errstate(all="ignore"):
            return deviant(case, [self.deviation]).stages(Arithmetic(np.float64))["output"]

    def has_step(self, stage: str) -> bool:
        return stage in self.equations

    def __str__(self) -> str:
        return f"{self.layer} " + "; ".join(f"{stage} = {wrong}" for stage, (_, wrong) in self.equations.items())


class _OneNode(ast.NodeTransformer):
    """Replaces the node with this number, in the order of a walk."""

    def __init__(self, at: int, by: ast.expr) -> None:
        self._at, self._by, self._count = at, by, -1

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr):
            self._count += 1
            if self._count == self._at:
                return self._by
            if dotted(node):
                return node
        return self.generic_visit(node)


def nodes(tree: ast.expr) -> list[ast.expr]:
    found: list[ast.expr] = []

    class _Walk(ast.NodeVisitor):
        def visit(self, node: ast.AST) -> None:
            if isinstance(node, ast.expr):
                found.append(node)
                if dotted(node):
                    return
            self.generic_visit(node)

    _Walk().visit(tree)
    return found


def mutated(tree: ast.expr, kind: str, operands: Operands, chance: random.Random) -> str | None:
    """One mistake of this kind in one node; None where there is none for the node that was drawn."""
    every = nodes(tree)
    at = chance.randrange(len(every))
    try:
        shape = np.shape(evaluate_tree(every[at], Arithmetic(np.float64), operands))
    except (ValueError, IndexError, TypeError):  # the name of an arrangement
        return None
    shapes = {name: value.shape for name, value in operands.values.items() if name != "mask"}
    options = list(KINDS[kind](Part(every[at], shape, shapes, tree), chance))
    if not options:
        return None
    by = ast.parse(chance.choice(options), mode="eval").body
    return ast.unparse(_OneNode(at, by).visit(ast.parse(ast.unparse(tree), mode="eval").body))


@cache
def _specified(layer: str) -> tuple[Case, LayerInputs, dict[str, Array]]:
    """A case of the layer, its inputs, and every stage as it should be."""
    case = load().cases[f"{layer}/padding-right"]
    what = given(case)
    return case, what, forward(case.layer, what, Arithmetic(np.float64))


def mutants(count: int, seed: int) -> Iterator[Mutant]:
    """Mutants of every layer and kind of mistake in turn; the last kind is two mistakes in one step."""
    chance = random.Random(seed)
    made, seen = 0, set[tuple[str, str, str]]()
    kinds = [*KINDS, _TWO]
    while made < count:
        layer, kind = LAYERS[made % len(LAYERS)], kinds[made % len(kinds)]
        case, what, right = _specified(layer)
        equations = stage_equations(case.layer)
        stage = chance.choice([name for name in equations if name != "output"])
        text = _mistaken(equations[stage].tree, kind, _operands_before(layer, stage), chance)
        if text in (None, equations[stage].form) or (layer, stage, text) in seen:
            continue
        seen.add((layer, stage, text))
        mutant = Mutant(layer, {stage: (equations[stage].form, text)}, kind)
        try:
            Equation(text)
            with np.errstate(all="ignore"):
                shape = forward(case.layer, replace(what, equations={stage: Equation(text)}), Arithmetic(np.float64))
            for other in _OTHER_SIZES:
                mutant.output(load().cases[f"{layer}/{other}"])
        except (ValueError, IndexError, TypeError):
            continue
        if all(shape[name].shape == right[name].shape for name in right):
            made += 1
            yield mutant


def _mistaken(tree: ast.expr, kind: str, operands: Operands, chance: random.Random) -> str | None:
    if kind != _TWO:
        return mutated(tree, kind, operands, chance)
    first = mutated(tree, "operation", operands, chance)
    another = chance.choice([*KINDS])
    return first and mutated(ast.parse(first, mode="eval").body, another, operands, chance)


def _operands_before(layer: str, stage: str) -> Operands:
    """What the equation of a stage may read, in one case of the layer."""
    case, what, right = _specified(layer)
    names = list(stage_equations(case.layer))
    before = {name: right[name] for name in names[: names.index(stage)]}
    inputs = {**what.parameters, "x": what.x, **what.beside_x}
    return Operands(case.layer, {**inputs, **before}, softmax_choices(case.layer))


def pairs(count: int, seed: int) -> Iterator[Mutant]:
    """Two mutants of one layer in different stages, together."""
    waiting: dict[str, Mutant] = {}
    made = 0
    for mutant in mutants(4 * count, seed):
        other = waiting.get(mutant.layer)
        if other is None or {*other.equations} & {*mutant.equations}:
            waiting[mutant.layer] = mutant
            continue
        del waiting[mutant.layer]
        made += 1
        kinds = " and ".join(sorted((other.mistake, mutant.mistake)))
        yield Mutant(mutant.layer, {**other.equations, **mutant.equations}, kinds)
        if made == count:
            return
