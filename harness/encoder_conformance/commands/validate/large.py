"""A file with many parameters is sampled: fewer situations, fewer positions, one runtime, fewer runs behind σ.

Nothing is judged more loosely: what is asked is judged by the same limits. A deviation of a weight or a step shows in
any situation. What may be missed is a dependence on a size or a mask that is not asked, and that is said.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from encoder_conformance.commands.validate.evidence import ExaminedFile
from encoder_conformance.commands.validate.runtimes import DEPLOYED, RuntimeRun
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.condition import Expectation
from encoder_conformance.oracle.encoder import evaluate, given
from encoder_conformance.oracle.expected import NOTHING, Expected
from encoder_conformance.oracle.golden.thinning import thin
from encoder_conformance.oracle.kinks import condition_at_kinks, kinked_rows
from encoder_conformance.oracle.samples import sampled_conditions
from encoder_conformance.protocol.findings import PhaseFinding
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import constants
from encoder_conformance.spec.parameters import parameter_count

LARGE = 20_000_000
"""Parameters from which on a file is sampled."""
RUNS = 4
"""Monte-Carlo runs behind σ, for the suite's 64: of an element with its neighbours it is known within a quarter."""
BATCH, SEQUENCE = 2, 6
KEPT = frozenset({"size-1x1", "padding-right", "no-mask", "invariant-determinism", "invariant-padding-content"})


def is_sampled(subject: ExaminedFile) -> bool:
    """Whether it is; in float64, whose noise needs a wider golden, nothing is."""
    layer = subject.layer
    return layer is not None and subject.is_understood and subject.dtype != "float64" and parameter_count(layer) > LARGE


def sampled_runs(runs: Sequence[RuntimeRun]) -> list[RuntimeRun]:
    """Those that are asked where the user names none; all, where none of them is among them."""
    return [run for run in runs if run.as_numbers or (run.runtime, run.level) == DEPLOYED] or list(runs)


def sampled_note(subject: ExaminedFile, runs: Sequence[RuntimeRun], cases: Iterable[Case]) -> PhaseFinding:
    assert subject.layer is not None
    million = parameter_count(subject.layer) / 1e6
    asked = ", ".join(run.name for run in runs)
    names = ", ".join(case.situation.situation for case in cases)
    size = f"at up to {BATCH} × {SEQUENCE} positions"
    message = f"its {million:.0f} million parameters are sampled: {names}, {size}, in {asked}"
    hint = f"σ comes from {RUNS} runs of the oracle; --runtime asks others; a file of fewer layers is judged in full"
    return PhaseFinding(phase="numbers", severity="note", message=message, hint=hint)


def expected_of_sample(cases: Sequence[Case]) -> Mapping[str, Expected]:
    """Compute what each case should give, in this process: the parameters would have to travel to other processes."""
    return {case.id: _expected(case) for case in cases}


def _expected(case: Case) -> Expected:
    if case.needs_no_golden:
        return NOTHING
    inputs = given(case)
    with np.errstate(all="ignore"):
        golden = evaluate(case, Arithmetic(np.float64), None, inputs).stages
        condition = condition_at_kinks(case.layer, golden, sampled_conditions(case.layer, inputs, golden, RUNS))
    return thin(case, Expectation(dict(golden), condition, kinked_rows(case)), constants())
