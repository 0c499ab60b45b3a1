"""The difference of two answers to one question, in √2 σ: neither is taken to be right, and each has its noise."""

from dataclasses import replace

import numpy as np

from encoder_conformance.judge.expected import Array, ExpectedTensor
from encoder_conformance.judge.verdict import TensorVerdict, judge_tensor
from encoder_conformance.spec.constants import constants
from encoder_conformance.spec.dtypes import Format


def difference(name: str, one: Array, two: Array, expected: ExpectedTensor, format: Format) -> TensorVerdict:
    """The verdict on `one` as if `two` were the golden, with the noise of both; both are in the shape of `expected`.

    If `two` has another shape, the verdict is that.
    """
    if two.shape != expected.shape:
        return judge_tensor(name, two, expected, format, constants())
    golden = two.reshape(-1)[expected.positions].astype(np.float64)
    between = replace(expected, golden=golden, condition=expected.condition * np.sqrt(2.0))
    return judge_tensor(name, one, between, format, constants())
