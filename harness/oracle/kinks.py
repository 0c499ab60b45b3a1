"""Rows that stand on a kink: where noise decides between a ReLU's two slopes, nobody's gradient can be judged."""

import numpy as np

from harness.oracle.arithmetic import Arithmetic, Array, Rounded
from harness.oracle.encoder import evaluate
from harness.spec.case import Case
from harness.spec.dtypes import FORMATS

MARGIN = 10.0
"""How many float32 σ a ReLU's input keeps from zero in a row whose gradient is judged (clause B-2)."""
_ROUNDOFF = FORMATS["float32"].roundoff
_RUNS = 16


def kinked_rows(case: Case) -> Array:
    """The (item, position) pairs, [n, 2], of the rows whose feed-forward network is within the margin of a kink.

    A row's own feed-forward network touches no other row's output, so a zero cotangent there takes the kink, and
    nothing else, out of every gradient.
    """
    if case.layer.feed_forward.activation != "relu" or "gradients" not in case.situation.checks:
        return np.zeros((0, 2), dtype=np.int64)
    hidden = evaluate(case, Arithmetic(np.float64), None).stages["ffn_hidden"]
    squares = np.zeros(hidden.shape)
    for run in range(_RUNS):
        squares += (evaluate(case, Rounded(_ROUNDOFF, run), None).stages["ffn_hidden"] - hidden) ** 2
    near = np.abs(hidden) < MARGIN * np.sqrt(squares / _RUNS)
    return np.argwhere(near.any(axis=-1) & case.valid())
