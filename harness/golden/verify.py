"""Compares a frozen golden with today's oracle."""

import numpy as np

from encoder_conformance.judge.expected import Expected
from encoder_conformance.judge.verdict import judge_tensor
from encoder_conformance.spec.constants import Constants
from encoder_conformance.spec.dtypes import FORMATS

_CONDITION_DRIFT = 0.01
"""Relative. Conditions come from the same draws everywhere; another order of summation moves them by parts in 10⁶."""


def disagreement(frozen: Expected, today: Expected, constants: Constants) -> str:
    """The first disagreement of today's oracle with a frozen golden, in one line; "" if they agree."""
    if frozen.kinked_rows.tolist() != today.kinked_rows.tolist():
        return f"kinked rows are {today.kinked_rows.tolist()}, frozen {frozen.kinked_rows.tolist()}"
    for name, tensor in frozen.tensors.items():
        now = today.tensors[name]
        observed = np.zeros(tensor.shape)
        observed.reshape(-1)[now.positions] = now.golden
        verdict = judge_tensor(name, observed, tensor, FORMATS["float64"], constants)
        if not verdict.conforms:
            return f"{name} is {verdict.max:.3g} σ (float64) from the frozen golden"
        if not np.allclose(now.condition, tensor.condition, rtol=_CONDITION_DRIFT, atol=0, equal_nan=True):
            return f"{name}'s condition has changed"
    return ""
