"""Bugs that no list has: mutated equations of a layer, and whether a diagnosis finds them again.

    python -m benchmarks.mutants --count 200 --seed 1

Each mutant changes one place of one stage's specified equation at random: another operand of the same shape, another
operator, function, axis, number or order of elements; a term left out, doubled or scaled; the mask otherwise. The
oracle computes it in float32, and a diagnosis is given what the implementation would show. Mutants that change nothing
that is compared are counted as equivalent.

A diagnosis is *right* where the equation that it states gives what the mutant gives, in cases that it was not shown.
It is *false* where it says "explained" and that is not so. The search for equations knows nothing of this file: it has
edits of its own, and fits numbers to the data.
"""

import argparse
import ast
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from encoder_conformance.deviations.catalogue import catalogue
from encoder_conformance.diagnosis.diagnose import diagnose
from encoder_conformance.diagnosis.epsilon import measured_epsilon
from encoder_conformance.diagnosis.identify.identify import deviation_of
from encoder_conformance.golden.store import read_golden, read_golden_manifest
from encoder_conformance.judge.observation import Observation, observation_of
from encoder_conformance.judge.outcome import Outcome
from encoder_conformance.judge.verdict import judge
from encoder_conformance.oracle.arithmetic import Arithmetic, Array
from encoder_conformance.oracle.deviant import deviant
from encoder_conformance.oracle.encoder import forward, given
from encoder_conformance.results import Diagnosis
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import constants
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.equation import Equation, dotted
from encoder_conformance.spec.load import load
from encoder_conformance.spec.stage_equations import stage_equations
from encoder_conformance.spec.stages import stages

FLOAT32 = FORMATS["float32"]
MASKS = ("~mask", "roll(mask, 1, -1)", "transpose(mask)", "flip(mask, -1)", "permute(mask, 0, 0)", "mask | ~mask")
LAYERS = ("pre-gelu", "post-relu")
SHOWN = ("padding-right", "mask-per-head", "no-mask", "causal", "low-variance", "padding-left", "mask-drawn", "alibi")
HELD_OUT = ("mask-per-item-and-head", "padding-holes")
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


def mutants(count: int, seed: int) -> Iterator[Mutant]:
    chance, cases = random.Random(seed), load().cases
    made, seen = 0, set[tuple[str, str, str]]()
    while made < count:
        layer = LAYERS[made % len(LAYERS)]
        case = cases[f"{layer}/{SHOWN[0]}"]
        equations = stage_equations(case.layer)
        stage = chance.choice([name for name in equations if name != "output"])
        what = given(case)
        right = forward(case.layer, what, Arithmetic(np.float64))
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


def answers(case: Case, mutant: Mutant) -> dict[str, Array]:
    wrong = deviant(case, [mutant.deviation])
    parameters = {name: value.astype(np.float32) for name, value in wrong.given.parameters.items()}
    inputs = replace(wrong.given, x=wrong.given.x.astype(np.float32), parameters=parameters)
    with np.errstate(all="ignore"):
        return {
            name: np.asarray(stage).astype(np.float32)
            for name, stage in forward(wrong.layer, inputs, Arithmetic(np.float32)).items()
        }


def observed(mutant: Mutant, situations: Sequence[str], *, output_only: bool = False) -> list[Observation]:
    manifest, found = read_golden_manifest(), []
    for situation in situations:
        case = load().cases[f"{mutant.layer}/{situation}"]
        expected, shown = read_golden(case, manifest, constants()), answers(case, mutant)
        names = ("output",) if output_only else stages(case.layer)
        given_answers = {name: shown[name] for name in names}
        verdict = judge("output" if output_only else "stages", names, given_answers, expected, FLOAT32, constants())
        failed = verdict.outcome is not Outcome.PASS
        found.append(observation_of(case, expected, FLOAT32, given_answers, failed=failed))
    return found


def is_right(mutant: Mutant, diagnosis: Diagnosis) -> bool:
    """Whether what is named gives what the mutant gives, in cases that the diagnosis was not shown."""
    named = [catalogue()[name] for name in diagnosis.deviations if name in catalogue()]
    named += [measured_epsilon(each.deviation.removesuffix("-epsilon"), each.value) for each in diagnosis.measured]
    if diagnosis.equations:
        patches: dict[str, dict[str, str]] = {}
        for each in diagnosis.equations:
            patches.setdefault(each.stage, {})[each.specified] = each.found
        named = [deviation_of(patches)]
    if not named:
        return False
    for situation in HELD_OUT:
        case = load().cases[f"{mutant.layer}/{situation}"]
        rows = case.specified()
        both = [deviant(case, each).stages(Arithmetic(np.float64)) for each in ([mutant.deviation], named)]
        wrong, found = (stages["output"][rows] for stages in both)
        if not np.allclose(found, wrong, rtol=1e-3, atol=1e-3 * np.nanmax(np.abs(wrong), initial=1e-9), equal_nan=True):
            return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output-only", action="store_true", help="the implementation shows no stage")
    parser.add_argument("--pairs", action="store_true", help="two mutants at a time, in different stages")
    told = parser.parse_args()
    counts, seconds, missed = Counter[str](), list[float](), list[str]()
    for mutant in (pairs if told.pairs else mutants)(told.count, told.seed):
        seen = observed(mutant, SHOWN, output_only=told.output_only)
        if not any(observation.failed for observation in seen):
            counts["equivalent"] += 1
            continue
        begun = time.perf_counter()
        diagnosis = diagnose("mutant", "float32", seen, repeats="same")
        seconds.append(time.perf_counter() - begun)
        right = is_right(mutant, diagnosis)
        kind = "right" if right and diagnosis.confidence == "explained" else diagnosis.confidence
        kind = "FALSE" if not right and diagnosis.confidence == "explained" else kind
        counts[kind] += 1
        counts["right step"] += diagnosis.first_stage in mutant.equations or right
        if kind != "right":
            stated = "; ".join(each.found for each in diagnosis.equations) or " + ".join(diagnosis.deviations)
            missed.append(
                f"{kind}: {mutant.layer} {mutant.stage} = {mutant.equation}: {diagnosis.first_stage}: {stated}"
            )
            print(missed[-1], flush=True)
    caught = len(seconds)
    print(f"{told.count} mutants, seed {told.seed}: {counts['equivalent']} equivalent, {caught} caught")
    for name in ("right", "right step", "closest", "unknown", "FALSE"):
        print(f"{name}: {counts[name]} ({counts[name] / max(caught, 1):.1%})")
    print(f"a diagnosis takes {np.median(seconds):.1f} s, at most {max(seconds):.1f} s")


if __name__ == "__main__":
    main()
