"""A softmax whose maximum is not detached (rule C-6): its gradient conforms, and σ grows only where it must."""

from dataclasses import replace

import numpy as np
import pytest

from encoder_conformance.judging.verdict import TensorVerdict, judge_tensor
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.condition import MATTERS, matters
from encoder_conformance.oracle.encoder import evaluate
from encoder_conformance.oracle.forms.softmax import Largest
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.oracle.inputs import given
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.load import constants, load
from tools.core.sensitivity import CONFORMING_RMS

CASES = ["post-relu-head-dim-1/low-variance", "post-rms-gelu-tanh/low-variance", "post-relu-head-dim-1/padded-item"]
GRADIENTS = ("attention.query.weight", "attention.query.bias", "attention.key.weight", "attention.key.bias", "x")


def in_format(case_id: str, dtype: str, largest: Largest = "detached") -> dict[str, Array]:
    """The gradients of the equations in plain NumPy, in this format throughout."""
    case = load().cases[case_id]
    cotangent = case.cotangent(read_golden(case, read_golden_manifest(), constants()).kinked_rows)
    return evaluate(case, Arithmetic(dtype), cotangent, replace(given(case), largest=largest)).gradients


def judged(case_id: str, name: str, gradient: Array, dtype: str) -> TensorVerdict:
    golden = read_golden(load().cases[case_id], read_golden_manifest(), constants())
    return judge_tensor(name, gradient, golden.tensors[f"gradient.{name}"], FORMATS[dtype])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case_id", CASES)
@pytest.mark.parametrize("largest", ["shown", "detached"])
def test_a_gradient_conforms_whether_it_goes_through_the_maximum_or_not(
    case_id: str, dtype: str, largest: Largest
) -> None:
    gradients = in_format(case_id, dtype, largest)
    for name in GRADIENTS:
        verdict = judged(case_id, name, gradients[name], dtype)
        assert verdict.conforms, verdict
        assert verdict.max is not None
        assert verdict.max > 0


def test_what_goes_through_the_maximum_is_rounding_and_no_more() -> None:
    detached, through = (in_format(CASES[0], "float64", each) for each in ("detached", "shown"))
    for name, gradient in detached.items():
        assert np.allclose(through[name], gradient, rtol=1e-9, atol=1e-15), name
    assert not np.array_equal(through["attention.key.weight"], detached["attention.key.weight"])


@pytest.mark.parametrize("name", ["attention.key.weight", "attention.query.weight"])
def test_a_wrong_gradient_stands_out_as_before(name: str) -> None:
    """By one per cent, in the format in which noise is largest."""
    for case_id in CASES:
        wrong = (in_format(case_id, "float64")[name] * 1.01).astype(np.float32)
        assert not judged(case_id, name, wrong, "float32").conforms, case_id


@pytest.mark.parametrize(
    ("other", "expected"),
    [([1.2, 2.4, 3.6], False), ([0.5, 2.0, 3.0], False), ([1.0, 2.0, 6.0], True), ([1.3, 2.6, 3.9], True)],
)
def test_an_arrangement_matters_from_a_quarter_more_noise(other: list[float], expected: bool) -> None:
    assert matters(np.array(other), np.array([1.0, 2.0, 3.0])) is expected


def test_noise_where_there_was_none_matters() -> None:
    assert not matters(np.array([0.0, 1.0]), np.array([0.0, 1.0]))
    assert matters(np.array([0.5, 1.0]), np.array([0.0, 1.0]))


def test_what_matters_is_what_the_limit_leaves_a_conforming_implementation() -> None:
    assert pytest.approx(constants().rms_limit / CONFORMING_RMS) == MATTERS
