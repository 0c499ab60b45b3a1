"""Mutates the specified equation of a stage at random."""

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from encoder_conformance.diagnosis.identify.identify import deviation_of
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.deviant import deviant
from encoder_conformance.oracle.encoder import forward
from encoder_conformance.oracle.forms import stage_equations
from encoder_conformance.oracle.inputs import LayerInputs, given
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.equation import Equation, dotted
from encoder_conformance.spec.load import load

MASKS = ("~mask", "roll(mask, 1, -1)", "transpose(mask)", "flip(mask, -1)", "permute(mask, 0, 0)", "mask | ~mask")
LAYERS = ("pre-gelu", "post-relu", "post-gelu", "post-rms-gelu-tanh", "pre-rms-silu", "pre-gelu-shared-heads")
"""Both placements, every activation and kind of norm, and projections with biases, without, and shared by heads."""
_OTHER_SIZE = "mask-per-head"
"""A case of another length: what raises an error in it is seen by anybody."""
FUNCTIONS = ("tanh", "sin", "abs", "sqrt", "exp", "sigmoid", "erf", "cos")
FACTORS = (2.0, 0.5, -1.0, 1.1, 0.9, 3.0, 0.1, 1.5)


@dataclass(frozen=True)
class Mutant:
    """`equations`: stage → (the specified equation, the mutated one); two stages of a pair."""

    layer: str
    equations: dict[str, tuple[str, str]]

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


def mutated(tree: ast.expr, shapes: dict[str, tuple[int, ...]], chance: random.Random) -> str | None:
    """One mutation of one node; None where nothing fits the node that was drawn."""
    every = nodes(tree)
    at = chance.randrange(len(every))
    options = list(_mutations(every[at], shapes, chance))
    if not options:
        return None
    by = ast.parse(chance.choice(options), mode="eval").body
    return ast.unparse(_OneNode(at, by).visit(ast.parse(ast.unparse(tree), mode="eval").body))


def _mutations(node: ast.expr, shapes: dict[str, tuple[int, ...]], chance: random.Random) -> Iterator[str]:
    text = ast.unparse(node)
    name = dotted(node)
    if isinstance(node, ast.Constant):
        yield repr(float(text) * chance.choice(FACTORS) if float(text) else 1.0)
        return
    if name == "mask":
        yield from MASKS
        return
    if name in shapes:
        shape = shapes[name]
        yield from (other for other, its in shapes.items() if its == shape and other != name)
        axis = chance.randrange(-len(shape), 0)
        yield from (f"flip({name}, {axis})", f"roll({name}, {chance.choice((1, -1, 2))}, {axis})")
        if len(shape) == 2 and shape[0] == shape[1]:
            yield f"transpose({name})"
    if isinstance(node, ast.BinOp):
        left, right = f"({ast.unparse(node.left)})", f"({ast.unparse(node.right)})"
        yield from (left, right)
        if not isinstance(node.op, ast.MatMult):
            yield from (f"{left} {operator} {right}" for operator in "+-*/")
            yield f"{right} - {left}"
            yield f"{left} + {chance.choice(FACTORS)} * {right}"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        arguments = [ast.unparse(argument) for argument in node.args]
        if node.func.id in ("mean", "var"):
            yield f"{node.func.id}({arguments[0]}, {chance.choice((0, 1))})"
        if node.func.id == "var":
            yield f"var({arguments[0]}, -1, 1)"
        if node.func.id in FUNCTIONS:
            yield from (f"{chance.choice(FUNCTIONS)}({arguments[0]})", arguments[0])
        if node.func.id == "softmax":
            yield from (f"softmax({arguments[0]}, {arguments[1]}, {axis})" for axis in (-2, 1))
            yield f"softmax({arguments[0]}, mask | ~mask) * mask"
        if node.func.id in ("split_heads", "merge_heads"):
            yield f"{node.func.id}({arguments[0]}, {chance.choice(('interleaved', 'by-reshape'))!r})"
    yield f"{chance.choice(FACTORS)} * ({text})"
    yield f"({text}) + {chance.choice(FACTORS)}"
    yield f"{chance.choice(FUNCTIONS)}({text})"


@cache
def _specified(layer: str) -> tuple[Case, LayerInputs, dict[str, Array]]:
    """A case of the layer, its inputs, and every stage as it should be."""
    case = load().cases[f"{layer}/padding-right"]
    what = given(case)
    return case, what, forward(case.layer, what, Arithmetic(np.float64))


def mutants(count: int, seed: int) -> Iterator[Mutant]:
    chance = random.Random(seed)
    made, seen = 0, set[tuple[str, str, str]]()
    while made < count:
        layer = LAYERS[made % len(LAYERS)]
        case, what, right = _specified(layer)
        equations = stage_equations(case.layer)
        stage = chance.choice([name for name in equations if name != "output"])
        before = list(equations)[: list(equations).index(stage)]
        values = {"x": what.x, "mask": what.mask, **what.parameters, **{name: right[name] for name in before}}
        shapes = {name: value.shape for name, value in values.items() if value is not None and name != "mask"}
        text = mutated(equations[stage].tree, shapes, chance)
        if text is None or (layer, stage, text) in seen:
            continue
        seen.add((layer, stage, text))
        mutant = Mutant(layer, {stage: (equations[stage].form, text)})
        try:
            Equation(text)
            shape = forward(case.layer, replace(what, equations={stage: Equation(text)}), Arithmetic(np.float64))
            mutant.output(load().cases[f"{layer}/{_OTHER_SIZE}"])
        except (ValueError, IndexError, TypeError):
            continue
        if all(shape[name].shape == right[name].shape for name in right):
            made += 1
            yield mutant


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
        yield Mutant(mutant.layer, {**other.equations, **mutant.equations})
        if made == count:
            return
