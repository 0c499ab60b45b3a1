"""A condition that is measured when it is asked for, and not frozen: of an invariant, or of a narrow format.

16 runs of a small layer take some 40 ms. What is found is kept for the next check, dtype, implementation, and for
situations of the same numbers.
"""

from collections.abc import Mapping

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic, Array, Rounded
from encoder_conformance.oracle.condition import SAMPLE_ROUNDOFF, Spread
from encoder_conformance.oracle.encoder import evaluate
from encoder_conformance.oracle.kinks import condition_at_kinks
from encoder_conformance.recent import Recent
from encoder_conformance.spec.case import Case

RUNS = 16
_KEPT = 64
_OF_NUMBERS = {"batch", "sequence", "items", "input", "parameter_exponents", "mask"}
_found = Recent[Mapping[str, Array]](_KEPT)


def measured_condition(case: Case, roundoff: float = SAMPLE_ROUNDOFF) -> Mapping[str, Array]:
    """κ of every stage, each in its own shape, from runs that disturb by `roundoff` (C-3, C-7); NaN where a stage is
    not finite."""
    layer = case.layer.model_dump_json()  # not its id: a declared deviation may have patched it
    numbers = case.situation.model_dump_json(include=_OF_NUMBERS), case.padding_id
    key = layer, case.numbers_from, *numbers, roundoff
    return _found.get(key, lambda: _measured(case, roundoff))


def _measured(case: Case, roundoff: float) -> Mapping[str, Array]:
    with np.errstate(all="ignore"):
        undisturbed = evaluate(case, Arithmetic(np.float64), None).stages
        spread = Spread(undisturbed, roundoff)
        for run in range(RUNS):
            spread.add(evaluate(case, Rounded(roundoff, run), None).stages)
        return condition_at_kinks(case.layer, undisturbed, spread.conditions(), roundoff)
