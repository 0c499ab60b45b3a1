"""Mutants of the backward pass alone: what goes back through one part of an equation is left out or multiplied."""

import ast
import random
import time
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from benchmarks.mutants.grading import FLOAT32, Grade, Kind
from benchmarks.mutants.mistakes import FACTORS
from benchmarks.mutants.mutation import Mutant
from encoder_conformance.diagnosis.backward.diagnose import diagnose_backward
from encoder_conformance.diagnosis.backward.observed import ObservedGradients, observe_gradients
from encoder_conformance.diagnosis.identify.edits import parsed, places
from encoder_conformance.diagnosis.in_sigma import conforms
from encoder_conformance.judging.records import Diagnosis
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.backward import gradients, played
from encoder_conformance.oracle.equation import Operands
from encoder_conformance.oracle.forms import stage_equations
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.oracle.inputs import given
from encoder_conformance.oracle.kinks import kinked_rows
from encoder_conformance.oracle.play import softmax_choices
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.equation import SIZES, Equation, dotted
from encoder_conformance.spec.load import constants, load

LAYERS = ("pre-gelu", "post-relu", "post-gelu")
SHOWN = ("padding-right", "no-mask", "single-item", "causal")
HELD_OUT = ("mask-per-item-and-head", "padding-holes")


def backward_mutants(count: int, seed: int) -> Iterator[Mutant]:
    chance, made, seen = random.Random(seed), 0, set[tuple[str, str, str]]()
    while made < count:
        layer = LAYERS[made % len(LAYERS)]
        equations = stage_equations(load().layers[layer])
        stage = chance.choice(list(equations))
        node, put = chance.choice(list(places(equations[stage].tree)))
        if isinstance(node, ast.Constant) or dotted(node) in (*SIZES, "mask", "bias"):
            continue
        text, factor = ast.unparse(node), chance.choice((0.0, *FACTORS))
        wrong = ast.unparse(put(parsed(f"scale_gradient({text}, {factor})" if factor else f"detach({text})")))
        if (layer, stage, wrong) not in seen:
            seen.add((layer, stage, wrong))
            made += 1
            yield Mutant(layer, {stage: (equations[stage].form, wrong)})


def graded_backward(mutants: Iterable[Mutant]) -> Iterator[Grade]:
    manifest = read_golden_manifest()
    for mutant in mutants:
        wrong = {stage: Equation(text) for stage, (_, text) in mutant.equations.items()}
        seen = []
        for case in (load().cases[f"{mutant.layer}/{situation}"] for situation in SHOWN):
            answers = {name: value.astype(np.float32) for name, value in _gradients(case, wrong, np.float32).items()}
            known = observe_gradients(case, read_golden(case, manifest, constants()), FLOAT32, answers, failed=True)
            seen += [known] if known else []
        if all(_conforms(case) for case in seen):
            yield Grade(str(mutant), "equivalent", True, "", 0.0)
            continue
        begun = time.process_time()
        diagnosis = diagnose_backward("mutant", "float32", seen)
        seconds, right = time.process_time() - begun, _is_right(mutant, wrong, diagnosis)
        kind: Kind = "unknown" if diagnosis.confidence != "explained" else "right" if right else "false"
        stated = "; ".join(f"{each.stage} = {each.found}" for each in diagnosis.equations)
        yield Grade(str(mutant), kind, right, stated, round(seconds, 2))


def _conforms(case: ObservedGradients) -> bool:
    return all(conforms(errors) for errors in case.errors(case.right).values())


def _gradients(case: Case, wrong: Mapping[str, Equation], dtype: type[np.floating]) -> dict[str, Array]:
    a, what = Arithmetic(dtype), given(case)
    parameters = {name: value.astype(dtype) for name, value in what.parameters.items()}
    values = {**parameters, "x": what.x.astype(dtype), **what.beside_x}
    layer = played(
        {**stage_equations(case.layer), **wrong}, a, Operands(case.layer, values, softmax_choices(case.layer))
    )
    found = gradients(layer, a, case.cotangent(kinked_rows(case)))
    return {**{name: np.zeros_like(value) for name, value in {"x": what.x, **parameters}.items()}, **found}


def _is_right(mutant: Mutant, wrong: Mapping[str, Equation], diagnosis: Diagnosis) -> bool:
    """Whether what is named gives the mutant's gradients, in cases that the diagnosis was not shown."""
    named = {each.stage: Equation(each.found) for each in diagnosis.equations}
    for situation in HELD_OUT:
        case = load().cases[f"{mutant.layer}/{situation}"]
        both = (_gradients(case, equations, np.float64) for equations in (wrong, named))
        ours, theirs = both
        largest = max(float(np.abs(value).max()) for value in ours.values())
        if any(np.abs(ours[name] - theirs[name]).max() > 1e-5 * largest for name in ours):
            return False
    return True
