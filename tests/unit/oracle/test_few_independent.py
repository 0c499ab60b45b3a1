"""A tensor whose errors are few independent numbers (rule C-8): what a right layer's noise is in every run conforms."""

import numpy as np
import pytest

from encoder_conformance.judging.verdict import TensorVerdict, judge_tensor
from encoder_conformance.oracle.arithmetic import Arithmetic, Rounded
from encoder_conformance.oracle.condition import ENOUGH, ONCE_IN, expectation, independent_numbers, sampled, widening
from encoder_conformance.oracle.encoder import evaluate
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.oracle.inputs import given
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.load import constants, load

FEW = (
    "post-gelu/large-mean",
    "post-gelu/large-logits",
    "pre-gelu/large-logits",
    "pre-gelu-one-head/blind-queries",
    "post-relu-head-dim-1/low-variance",
)
"""Cases with gradients of which 64 runs say that they err by fewer than five independent numbers."""
OTHER_RUNS = range(1000, 1064)
"""Not those of which the condition was measured. A daily run takes a quarter of them, in one case."""


def disturbed(case_id: str, run: int) -> dict[str, Array]:
    """The gradients of the oracle with every operation disturbed by as much as float32 rounds."""
    case = load().cases[case_id]
    cotangent = case.cotangent(read_golden(case, read_golden_manifest(), constants()).kinked_rows)
    return evaluate(case, Rounded(FORMATS["float32"].roundoff, run), cotangent, given(case)).gradients


def judged(case_id: str, name: str, gradient: Array) -> TensorVerdict:
    golden = read_golden(load().cases[case_id], read_golden_manifest(), constants())
    tensor = golden.tensors[f"gradient.{name}"]
    return judge_tensor(name, gradient.astype(np.float32), tensor, FORMATS["float32"])


@pytest.mark.release
@pytest.mark.parametrize(
    ("case_id", "runs"),
    [(FEW[0], OTHER_RUNS[:16]), *(pytest.param(case_id, OTHER_RUNS, marks=pytest.mark.release) for case_id in FEW)],
)
def test_noise_of_one_unit_conforms_in_every_run(case_id: str, runs: range) -> None:
    for run in runs:
        for name, gradient in disturbed(case_id, run).items():
            assert judged(case_id, name, gradient).conforms, (run, judged(case_id, name, gradient))


@pytest.mark.parametrize("numbers", [1, 3, 8, 40, 300])
def test_independent_numbers_are_counted(numbers: int) -> None:
    """Each of 1,200 elements is one of so many normal numbers, and 64 runs are enough to tell to a third."""
    random = np.random.default_rng(numbers)
    errors = [sampled(np.repeat(random.normal(size=numbers), 1200 // numbers)) for _ in range(64)]
    assert independent_numbers(errors, np.ones_like(errors[0])) == pytest.approx(numbers, rel=0.5)


def test_a_sample_of_a_square_matrix_is_of_all_its_rows_and_columns() -> None:
    """Errors that move together along a column are as many numbers as there are columns."""
    random = np.random.default_rng(0)
    along_columns = [sampled(np.tile(random.normal(size=512), (512, 1))) for _ in range(64)]
    along_rows = [sampled(np.tile(random.normal(size=(512, 1)), (1, 512))) for _ in range(64)]
    for errors in (along_columns, along_rows):
        assert independent_numbers(errors, np.ones(512)) > 100


def test_an_error_is_at_most_as_large_as_it_can_be_by_chance() -> None:
    """κ grows for a handful of numbers, by no more than one number needs, and not at all for as many as are usual."""
    random = np.random.default_rng(0)
    for numbers in (1, 2, 4, 8):
        rms = np.sqrt(np.mean(random.normal(size=(200_000, numbers)) ** 2, axis=1))
        beyond = np.mean(rms > constants().rms_limit * widening(numbers))
        assert beyond < 20 * ONCE_IN
        assert np.mean(rms > constants().rms_limit) > 20 * ONCE_IN  # what it grows for
    assert widening(1) == pytest.approx(2.43, abs=0.01)
    assert widening(ENOUGH) == widening(float("inf")) == 1.0


def test_values_that_are_not_finite_and_tensors_without_noise_say_nothing() -> None:
    nothing = np.zeros(4)
    assert independent_numbers([nothing, nothing], nothing) == float("inf")
    assert independent_numbers([np.full(4, np.nan)] * 2, np.full(4, np.nan)) == float("inf")
    assert independent_numbers([np.ones(4)], np.ones(4)) == float("inf")


def test_most_tensors_keep_their_condition() -> None:
    """A stage of an ordinary case errs by many numbers: its unit is the root mean square of the runs, bit for bit."""
    case = load().cases["post-gelu/padding-right"]
    found = expectation(case, 16).condition
    plain = np.zeros(found["ffn_output"].shape)
    exact = evaluate(case, Arithmetic(np.float64), None, given(case)).stages["ffn_output"]
    for run in range(16):
        value = evaluate(case, Rounded(2.0**-32, run), None, given(case)).stages["ffn_output"]
        plain += ((value - exact) / 2.0**-32) ** 2
    plain /= 16
    padded = np.concatenate([plain[..., :1], plain, plain[..., -1:]], axis=-1)
    smooth = (padded[..., :-2] + 2 * padded[..., 1:-1] + padded[..., 2:]) / 4
    assert np.array_equal(found["ffn_output"], np.sqrt(smooth))
