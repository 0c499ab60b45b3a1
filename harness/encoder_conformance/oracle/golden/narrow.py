"""The condition in narrow formats, whose noise is not proportional to their roundoff (rule C-5)."""

from dataclasses import replace

import numpy as np

from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.measured import measured_condition
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import Format

LINEAR_BELOW = 2.0**-20
"""Below this roundoff, noise is proportional to it, and the golden's condition applies."""


def in_format(case: Case, expected: Expected, dtype: Format) -> Expected:
    """The expectation with its condition in this format: the golden's, or a larger measured one (C-5).

    At a roundoff of 2^-8, noise turns ReLUs on and moves softmaxes, so linear error propagation does not hold. The
    condition is measured by running the oracle in Monte-Carlo rounding at the format's roundoff.
    """
    if dtype.roundoff < LINEAR_BELOW or not expected.tensors:
        return expected
    measured = measured_condition(case, dtype.roundoff)
    tensors = {}
    for name, tensor in expected.tensors.items():
        if name not in measured:  # a gradient: narrow formats have no check of gradients
            continue
        condition = measured[name].reshape(-1)[tensor.positions]
        tensors[name] = replace(tensor, condition=np.fmax(tensor.condition, condition))
    return replace(expected, tensors=tensors)
