"""Sixteen bits (clause D-2, rule C-5): what noise makes of a ReLU, and a wrong layer that stands out all the same."""

from collections.abc import Mapping
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from products import daily

from encoder_conformance.judging.verdict import Verdict, judge, judge_tensor
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.encoder import forward
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.golden.narrow import in_format
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.oracle.inputs import given
from encoder_conformance.oracle.kinks import MARGIN, condition_at_kinks
from encoder_conformance.oracle.measured import measured_condition
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.load import constants, load
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.situation import Check
from encoder_conformance.spec.stages import stages

NARROW = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
CASES = [case for name, case in load().cases.items() if name.endswith("-16-bit")]


class Rounding(Arithmetic):
    """Each result rounded to a narrow format, sums kept in float32 and rounded once, as frameworks do.

    What is below the format's normal numbers is kept in float32, too: they square what they norm inside of that.
    """

    def __init__(self, narrow: type) -> None:
        super().__init__(np.float32)
        self.narrow = narrow

    def _rounded(self, result: Array, times: float = 1.0) -> Array:
        rounded = np.asarray(result).astype(self.narrow).astype(np.float32)
        return np.where(np.abs(result) < float(ml_dtypes.finfo(self.narrow).smallest_normal), result, rounded)

    def _rounded_sum(self, total: Array, terms: int, products: float, squares: object, begin: object = None) -> Array:
        return self._rounded(total if begin is None else total + begin)


def expectation(case: Case, dtype: str) -> Expected:
    return in_format(case, read_golden(case, read_golden_manifest(), constants()), FORMATS[dtype])


def judged(case: Case, dtype: str, **norm: float) -> Verdict:
    layer = case.layer.model_copy(update={"norm": case.layer.norm.model_copy(update=norm)})
    with np.errstate(all="ignore"):
        found = forward(layer, given(case), Rounding(NARROW[dtype]))
    check: Check = "stages" if "stages" in case.situation.checks else "output"
    names = stages(case.layer) if check == "stages" else ("output",)
    observed = {name: found[name].astype(NARROW[dtype]) for name in names}
    return judge(check, names, observed, expectation(case, dtype), FORMATS[dtype])


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("case", daily(CASES[::9], CASES), ids=lambda case: case.id)
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


RELUS = [case for case in CASES if case.layer.feed_forward.activation == "relu"]


def pushed(case: Case, dtype: str, sigmas: float) -> dict[str, Array]:
    """The hidden layer and its ReLU, as rounded, where noise pushes every hidden unit upwards by so many of its σ."""
    expected = measured(case, dtype)
    hidden = forward(case.layer, given(case), Arithmetic(np.float64))["ffn_hidden"]
    noisy = hidden + sigmas * FORMATS[dtype].roundoff * expected["ffn_hidden"]
    return {"ffn_hidden": noisy, "ffn_activation": np.maximum(noisy, 0)}


def measured(case: Case, dtype: str) -> Mapping[str, Array]:
    return measured_condition(case, FORMATS[dtype].roundoff)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("case", RELUS, ids=lambda case: case.id)
def test_a_relu_is_no_further_off_than_its_input(case: Case, dtype: str) -> None:
    """Rule C-7: noise of 4 σ that crosses the kink, which none of 16 runs may have done."""
    expected = expectation(case, dtype)
    for name, value in pushed(case, dtype, 4.0).items():
        tensor = expected.tensors[name]
        verdict = judge_tensor(name, value.astype(NARROW[dtype]), tensor, FORMATS[dtype])
        assert verdict.max is not None
        assert verdict.max <= constants().max_limit, verdict


def test_a_relu_that_is_clear_of_its_kink_keeps_its_condition() -> None:
    """A leak shows where it is far below the input's own noise."""
    u = 2.0**-8
    stages = {"ffn_hidden": np.array([-20.5, -19.5, -0.1, 0.0, 0.1, 19.5, 20.5]) * u}
    condition = {"ffn_hidden": np.full(7, 2.0), "ffn_activation": np.array([0, 0, 0, 0, 1.5, 3.0, 1.5])}
    found = condition_at_kinks(RELUS[0].layer, stages, condition, u)
    assert found["ffn_activation"].tolist() == [0, 2, 2, 2, 2, 3, 1.5]
    assert found["ffn_hidden"] is condition["ffn_hidden"]


def test_another_activation_has_no_kink() -> None:
    case = next(case for case in CASES if case.layer.feed_forward.activation == "gelu")
    condition = {"ffn_hidden": np.ones(3), "ffn_activation": np.zeros(3)}
    assert condition_at_kinks(case.layer, {"ffn_hidden": np.zeros(3)}, condition, 2.0**-8) == condition


def test_the_margin_of_a_kink_is_the_largest_error_that_conforms() -> None:
    assert constants().max_limit == MARGIN
