"""The difference of two answers to one question, in √2 σ: neither is taken to be right, and each has its noise."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from encoder_conformance.judging.asking import JudgedAnswer
from encoder_conformance.judging.checks.declared import patched_expectation
from encoder_conformance.judging.verdict import TensorVerdict, judge_tensor
from encoder_conformance.oracle.expected import ExpectedTensor, key
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.dtypes import Format


def differences(one: JudgedAnswer, two: JudgedAnswer) -> Iterator[TensorVerdict]:
    """The verdict on each tensor that both answers to one check have, in the order of computation.

    They may be of any floating-point dtype: the first one's format is that of the larger noise.
    """
    check, format, due = one.task.check, one.task.format, one.answer.expected
    if one.task.deviations:  # whose values have another noise
        due = patched_expectation(one.task.case, one.task.deviations, due, format)
    mine, theirs = one.tensors or {}, two.tensors or {}
    for name in one.task.case.expected_shapes(check):
        expected = due.tensors.get(key(check, name))
        if name in mine and name in theirs and expected is not None:
            yield difference(name, mine[name].astype(format.numpy), theirs[name], expected, format)


def difference(name: str, one: Array, two: Array, expected: ExpectedTensor, format: Format) -> TensorVerdict:
    """The verdict on `one` as if `two` were the golden, with the noise of both; both are in the shape of `expected`.

    If `two` has another shape, the verdict is that.
    """
    if two.shape != expected.shape:
        return judge_tensor(name, two, expected, format)
    golden = two.reshape(-1)[expected.positions].astype(np.float64)
    between = replace(expected, golden=golden, condition=expected.condition * np.sqrt(2.0))
    return judge_tensor(name, one, between, format)
