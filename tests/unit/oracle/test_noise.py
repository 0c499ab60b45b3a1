"""Rounding noise (rules C-1 to C-4): drawn as the specification says, as large as real rounding, and so a fair unit."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.special
from catalogue import of_every

from encoder_conformance.judging.simulate import simulate_with_noise
from encoder_conformance.judging.verdict import Verdict, judge, judge_tensor
from encoder_conformance.oracle.arithmetic import Arithmetic, Rounded
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.condition import SAMPLE_ROUNDOFF, Spread, expectation
from encoder_conformance.oracle.encoder import evaluate
from encoder_conformance.oracle.expected import ExpectedTensor
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.spec import portable
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.load import constants, load
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.stages import stages
from tools.core.criteria import LARGEST

Array = np.ndarray[Any, Any]
CASES = {
    name: case
    for name, case in load().with_golden.items()
    if "stages" in case.situation.checks and not case.layer.is_stack
}
MANIFEST = read_golden_manifest()
NO_ROWS = np.zeros((0, 2), dtype=np.int64)


def keyed(case: Case, arithmetic: Arithmetic) -> dict[str, Array]:
    evaluation = evaluate(case, arithmetic, case.cotangent(NO_ROWS))
    return {**evaluation.stages, **{f"gradient.{name}": value for name, value in evaluation.gradients.items()}}


def raw_condition(case: Case, roundoff: float, runs: int) -> dict[str, Array]:
    """κ before it is smoothed, written down from rule C-3."""
    undisturbed = keyed(case, Arithmetic(np.float64))
    squares = {name: np.zeros(value.shape) for name, value in undisturbed.items()}
    for run in range(runs):
        for name, value in keyed(case, Rounded(roundoff, run)).items():
            squares[name] += ((value - undisturbed[name]) / roundoff) ** 2
    return {name: np.sqrt(total / runs) for name, total in squares.items()}


def test_one_run_number_gives_the_same_bits_and_another_gives_others() -> None:
    case = CASES["pre-gelu/padding-right"]
    first, again, other = (keyed(case, Rounded(2.0**-24, run)) for run in (3, 3, 4))
    for name, value in first.items():
        assert value.tobytes() == again[name].tobytes(), name
        assert value.tobytes() != other[name].tobytes(), name


def test_disturbances_are_those_of_the_rule() -> None:
    """C-2: δ = (output · 2⁻⁶³ − 1) u, seeded from "noise RUN OPERATION", operations counted from 0."""
    u = 2.0**-10
    arithmetic = Rounded(u, 7)
    for operation in range(3):
        found = arithmetic.add(np.zeros((2, 3)), np.ones((2, 3)))
        outputs = portable.splitmix64(portable.seed(f"noise 7 {operation}"), 6).tolist()
        delta = [(float(output) * 2.0**-63 - 1) * u for output in outputs]
        assert found.reshape(-1).tolist() == [1 + d for d in delta]
        assert max(map(abs, delta)) <= u


@pytest.mark.parametrize("name", ["exp", "log", "erf"])
def test_elementary_functions_are_allowed_four_units(name: str) -> None:
    x = np.full(1000, 0.7)
    plain = Rounded(2.0**-10, 1).add(np.zeros(1000), np.ones(1000)) - 1
    value = {"exp": np.exp, "log": np.log, "erf": scipy.special.erf}[name](x)
    found = getattr(Rounded(2.0**-10, 1), name)(x)
    assert np.allclose(found / value - 1, 4 * plain, rtol=1e-9)


@pytest.mark.parametrize("layer", ["pre-gelu", "post-relu"])
def test_condition_does_not_depend_on_the_roundoff_it_is_measured_with(layer: str) -> None:
    case = CASES[f"{layer}/padding-right"]
    full, half = (raw_condition(case, u, 8) for u in (2.0**-32, 2.0**-33))
    for name, condition in full.items():
        assert np.allclose(half[name], condition, rtol=1e-3, atol=1e-3 * condition.max()), name


def test_condition_is_the_root_mean_square_smoothed_along_features() -> None:
    """C-3, by hand: weights 1 2 1 over 4, the end elements repeated; not where the last axis counts keys. Where errors
    are few independent numbers (C-8), the same for all of a tensor: times one number of at least 1."""
    case = CASES["post-relu/single-item"]
    raw, smooth = raw_condition(case, 2.0**-32, 4), expectation(case, 4).condition
    assert raw.keys() == smooth.keys()
    for name, condition in raw.items():
        if name.startswith(("gradient.attention.query", "gradient.attention.key")):  # which C-6 may enlarge
            continue
        expected = condition
        if name not in ("attention_scores", "attention_weights"):
            squares, last = condition**2, condition.shape[-1] - 1
            left, right = [max(i - 1, 0) for i in range(last + 1)], [min(i + 1, last) for i in range(last + 1)]
            expected = np.sqrt((squares[..., left] + 2 * squares + squares[..., right]) / 4)
        assert np.array_equal(smooth[name] > 0, expected > 0), name
        times = smooth[name][expected > 0] / expected[expected > 0]
        assert times.min() > 1 - 1e-12, name
        assert np.allclose(times, times[0], rtol=1e-12), name
        if not name.startswith("gradient"):
            assert np.allclose(times, 1, rtol=1e-12), name


def test_a_softmax_weight_of_1e_190_has_noise_too() -> None:
    """The square of what displaces it is below the smallest float64; seed 2 of post-gelu/large-logits has some."""
    case = replace(CASES["post-gelu/large-logits"], seed=2)
    found = expectation(case, 16)
    golden, condition = found.golden["attention_weights"], found.condition["attention_weights"]
    tiny = (golden > 1e-280) & (golden < 1e-150)
    assert tiny.any()
    # By the softmax's own derivative its relative noise is about that of the score, which is a few hundred: −ln 1e-190.
    relative = condition[tiny] / golden[tiny]
    assert relative.min() > 10
    assert relative.max() < 1e5


def test_so_it_has_in_a_layer_that_deviates() -> None:
    """What is declared is judged by the patched layer's own condition (V-5), and its weights are as small."""
    case = replace(CASES["post-gelu/large-logits"], seed=2)
    for patched in ([], [catalogue()["norm-eps-1e-3"]]):
        golden, condition = (found["attention_weights"] for found in simulate_with_noise(case, patched))
        tiny = (golden > 1e-280) & (golden < 1e-150)
        assert tiny.any()
        assert (condition[tiny] / golden[tiny]).min() > 10


def test_a_layer_without_deviations_has_the_condition_of_the_right_one() -> None:
    """The same operations, disturbed by the same draws."""
    case = CASES["pre-gelu/padding-right"]
    _, condition = simulate_with_noise(case, ())
    right = expectation(case, 24).condition
    assert len(condition) >= 19
    for name, value in condition.items():
        rows = np.broadcast_to(case.compared("stages")[name], value.shape)
        assert np.allclose(value[rows], right[name][rows], rtol=1e-6), name


def test_a_last_axis_shorter_than_three_is_not_smoothed() -> None:
    case = CASES["pre-gelu/single-position"]
    layer = case.layer.model_copy(
        update={"d_model": 2, "attention": case.layer.attention.model_copy(update={"num_heads": 1})}
    )
    short = Case(layer, case.situation)
    raw, smooth = raw_condition(short, 2.0**-32, 4), expectation(short, 4).condition
    assert np.allclose(smooth["query"], raw["query"], rtol=1e-12)
    assert not np.allclose(smooth["ffn_hidden"], raw["ffn_hidden"], rtol=1e-3)


def data(name: str, rows: int, terms: int, one_signed: bool) -> Array:
    """Portable numbers spread over [−1, 1] or [0, 1], each with as many bits as float32 has."""
    bits = portable.splitmix64(portable.seed(f"{name} {terms}"), rows * terms).astype(np.float64).reshape(rows, terms)
    spread = bits * 2.0**-64 if one_signed else bits * 2.0**-63 - 1
    return spread.astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("one_signed", [True, False], ids=["one-signed", "random"])
@pytest.mark.parametrize("terms", [2, 8, 64, 512])
def test_a_sums_disturbance_is_as_large_as_a_recursive_sums_error(terms: int, one_signed: bool) -> None:
    x = data("terms", 2000, terms, one_signed)
    actual = np.add.accumulate(x.astype(np.float32), axis=-1)[:, -1].astype(np.float64) - x.sum(axis=-1)
    modelled = Rounded(2.0**-24, 0).sum(x, -1, keepdims=False) - x.sum(axis=-1)
    assert 1 / 3 < rms(modelled) / rms(actual) < 3


@pytest.mark.parametrize("one_signed", [True, False], ids=["one-signed", "random"])
@pytest.mark.parametrize("terms", [2, 8, 64, 512])
def test_a_matrix_products_disturbance_is_as_large_as_a_recursive_ones_error(terms: int, one_signed: bool) -> None:
    x, y = data("left", 40, terms, one_signed), data("right", 50, terms, one_signed).T
    exact = np.asarray(x, dtype=np.longdouble) @ y
    actual = recursive_matmul(x.astype(np.float32), y.astype(np.float32)) - exact
    modelled = Rounded(2.0**-24, 0).matmul(x, y) - x @ y
    assert 1 / 3 < rms(modelled) / rms(actual) < 3


def test_a_mean_is_a_sum_and_a_division() -> None:
    x = data("terms", 2000, 64, True)
    found = Rounded(2.0**-10, 5).mean(x)
    by_hand = Rounded(2.0**-10, 5)
    assert np.array_equal(found, by_hand.divide(by_hand.sum(x, -1), np.asarray(64.0)))
    assert found.shape == (2000, 1)


@pytest.mark.parametrize("dtype", FORMATS.values(), ids=FORMATS)
def test_sigma_is_never_below_the_smallest_normal_number(dtype: Any) -> None:
    expected = ExpectedTensor((3,), np.arange(3), np.zeros(3), np.array([0.0, 0.0, 1.0]))
    smallest = ml_dtypes.finfo(dtype.numpy).tiny
    flushed = judge_tensor("x", np.array([smallest, 0, 0], dtype=dtype.numpy), expected, dtype)
    assert flushed.conforms
    assert flushed.sigma == smallest
    assert flushed.max == 1
    leaked = judge_tensor("x", np.array([smallest * 100, 0, 0], dtype=dtype.numpy), expected, dtype)
    assert not leaked.conforms
    ordinary = judge_tensor("x", np.array([0, 0, 1], dtype=dtype.numpy), expected, dtype)
    assert ordinary.sigma == dtype.roundoff == ml_dtypes.finfo(dtype.numpy).eps / 2


def rms(x: Array) -> float:
    return float(np.sqrt(np.mean(np.square(x, dtype=np.float64))))


def recursive_matmul(x: Array, y: Array) -> Array:
    """One product after another, each rounded: the sum that the condition is made for."""
    total = x[..., :, 0, None] * y[..., None, 0, :]
    for k in range(1, x.shape[-1]):
        total += x[..., :, k, None] * y[..., None, k, :]
    return np.asarray(total)


def bias_last(x: Array, weight: Array, bias: Array) -> Array:
    return np.asarray(recursive_matmul(x, weight) + bias)


def bias_first(x: Array, weight: Array, bias: Array) -> Array:
    """The products are added onto the bias, as a BLAS does that is given it as the matrix to accumulate onto."""
    total = np.broadcast_to(bias, (*x.shape[:-1], len(bias))).copy()
    for k in range(x.shape[-1]):
        total += x[..., k, None] * weight[k]
    return total


def forward(
    case: Case,
    dtype: Any,
    matmul: Callable[[Array, Array], Array] = recursive_matmul,
    affine: Callable[[Array, Array, Array], Array] = bias_last,
) -> dict[str, Array]:
    """An implementation of specs/README.md that a person might write: plain NumPy, in `dtype` throughout."""
    B, S, D = case.x_shape
    H = case.layer.attention.num_heads
    p = {name: value.astype(dtype) for name, value in case.parameters().items()}
    mask = case.mask()
    out: dict[str, Array] = {}

    def norm(name: str, x: Array) -> None:
        if case.layer.norm.kind == "rms_norm":
            square = np.add.accumulate(x * x, axis=-1)[..., -1:] / dtype(D)
            out[name] = x / np.sqrt(square + dtype(case.layer.norm.epsilon)) * p[f"{name}.gain"]
            return
        mean = np.add.accumulate(x, axis=-1)[..., -1:] / dtype(D)
        variance = np.add.accumulate((x - mean) ** 2, axis=-1)[..., -1:] / dtype(D)
        normal = (x - mean) / np.sqrt(variance + dtype(case.layer.norm.epsilon))
        out[name] = normal * p[f"{name}.gain"] + p[f"{name}.shift"]

    def linear(name: str, x: Array) -> Array:
        weight = p[f"{name}.weight"]
        slices = x.reshape(*x.shape[:2], -1, len(weight))  # one, or one for each head that shares the map
        bias = p.get(f"{name}.bias", np.zeros(weight.shape[1], dtype))
        return affine(slices, weight, bias).reshape(*x.shape[:2], -1)

    def attention(x: Array, memory: Array) -> Array:
        for name, taken in (("query", x), ("key", memory), ("value", memory)):
            out[name] = linear(f"attention.{name}", taken)
            out[f"{name}_heads"] = np.moveaxis(out[name].reshape(B, -1, H, D // H), 2, 1)
        q, k, v = (out[f"{name}_heads"] for name in ("query", "key", "value"))
        size = D if case.layer.attention.scale == "d_model" else D // H
        scores = out["attention_scores"] = matmul(q, np.swapaxes(k, 2, 3)) / np.sqrt(dtype(size))
        if (bias := case.attention_bias()) is not None:
            scores = scores + bias.astype(dtype)
        filled, empty_row = case.layer.attention.masked_score, case.layer.attention.fully_masked_row
        kept = scores if mask is None else np.where(mask, scores, dtype(-1e30 if isinstance(filled, str) else filled))
        raised = np.exp(kept - kept.max(axis=-1, keepdims=True))
        weights = raised / np.add.accumulate(raised, axis=-1)[..., -1:]  # a row with no key is uniform
        if mask is not None and empty_row in ("zero", "nan"):
            given = dtype(0 if empty_row == "zero" else np.nan)
            weights = np.where(mask.any(axis=-1, keepdims=True), weights, given)
        out["attention_weights"] = weights
        out["context"] = matmul(out["attention_weights"], v)
        out["context_merged"] = np.moveaxis(out["context"], 1, 2).reshape(B, S, D)
        out["attention_output"] = linear("attention.output", out["context_merged"])
        return out["attention_output"]

    def feed_forward(x: Array) -> Array:
        hidden = out["ffn_hidden"] = linear("feed_forward.hidden", x)
        half, cubic, root = dtype(0.5), dtype(0.044715), dtype(np.sqrt(2 / np.pi))
        match case.layer.feed_forward.activation:
            case "gelu":
                hidden = hidden * half * (1 + scipy.special.erf(hidden * dtype(np.sqrt(0.5))))
            case "gelu_tanh":
                hidden = half * hidden * (1 + np.tanh(root * (hidden + cubic * hidden * hidden * hidden)))
            case "silu":
                hidden = hidden / (1 + np.exp(-hidden))
            case "quick_gelu":
                hidden = hidden / (1 + np.exp(-dtype(1.702) * hidden))
            case "relu":
                hidden = np.maximum(hidden, 0)
        out["ffn_activation"] = hidden
        out["ffn_output"] = linear("feed_forward.output", hidden)
        return out["ffn_output"]

    x = case.x().astype(dtype)
    if (memory := case.memory()) is not None:
        out["output"] = attention(x, memory.astype(dtype))
    elif case.layer.norm.placement == "pre":
        norm("norm1", x)
        out["residual1"] = x + attention(out["norm1"], out["norm1"])
        norm("norm2", out["residual1"])
        out["output"] = out["residual2"] = out["residual1"] + feed_forward(out["norm2"])
    else:
        out["residual1"] = x + attention(x, x)
        norm("norm1", out["residual1"])
        out["residual2"] = out["norm1"] + feed_forward(out["norm1"])
        norm("norm2", out["residual2"])
        out["output"] = out["norm2"]
    return out


def judged(case: Case, observed: dict[str, Array], dtype: str) -> Verdict:
    expected = read_golden(case, MANIFEST, constants())
    return judge("stages", stages(case.layer), observed, expected, FORMATS[dtype])


WRITTEN_OUT = {"quick_gelu", "biases"}
"""What the recursive pass of this file has of the language's additions."""
SMALL_CASES = [
    case for case in CASES.values() if case.layer.d_model <= LARGEST and {*case.layer.additions} <= WRITTEN_OUT
]
LARGE_CASES = [case for case in CASES.values() if case.layer.d_model > LARGEST]


def conforms(case: Case, dtype: Any, affine: Any) -> None:
    verdict = judged(case, forward(case, dtype, affine=affine), np.dtype(dtype).name)
    assert verdict.outcome is Outcome.PASS, verdict.message
    assert verdict.rms is not None
    assert 0.01 < verdict.rms <= 2


EACH_PASS = (np.float32, np.float64), (bias_last, bias_first)
test_an_honest_recursive_forward_pass_conforms = of_every(SMALL_CASES[::3], *EACH_PASS)(conforms)
test_that_of_any_other_small_case_conforms = pytest.mark.release(
    of_every([case for place, case in enumerate(SMALL_CASES) if place % 3], *EACH_PASS)(conforms)
)
test_one_of_a_large_layer_conforms_too = pytest.mark.release(of_every(LARGE_CASES, *EACH_PASS)(conforms))


def is_quieter(case: Case) -> None:
    verdict = judged(case, forward(case, np.float32, np.matmul, lambda x, w, b: x @ w + b), "float32")
    assert verdict.outcome is Outcome.PASS, verdict.message


test_blas_is_quieter_than_a_recursive_sum = of_every(SMALL_CASES)(is_quieter)
test_so_it_is_in_large_layers = pytest.mark.release(of_every(LARGE_CASES)(is_quieter))


@pytest.mark.parametrize(
    ("case", "patch", "least"),
    [
        ("pre-gelu/low-variance", {"epsilon": 1e-3}, 1e5),
        ("pre-gelu/low-variance", {"epsilon": 1e-6}, 1e5),
        ("pre-gelu/no-mask", {"epsilon": 1e-3}, 1e3),
        ("post-gelu/no-mask", {"activation": "relu"}, 1e4),
        ("post-gelu/no-mask", {"placement": "pre"}, 1e5),
        ("pre-gelu/no-mask", {"num_heads": 4}, 1e4),
    ],
    ids=lambda value: "-".join(f"{k}-{v}" for k, v in value.items()) if isinstance(value, dict) else None,
)
def test_a_wrong_choice_is_far_beyond_noise_in_float32(case: str, patch: dict[str, Any], least: float) -> None:
    right = CASES[case]
    parts: dict[str, Any] = {}
    for field in ("norm", "attention", "feed_forward"):
        part = getattr(right.layer, field)
        parts[field] = part.model_copy(update={k: v for k, v in patch.items() if k in type(part).model_fields})
    wrong = Case(right.layer.model_copy(update=parts), right.situation)
    expected = read_golden(right, MANIFEST, constants())
    output = {"output": forward(wrong, np.float32)["output"]}
    verdict = judge("output", ("output",), output, expected, FORMATS["float32"])
    assert verdict.outcome is Outcome.FAIL
    assert verdict.max is not None
    assert verdict.max > least


def test_the_noise_of_next_to_no_gradient_of_a_bucket_is_not_lost() -> None:
    """Its square is below the smallest float64. The rows of other buckets keep every bit of theirs."""
    name, relative = "gradient.attention.position_bias.table", 1e-12
    golden = np.array([[3e-268, 5e-268, 2e-270, 4e-268], [0.5, 0.25, 0.75, 1.0]])
    spreads = Spread({name: golden}), Spread({"gradient.norm1.gain": golden[1]})
    for sign in np.array([1.0, -1.0] * 8):
        spreads[0].add({name: golden * (1 + sign * relative)})
        spreads[1].add({"gradient.norm1.gain": golden[1] * (1 + sign * relative)})
    of_buckets, alone = spreads[0].root_mean_squares()[name], spreads[1].root_mean_squares()["gradient.norm1.gain"]
    assert (of_buckets[0] > 0.5 * relative * golden[0] / SAMPLE_ROUNDOFF).all()
    assert (of_buckets[0] < 200 * relative * golden[0].max() / SAMPLE_ROUNDOFF).all()
    np.testing.assert_array_equal(of_buckets[1], alone)
