"""The judge against observations made from a golden: what is right passes, and each way of not comparing is caught."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from catalogue import of_every

from encoder_conformance.judging.verdict import Verdict, judge, judge_tensor
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.encoder import evaluate
from encoder_conformance.oracle.expected import Expected, ExpectedTensor, key
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.load import constants, load
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.parameters import parameters_of
from encoder_conformance.spec.situation import Check
from encoder_conformance.spec.stages import stages

Array = np.ndarray[Any, Any]
CASES = {name: case for name, case in load().with_golden.items() if case.situation.batch}
SMALL = [case for case in CASES.values() if case.layer.d_model <= 64]
DAILY = [*SMALL[::4], CASES["post-relu-512/no-mask"]]
"""A quarter of those of small layers, and one of a large layer, of which positions are drawn; a release takes all."""
LEFT = [CASES[name] for name in sorted({*CASES} - {case.id for case in DAILY})]
CASE = CASES["pre-gelu/padding-right"]
OUTPUT = ("output",)
WEIGHTS = ("attention_weights", "output")


def golden_of(case: Case) -> Expected:
    return read_golden(case, read_golden_manifest(), constants())


GOLDEN = golden_of(CASE)
OUT = GOLDEN.tensors["output"]


def names(case: Case, check: Check) -> tuple[str, ...]:
    inputs = () if case.layer.embedding else ("x",)  # token ids have no gradient
    inputs += ("memory",) if case.layer.takes_memory else ()
    gradients = (*inputs, *(parameter.name for parameter in parameters_of(case.layer)))
    return {"output": OUTPUT, "weights": WEIGHTS, "stages": stages(case.layer), "gradients": gradients}[check]


def full(tensor: ExpectedTensor, values: Array | None = None, dtype: str = "float64", elsewhere: float = 7.0) -> Array:
    """The golden (or other values at its positions) as a whole tensor, the rest filled with what is not compared."""
    made = np.full(tensor.shape, elsewhere, dtype=dtype)
    made.reshape(-1)[tensor.positions] = (tensor.golden if values is None else values).astype(dtype)
    return made


def answer(check: Check, dtype: str = "float64", case: Case = CASE, expected: Expected = GOLDEN) -> dict[str, Array]:
    return {name: full(expected.tensors[key(check, name)], dtype=dtype) for name in names(case, check)}


def judged(
    observed: dict[str, Array],
    check: Check = "output",
    dtype: str = "float64",
    case: Case = CASE,
    expected: Expected = GOLDEN,
) -> Verdict:
    return judge(check, names(case, check), observed, expected, FORMATS[dtype])


def sigma(tensor: ExpectedTensor, dtype: str = "float64") -> Array:
    return np.maximum(FORMATS[dtype].roundoff * tensor.condition, FORMATS[dtype].smallest_normal)


def noise(count: int) -> Array:
    """+1 and −1 by turns of two, so that its root mean square is 1 and its sum nothing."""
    return np.where(np.arange(count) // 2 % 2, -1.0, 1.0)


def itself_passes(case: Case) -> None:
    expected = golden_of(case)
    for check in case.situation.checks:
        verdict = judged(answer(check, case=case, expected=expected), check, case=case, expected=expected)
        assert verdict.outcome is Outcome.PASS, (case.id, verdict.message)
        assert verdict.rms == verdict.max == 0
        assert len(verdict.tensors) == len(names(case, check))


test_every_golden_itself_passes = of_every(DAILY)(itself_passes)
test_every_other_golden_itself_passes = pytest.mark.release(of_every(LEFT)(itself_passes))


def zeros_never_pass(case: Case, dtype: str) -> None:
    expected = golden_of(case)
    for check in case.situation.checks:
        zeros = {name: np.zeros_like(value) for name, value in answer(check, dtype, case, expected).items()}
        verdict = judged(zeros, check, dtype, case, expected)
        assert verdict.outcome is Outcome.FAIL, check
        assert any(tensor.problem for tensor in verdict.tensors) or (verdict.max or 0.0) > 1000


test_an_answer_of_zeros_never_passes = of_every(DAILY, ("float64", "float32"))(zeros_never_pass)
test_an_answer_of_zeros_to_any_other_never_passes = pytest.mark.release(
    of_every(LEFT, ("float64", "float32"))(zeros_never_pass)
)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("size", "conforms"), [(0.5, True), (1.9, True), (2.1, False)])
def test_rms_decides_at_two_sigma(size: float, conforms: bool, dtype: str) -> None:
    tensor = ExpectedTensor((64, 4), np.arange(256), np.zeros(256), np.linspace(1, 2, 256))
    verdict = judge_tensor("x", full(tensor, size * noise(256) * sigma(tensor, dtype), dtype), tensor, FORMATS[dtype])
    assert verdict.conforms is conforms
    assert verdict.rms == pytest.approx(size, rel=1e-6)


@pytest.mark.parametrize(("size", "outcome"), [(0.5, Outcome.PASS), (2.2, Outcome.FAIL)])
def test_noise_on_a_real_golden(size: float, outcome: Outcome) -> None:
    observed = {}
    for name in names(CASE, "stages"):
        tensor = GOLDEN.tensors[name]
        noisy = tensor.golden + size * noise(tensor.golden.size) * sigma(tensor, "float32")
        observed[name] = full(tensor, noisy)
    verdict = judge("stages", stages(CASE.layer), observed, GOLDEN, wide("float32"))
    assert verdict.outcome is outcome
    assert verdict.rms == pytest.approx(size, rel=0.01)


def wide(dtype: str) -> Any:
    """The σ of one dtype for values held in float64, so that rounding them adds no noise to what is tested."""
    made = FORMATS[dtype]
    return type(made)("float64", np.dtype(np.float64), made.roundoff, made.smallest_normal)


@pytest.mark.parametrize(("size", "conforms"), [(9.9, True), (11.0, False), (-11.0, False)])
def test_one_element_decides_at_ten_sigma_and_is_named(size: float, conforms: bool) -> None:
    values, at = OUT.golden.copy(), 37
    values[at] += size * sigma(OUT, "float32")[at]
    verdict = judge("output", OUTPUT, {"output": full(OUT, values)}, GOLDEN, wide("float32"))
    assert verdict.outcome is (Outcome.PASS if conforms else Outcome.FAIL)
    [tensor] = verdict.tensors
    assert tensor.worst_index == tuple(int(i) for i in np.unravel_index(OUT.positions[at], OUT.shape))
    assert tensor.observed == values[at]
    assert tensor.expected == OUT.golden[at]
    assert tensor.max == pytest.approx(abs(size), rel=1e-6)
    assert tensor.rms is not None
    assert tensor.rms <= 2
    if not conforms:
        assert str(list(tensor.worst_index)) in verdict.message
        assert f"{values[at]:.9g} instead of {OUT.golden[at]:.9g}" in verdict.message


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_value_that_is_not_finite_fails_and_is_named(bad: float, dtype: str) -> None:
    observed = answer("output", dtype)
    index = tuple(int(i) for i in np.unravel_index(OUT.positions[5], OUT.shape))
    observed["output"][index] = bad
    verdict = judged(observed, dtype=dtype)
    assert verdict.outcome is Outcome.FAIL
    assert f"{bad:g} at {list(index)}" in verdict.message
    assert "1 of " in verdict.message
    assert verdict.rms is None


@pytest.mark.parametrize("specified", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("given", [np.nan, np.inf, -np.inf, 0.5])
def test_what_is_not_finite_is_met_by_itself_alone(specified: float, given: float) -> None:
    """J-3. A NaN reference must not agree with everything, and does not spare the other elements."""
    golden, values = OUT.golden.copy(), OUT.golden.copy()
    golden[3], values[3] = specified, given
    expected = ExpectedTensor(OUT.shape, OUT.positions, golden, OUT.condition)
    verdict = judge_tensor("output", full(OUT, values), expected, FORMATS["float64"])
    assert verdict.conforms is (repr(specified) == repr(given))
    values[4] += 1
    assert not judge_tensor("output", full(OUT, values), expected, FORMATS["float64"]).conforms


def test_all_nan_never_passes() -> None:
    observed = {name: np.full_like(value, np.nan) for name, value in answer("stages").items()}
    verdict = judged(observed, "stages")
    assert verdict.outcome is Outcome.FAIL
    assert not any(tensor.conforms for tensor in verdict.tensors)


@pytest.mark.parametrize(("asked", "given"), [("float32", "float64"), ("float64", "float32"), ("float32", "float16")])
def test_another_dtype_fails(asked: str, given: str) -> None:
    verdict = judged(answer("output", given), dtype=asked)
    assert verdict.outcome is Outcome.FAIL
    assert f"dtype {given} instead of {asked}" in verdict.message


def float32_inside_fails(case: Case) -> None:
    expected = golden_of(case)
    down = {"output": answer("output", "float32", case, expected)["output"].astype(np.float64)}
    verdict = judged(down, case=case, expected=expected)
    assert verdict.outcome is Outcome.FAIL
    assert verdict.rms is not None
    assert verdict.rms > 1e4


test_float32_inside_a_float64_answer_fails_by_number = of_every(DAILY)(float32_inside_fails)
test_it_does_in_every_other_case = pytest.mark.release(of_every(LEFT)(float32_inside_fails))


@pytest.mark.parametrize(
    "shape",
    [
        (2, 10),
        (1, 10, 24),
        (2, 1, 24),
        (2, 10, 1),
        (1,),
        (),
        (2, 9, 24),
        (480,),
        (2, 24, 10),
        (10, 2, 24),
        (1, 2, 10, 24),
    ],
    ids=str,
)
def test_another_shape_fails_even_if_it_could_be_broadcast(shape: tuple[int, ...]) -> None:
    verdict = judged({"output": np.resize(full(OUT), shape)})
    assert verdict.outcome is Outcome.FAIL
    assert f"shape {list(shape)} instead of [2, 10, 24]" in verdict.message
    assert verdict.rms is None


def test_a_transposed_weight_gradient_fails_though_its_shape_is_right() -> None:
    for name in ("query", "key", "value", "output"):
        observed = answer("gradients")
        observed[f"attention.{name}.weight"] = observed[f"attention.{name}.weight"].T
        verdict = judged(observed, "gradients")
        assert verdict.stage == f"attention.{name}.weight"


def test_a_missing_or_unasked_tensor_is_an_error() -> None:
    observed = answer("stages")
    del observed["key_heads"]
    verdict = judged(observed, "stages")
    assert verdict.outcome is Outcome.ERROR
    assert "missing key_heads" in verdict.message
    verdict = judged({**answer("output"), "bonus": np.zeros(3)})
    assert verdict.outcome is Outcome.ERROR
    assert "not asked for bonus" in verdict.message
    assert judged({}).outcome is Outcome.ERROR
    assert judged({"outputs": full(OUT)}).outcome is Outcome.ERROR


def test_to_be_asked_for_nothing_is_no_pass() -> None:
    assert judge("stages", (), {}, GOLDEN, FORMATS["float64"]).outcome is Outcome.ERROR


def test_only_the_stages_that_are_shown_are_judged() -> None:
    shown = ("norm1", "output")
    observed = {name: value for name, value in answer("stages").items() if name in shown}
    verdict = judge("stages", shown, observed, GOLDEN, FORMATS["float64"])
    assert verdict.outcome is Outcome.PASS
    assert [tensor.tensor for tensor in verdict.tensors] == list(shown)


@pytest.mark.parametrize("problem", ["number", "nan", "shape"])
def test_the_first_stage_out_of_line_is_named_and_not_the_furthest(problem: str) -> None:
    observed = answer("stages")
    observed["output"] = observed["output"] + 1e6
    observed["ffn_hidden"] = observed["ffn_hidden"] + 1e3
    first = observed["value_heads"]
    observed["value_heads"] = {"number": first + 1e-9, "nan": first * np.nan, "shape": first[..., :-1]}[problem]
    verdict = judged(dict(reversed(observed.items())), "stages")
    assert verdict.outcome is Outcome.FAIL
    assert verdict.stage == "value_heads"
    assert verdict.message.startswith("value_heads: ")
    assert [tensor.tensor for tensor in verdict.tensors if not tensor.conforms] == [
        "value_heads",
        "ffn_hidden",
        "output",
    ]


@pytest.mark.parametrize("held", [0.0, 1e30, np.nan, np.inf])
def test_padded_positions_are_ignored_whatever_they_hold(held: float) -> None:
    observed = {name: full(GOLDEN.tensors[name], elsewhere=held) for name in names(CASE, "stages")}
    assert any(np.count_nonzero(~np.isfinite(value)) for value in observed.values()) is not np.isfinite(held)
    assert judged(observed, "stages").outcome is Outcome.PASS


def test_the_last_valid_position_counts_and_the_first_padded_one_does_not() -> None:
    """Lengths 8 and 6: a comparison that leaves out the last token would miss the first of these."""
    for item, length in enumerate(CASE.valid().sum(axis=1)):
        for position, outcome in ((length - 1, Outcome.FAIL), (length, Outcome.PASS)):
            observed = answer("output")
            observed["output"][item, position] += 1
            assert judged(observed).outcome is outcome, (item, position)


def test_the_right_sum_of_wrong_elements_fails() -> None:
    """Neither a sum of differences nor the sorted values are looked at."""
    values = OUT.golden[::-1]
    assert values.sum() == pytest.approx(OUT.golden.sum())
    assert judged({"output": full(OUT, values)}).outcome is Outcome.FAIL
    down = OUT.golden - 1  # (observed − golden).sum() is far below any tolerance
    assert judged({"output": full(OUT, down)}).outcome is Outcome.FAIL
    apart = OUT.golden + noise(OUT.golden.size)
    assert apart.sum() == pytest.approx(OUT.golden.sum())
    assert judged({"output": full(OUT, apart)}).outcome is Outcome.FAIL


def test_the_answer_of_another_case_fails() -> None:
    of_layer = [case for case in CASES.values() if case.layer.layer == CASE.layer.layer]
    answers = {case.id: evaluate(case, Arithmetic(np.float64), None).stages["output"] for case in of_layer}
    goldens = {case.id: golden_of(case) for case in of_layer}
    for before, case in permutations(of_layer, 2):
        if case.situation.situation == "full-and-padded-item" and case.x_shape == before.x_shape:
            continue  # compares one item, of full length, which is as it is without a mask
        verdict = judged({"output": answers[before.id]}, case=case, expected=goldens[case.id])
        assert verdict.outcome is Outcome.FAIL, (before.id, case.id)
