"""A layer in float32 that computes some stages by other equations: what it shows of a case."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import numpy as np

from encoder_conformance.judging.observation import Observation, observation_of
from encoder_conformance.judging.verdict import judge
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.encoder import forward
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.forms import stage_equations
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.oracle.inputs import given
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS, Format
from encoder_conformance.spec.equation import Equation
from encoder_conformance.spec.load import constants, load
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.stages import stages

FLOAT32 = FORMATS["float32"]
SITUATIONS = ("padding-right", "mask-per-head", "no-mask", "large-mean")
CASES = [load().cases[f"{layer}/{situation}"] for layer in ("pre-gelu", "post-relu") for situation in SITUATIONS]
Wrong = Callable[[str], str]


def computed(case: Case, wrong: Mapping[str, Wrong], dtype: Format = FLOAT32) -> dict[str, np.ndarray]:
    """Every stage of that layer, in this format."""
    specified = stage_equations(case.layer)
    equations = {stage: Equation(change(specified[stage].text)) for stage, change in wrong.items()}
    what = given(case)
    narrow = {name: value.astype(dtype.numpy) for name, value in what.parameters.items()}
    what = replace(what, equations=equations, x=what.x.astype(dtype.numpy), parameters=narrow)
    with np.errstate(all="ignore"):
        return forward(case.layer, what, Arithmetic(dtype.numpy))


def observed(
    case: Case,
    wrong: Mapping[str, Wrong],
    *,
    output_only: bool = False,
    hidden: Collection[str] = (),
    expected: Expected | None = None,
    dtype: Format = FLOAT32,
) -> Observation:
    """What a layer shows, but for the `hidden` stages, that computes these stages by another equation. `expected` is
    read, or given."""
    shown = computed(case, wrong, dtype)
    names = ("output",) if output_only else tuple(name for name in stages(case.layer) if name not in hidden)
    answers = {name: np.asarray(shown[name]).astype(dtype.numpy) for name in names}
    expected = expected or read_golden(case, read_golden_manifest(), constants())
    verdict = judge("output" if output_only else "stages", names, answers, expected, dtype)
    return observation_of(case, expected, dtype, answers, failed=verdict.outcome is not Outcome.PASS)
