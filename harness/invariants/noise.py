"""How much noise a case makes at its output, measured when it is asked for: an invariant has no golden file (J-7)."""

import threading

import numpy as np

from harness.oracle.arithmetic import Arithmetic, Array, Rounded
from harness.oracle.condition import SAMPLE_ROUNDOFF, Spread
from harness.oracle.encoder import evaluate
from harness.spec.case import Case

RUNS = 16
_OF_NUMBERS = {"batch", "sequence", "input", "parameter_exponents", "mask"}
_found: dict[tuple[str, int, str], Array] = {}
_one_at_a_time = threading.Lock()


def condition(case: Case) -> Array:
    """κ of the case's output, [B, S, d_model]; NaN where the output is not finite.

    Kept for the next dtype, the next implementation, and other situations that are of the same numbers.
    """
    key = case.layer.layer, case.seed, case.situation.model_dump_json(include=_OF_NUMBERS)
    with _one_at_a_time:
        if key not in _found:
            _found[key] = _measured(case)
        return _found[key]


def _measured(case: Case) -> Array:
    with np.errstate(all="ignore"):
        spread = Spread({"output": _output(case, Arithmetic(np.float64))})
        for run in range(RUNS):
            spread.add({"output": _output(case, Rounded(SAMPLE_ROUNDOFF, run))})
        return spread.conditions()["output"]


def _output(case: Case, arithmetic: Arithmetic) -> Array:
    return evaluate(case, arithmetic, None).stages["output"]
