"""The noise of formats so narrow that it is not proportional to their roundoff (rule C-5)."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np

from harness.golden.expected import Array, Expected
from harness.oracle.arithmetic import Arithmetic, Rounded
from harness.oracle.condition import Spread
from harness.oracle.encoder import evaluate
from harness.spec.case import Case
from harness.spec.dtypes import Format
from harness.spec.layer import Layer
from harness.spec.situation import Situation

LINEAR_BELOW = 2.0**-20
"""The roundoff below which noise is proportional to it: a golden's condition serves every such format."""
_RUNS = 16


def in_format(case: Case, expected: Expected, dtype: Format) -> Expected:
    """The expectation with the condition that it has in this format: that of the golden, or a larger one (C-5).

    At 2^-8 a ReLU that noise turns on, or a softmax that it moves, is no small disturbance: the oracle is run in
    Monte-Carlo rounding of the format's own roundoff.
    """
    if dtype.roundoff < LINEAR_BELOW or not expected.tensors:
        return expected
    frozen = case.as_frozen()
    made_from = frozen.layer.model_dump_json(), frozen.situation.model_dump_json()
    measured = _conditions(*made_from, case.seed, dtype.roundoff)
    tensors = {}
    for name, tensor in expected.tensors.items():
        condition = measured[name].reshape(-1)[tensor.positions]
        tensors[name] = replace(tensor, condition=np.fmax(tensor.condition, condition))
    return replace(expected, tensors=tensors)


@lru_cache(maxsize=64)  # every implementation is asked the same, and each check by itself; a case has no hash
def _conditions(layer: str, situation: str, seed: int, roundoff: float) -> Mapping[str, Array]:
    case = Case(Layer.model_validate_json(layer), Situation.model_validate_json(situation), seed)
    spread = Spread(evaluate(case, Arithmetic(np.float64), None).stages, roundoff)
    for run in range(_RUNS):
        with np.errstate(all="ignore"):
            spread.add(evaluate(case, Rounded(roundoff, run), None).stages)
    return spread.conditions()
