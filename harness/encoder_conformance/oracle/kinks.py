"""Kinks, where noise decides between a ReLU's two slopes: rows with no gradient to judge by (B-2), and elements whose
own condition is too small (C-7)."""

from collections.abc import Mapping

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic, Rounded
from encoder_conformance.oracle.encoder import evaluate
from encoder_conformance.oracle.inputs import given
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.plan import Step, plan
from encoder_conformance.spec.stages import layer_of, step_of

MARGIN = 10.0
"""The distance of a ReLU's input from zero, in σ, from which it is clear of its kink (clause B-2, in float32, and rule
C-7). It is `max_limit`: an input that is further off its golden does not conform itself."""
_ROUNDOFF = FORMATS["float32"].roundoff
_RUNS = 16


def kinked_rows(case: Case) -> Array:
    """The (item, position) pairs, [n, 2], of the rows with no gradient to judge by (clause B-2).

    A row's own feed-forward network touches no other row's output, so a zero cotangent there takes a kink, and nothing
    else, out of every gradient. In a stack that is so of the last layer: what a layer before it gives goes on into
    every row of its item.
    """
    if not _relus(case.layer) or "gradients" not in case.situation.checks:
        return np.zeros((0, 2), dtype=np.int64)
    inputs = given(case)

    def hidden(arithmetic: Arithmetic) -> Array:
        """[layers, B, S, F]"""
        [relu] = _relus(case.layer)
        return np.stack([stages[relu.reads[0]] for stages in evaluate(case, arithmetic, None, inputs).layers])

    undisturbed = hidden(Arithmetic(np.float64))
    squares = np.zeros(undisturbed.shape)
    for run in range(_RUNS):
        squares += (hidden(Rounded(_ROUNDOFF, run)) - undisturbed) ** 2
    near = np.abs(undisturbed) < MARGIN * np.sqrt(squares / _RUNS)
    *before, last = near.any(axis=-1) & case.valid()
    for rows in before:
        last = last | rows.any(axis=-1, keepdims=True)
    return np.argwhere(last & case.valid())


def condition_at_kinks(
    layer: Layer, undisturbed: Mapping[str, Array], condition: Mapping[str, Array], roundoff: float = _ROUNDOFF
) -> dict[str, Array]:
    """The conditions with that of `ffn_activation` no less than its input's where the input is near 0 (rule C-7).

    `undisturbed` and `condition` are of every stage, each in its own shape. A ReLU that is off has no condition, unless
    one of the few runs turned it on, and an implementation that turns it on is off by what its input is: no more than
    |max(h + δ, 0) − max(h, 0)| ≤ |δ|.
    """
    found = dict(condition)
    for relu in _relus(layer):
        for hidden in [name for name in found if step_of(name) == relu.reads[0]]:
            activation = layer_of(hidden) + relu.makes
            near = np.abs(undisturbed[hidden]) < MARGIN * roundoff * found[hidden]
            found[activation] = np.where(near, np.fmax(found[activation], found[hidden]), found[activation])
    return found


def _relus(layer: Layer) -> list[Step]:
    """The steps of a layer that have a kink."""
    return [step for step in plan(layer) if step.form == "activation" and step.right == "relu"]
