"""Shows mutants to a diagnosis, and grades what it says of them."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from benchmarks.mutants.mutation import Mutant
from encoder_conformance.diagnosis.diagnose import diagnose
from encoder_conformance.diagnosis.named import named_deviations
from encoder_conformance.golden.store import read_golden, read_golden_manifest
from encoder_conformance.judge.observation import Observation, observation_of
from encoder_conformance.judge.outcome import Outcome
from encoder_conformance.judge.verdict import judge
from encoder_conformance.oracle.arithmetic import Arithmetic, Array
from encoder_conformance.oracle.deviant import deviant
from encoder_conformance.oracle.encoder import forward
from encoder_conformance.results import Diagnosis
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import constants
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.load import load
from encoder_conformance.spec.stages import stages

FLOAT32 = FORMATS["float32"]
SHOWN = ("padding-right", "mask-per-head", "no-mask", "causal", "low-variance", "padding-left", "mask-drawn", "alibi")
HELD_OUT = ("mask-per-item-and-head", "padding-holes")
Kind = Literal["equivalent", "right", "closest", "unknown", "false"]


@dataclass(frozen=True)
class Grade:
    """What a diagnosis made of a mutant: `stated` is its equation or name, `step` whether it names the right step."""

    mutant: str
    kind: Kind
    step: bool
    stated: str
    seconds: float


def graded(mutants: Iterable[Mutant], *, output_only: bool) -> Iterable[Grade]:
    for mutant in mutants:
        seen = observed(mutant, SHOWN, output_only=output_only)
        if not any(observation.failed for observation in seen):
            yield Grade(str(mutant), "equivalent", True, "", 0.0)
            continue
        begun = time.perf_counter()
        diagnosis = diagnose("mutant", "float32", seen, repeats="same")
        seconds, right = time.perf_counter() - begun, is_right(mutant, diagnosis)
        kind: Kind = diagnosis.confidence if diagnosis.confidence in ("closest", "unknown") else "false"
        if right and diagnosis.confidence == "explained":
            kind = "right"
        stated = "; ".join(f"{each.stage} = {each.found}" for each in diagnosis.equations)
        step = right or diagnosis.first_stage in mutant.equations
        yield Grade(str(mutant), kind, step, stated or " and ".join(diagnosis.deviations), round(seconds, 2))


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
    named = named_deviations(diagnosis)
    if not named:
        return False
    for situation in HELD_OUT:
        case = load().cases[f"{mutant.layer}/{situation}"]
        rows = case.specified()
        both = [deviant(case, each).stages(Arithmetic(np.float64)) for each in ([mutant.deviation], named)]
        wrong, found = (stages["output"][rows] for stages in both)
        if not np.allclose(found, wrong, rtol=1e-5, atol=1e-5 * np.nanmax(np.abs(wrong), initial=1e-9), equal_nan=True):
            return False
    return True
