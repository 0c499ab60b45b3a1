"""Sixteen bits (clause D-2, rule C-5): what noise makes of a ReLU, and a wrong layer that stands out all the same."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from encoder_conformance.golden.narrow import in_format
from encoder_conformance.golden.store import read_golden, read_golden_manifest
from encoder_conformance.judge.expected import Expected
from encoder_conformance.judge.outcome import Outcome
from encoder_conformance.judge.verdict import Verdict, judge
from encoder_conformance.oracle.arithmetic import Arithmetic, Array
from encoder_conformance.oracle.encoder import forward, given
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import constants
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.load import load
from encoder_conformance.spec.stages import stages

NARROW = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
CASES = [case for name, case in load().cases.items() if name.endswith("-16-bit")]


class Rounding(Arithmetic):
    """Each result rounded to a narrow format, sums kept in float32 and rounded once, as frameworks do."""

    def __init__(self, narrow: type) -> None:
        super().__init__(np.float32)
        self.narrow = narrow

    def _rounded(self, result: Array, times: float = 1.0) -> Array:
        return np.asarray(result).astype(self.narrow).astype(np.float32)

    def _rounded_sum(self, total: Array, terms: int, products: float, squares: object, begin: object = None) -> Array:
        return self._rounded(total if begin is None else total + begin)


def expectation(case: Case, dtype: str) -> Expected:
    return in_format(case, read_golden(case, read_golden_manifest(), constants()), FORMATS[dtype])


def judged(case: Case, dtype: str, **norm: float) -> Verdict:
    layer = case.layer.model_copy(update={"norm": case.layer.norm.model_copy(update=norm)})
    with np.errstate(all="ignore"):
        found = forward(layer, given(case), Rounding(NARROW[dtype]))
    observed = {name: value.astype(NARROW[dtype]) for name, value in found.items()}
    return judge("stages", stages(case.layer), observed, expectation(case, dtype), FORMATS[dtype], constants())


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_an_honest_layer_in_sixteen_bits_conforms(case: Case, dtype: str) -> None:
    verdict = judged(case, dtype)
    assert verdict.outcome is Outcome.PASS, verdict.message
    assert verdict.rms is not None
    assert verdict.rms > 0.1


def test_float32_and_float64_keep_the_goldens_condition() -> None:
    golden = read_golden(CASES[0], read_golden_manifest(), constants())
    assert all(in_format(CASES[0], golden, FORMATS[dtype]) is golden for dtype in ("float32", "float64"))


def test_a_unit_that_is_off_has_noise_where_rounding_may_turn_it_on() -> None:
    """A golden's condition of it is 0: in bfloat16 the same unit may well be 0.01."""
    turned_on = []
    for case in (case for case in CASES if case.layer.feed_forward.activation == "relu"):
        golden = read_golden(case, read_golden_manifest(), constants()).tensors["ffn_activation"]
        off = (golden.golden == 0) & (golden.condition == 0)
        turned_on += list(expectation(case, "bfloat16").tensors["ffn_activation"].condition[off] > 0)
    assert any(turned_on)
    assert not all(turned_on)


@pytest.mark.parametrize("dtype", NARROW)
def test_a_wrong_layer_stands_out_in_sixteen_bits(dtype: str) -> None:
    case = next(case for case in CASES if case.id == "pre-gelu/no-mask-16-bit")
    assert judged(case, dtype, epsilon=1.0).outcome is Outcome.FAIL
    other = replace(case, layer=case.layer.model_copy(update={"layer": "pre-gelu"}))
    assert judged(other, dtype).outcome is Outcome.PASS
