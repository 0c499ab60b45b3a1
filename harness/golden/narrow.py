"""The noise of formats so narrow that it is not proportional to their roundoff (rule C-5)."""

from dataclasses import replace

import numpy as np

from encoder_conformance.judge.expected import Expected
from encoder_conformance.oracle.measured import measured_condition
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import Format

LINEAR_BELOW = 2.0**-20
"""The roundoff below which noise is proportional to it: a golden's condition serves every such format."""


def in_format(case: Case, expected: Expected, dtype: Format) -> Expected:
    """The expectation with the condition that it has in this format: that of the golden, or a larger one (C-5).

    At 2^-8 a ReLU that noise turns on, or a softmax that it moves, is no small disturbance: the oracle is run in
    Monte-Carlo rounding of the format's own roundoff.
    """
    if dtype.roundoff < LINEAR_BELOW or not expected.tensors:
        return expected
    measured = measured_condition(case, dtype.roundoff)
    tensors = {}
    for name, tensor in expected.tensors.items():
        if name not in measured:  # a gradient, which no such format is asked for
            continue
        condition = measured[name].reshape(-1)[tensor.positions]
        tensors[name] = replace(tensor, condition=np.fmax(tensor.condition, condition))
    return replace(expected, tensors=tensors)
