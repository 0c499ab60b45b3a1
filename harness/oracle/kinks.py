"""Rows that stand on a kink: where noise decides between a ReLU's two slopes, nobody's gradient can be judged."""

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic, Array, Rounded
from encoder_conformance.oracle.encoder import evaluate, given
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS

MARGIN = 10.0
"""How many float32 σ a ReLU's input keeps from zero in a row whose gradient is judged (clause B-2)."""
_ROUNDOFF = FORMATS["float32"].roundoff
_RUNS = 16


def kinked_rows(case: Case) -> Array:
    """The (item, position) pairs, [n, 2], of the rows whose gradient nobody can be judged by.

    A row's own feed-forward network touches no other row's output, so a zero cotangent there takes a kink, and nothing
    else, out of every gradient. In a stack that is so of the last layer: what a layer before it gives goes on into
    every row of its item.
    """
    has_relu = case.layer.part == "encoder_layer" and case.layer.feed_forward.activation == "relu"
    if not has_relu or "gradients" not in case.situation.checks:
        return np.zeros((0, 2), dtype=np.int64)
    what = given(case)

    def hidden(arithmetic: Arithmetic) -> Array:
        """[layers, B, S, F]"""
        return np.stack([stages["ffn_hidden"] for stages in evaluate(case, arithmetic, None, what).layers])

    undisturbed = hidden(Arithmetic(np.float64))
    squares = np.zeros(undisturbed.shape)
    for run in range(_RUNS):
        squares += (hidden(Rounded(_ROUNDOFF, run)) - undisturbed) ** 2
    near = np.abs(undisturbed) < MARGIN * np.sqrt(squares / _RUNS)
    *before, last = near.any(axis=-1) & case.valid()
    for rows in before:
        last = last | rows.any(axis=-1, keepdims=True)
    return np.argwhere(last & case.valid())
