"""The noise of gradients where a softmax takes off the maximum of all scores, before the mask is applied (rule C-6)."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic, Rounded
from encoder_conformance.oracle.condition import SAMPLE_ROUNDOFF, Spread, matters
from encoder_conformance.oracle.encoder import evaluate
from encoder_conformance.oracle.expected import Expected, key
from encoder_conformance.oracle.inputs import given
from encoder_conformance.oracle.measured import RUNS
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case


def with_maximum_of_all(case: Case, expected: Expected) -> Expected:
    """The expectation with the κ of gradients that go through that maximum, where it is larger and matters."""
    measured = _conditions(case, expected)
    tensors = {}
    for name, tensor in expected.tensors.items():
        other = measured[name].reshape(-1)[tensor.positions] if name in measured else tensor.condition
        larger = matters(other, tensor.condition)
        tensors[name] = replace(tensor, condition=np.fmax(tensor.condition, other)) if larger else tensor
    return replace(expected, tensors=tensors)


def _conditions(case: Case, expected: Expected) -> Mapping[str, Array]:
    """κ of each gradient, by its key, in its own shape."""
    cotangent, inputs = case.cotangent(expected.kinked_rows), replace(given(case), largest="all")
    noise = (Arithmetic(np.float64), *(Rounded(SAMPLE_ROUNDOFF, run) for run in range(RUNS)))
    undisturbed, *runs = (evaluate(case, each, cotangent, inputs).gradients for each in noise)
    spread = Spread(_keyed(undisturbed))
    spread.add_each(map(_keyed, runs))
    return spread.conditions()


def _keyed(gradients: Mapping[str, Array]) -> dict[str, Array]:
    return {key("gradients", name): value for name, value in gradients.items()}
