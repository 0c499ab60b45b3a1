"""An invariant of an implementation that declares deviations: does what it declares break it? (rule V-7)"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.deviations.catalogue import is_noisy
from harness.deviations.play import played
from harness.invariants.ability import asked_variants
from harness.invariants.variants import base_of
from harness.invariants.verdict import judge_invariant
from harness.judge.outcome import Outcome
from harness.judge.verdict import Verdict
from harness.plan import Task
from harness.spec.constants import Constants
from harness.spec.deviation import Deviation
from harness.spec.dtypes import FORMATS

Array = npt.NDArray[Any]


def unforetold(task: Task, deviations: Sequence[Deviation]) -> str | None:
    """Why the invariant is not asked: of these deviations the size alone is foretold; None if it is."""
    names = [deviation.deviation for deviation in deviations if is_noisy(deviation)]
    invariant = task.case.situation.invariant
    return f"{' and '.join(names)} is foretold in size only, and {invariant} asks for less" if names else None


def judge_task(
    task: Task, deviations: Sequence[Deviation], observed: Sequence[Mapping[str, Array]], constants: Constants
) -> Verdict:
    """`deviates` where the invariant is broken and the oracle breaks it too when it plays what is declared."""
    asked, dtype = asked_variants(task.implementation, task.case, task.dtype), FORMATS[task.dtype]
    verdict = judge_invariant(task.case, asked, observed, dtype, constants)
    if verdict.outcome is not Outcome.FAIL or not deviations:
        return verdict
    ids = " and ".join(deviation.deviation for deviation in deviations)
    cases = [base_of(task.case), *(variant.case for variant in asked)]
    with np.errstate(over="ignore", invalid="ignore"):
        foretold = [{"output": played(case, deviations)["output"].astype(dtype.numpy)} for case in cases]
    if judge_invariant(task.case, asked, foretold, dtype, constants).outcome is Outcome.FAIL:
        message = f"as declared: {ids} breaks it; {verdict.message}"
        return verdict.model_copy(update={"outcome": Outcome.DEVIATES, "message": message})
    return verdict.model_copy(update={"message": f"{verdict.message}; {ids}, as declared, does not break it"})
