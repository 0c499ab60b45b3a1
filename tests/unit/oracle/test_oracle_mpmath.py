"""The oracle against a second evaluation of specs/README.md: mpmath at 50 digits, on sizes that it can afford."""

from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf
from products import daily, of_a_release

from encoder_conformance.oracle import arithmetic as special
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.condition import Expectation, expectation
from encoder_conformance.oracle.encoder import evaluate
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import load
from encoder_conformance.spec.masking import EndPadding
from encoder_conformance.spec.situation import Situation

Array = np.ndarray[Any, Any]
U64 = 2.0**-53
SMALLEST_NORMAL = 2.0**-1022
U_LONG = float(np.finfo(np.longdouble).eps) / 2
RUNS = 32
REGIMES: dict[str, dict[str, Any]] = {
    "ordinary": {"pattern": "symmetric", "exponent": -7},
    "large-mean": {"pattern": "offset", "exponent": 5},
    "low-variance": {"pattern": "symmetric", "exponent": -16},
    "large-logits": {"pattern": "symmetric", "exponent": -7, "query_exponent": 6},
}


@pytest.fixture(autouse=True)
def _fifty_digits() -> Any:
    with mp.workdps(50):
        yield


def tiny(
    placement: str,
    activation: str,
    lengths: tuple[int, ...] | None,
    causal: bool = False,
    pattern: str = "symmetric",
    exponent: int = -7,
    query_exponent: int = 0,
) -> Case:
    layer = {
        **load().layers["pre-gelu"].model_dump(),
        "layer": "tiny",
        "d_model": 6,
        "norm": {"placement": placement, "kind": "layer_norm", "epsilon": 1e-5},
        "attention": {
            "num_heads": 2,
            "projections": "full",
            "qkv_bias": True,
            "output_bias": True,
            "scale": "head_dim",
            "masked_score": "minus_infinity",
            "fully_masked_row": "unspecified",
        },
        "feed_forward": {"d_ff": 5, "activation": activation, "bias": True},
    }
    situation = {
        **load().situations["no-mask"].model_dump(),
        "situation": "tiny",
        "batch": 3,
        "sequence": 4,
        "input": {"pattern": pattern, "exponent": exponent, "padding": "as_drawn"},
        "parameter_exponents": {"attention.query.weight": query_exponent} if query_exponent else {},
        "mask": {
            "padding": {"kind": "right", "lengths": lengths} if lengths else None,
            "attention": {"kind": "causal"} if causal else None,
            "bias": None,
        },
        "checks": ("output", "stages", "gradients"),
    }
    return Case(Layer.model_validate(layer), Situation.model_validate(situation))


def mp_array(values: Array) -> Array:
    """Long doubles too, exactly: a float64 and what it leaves over."""
    high = np.asarray(values).astype(np.float64)
    low = (values - high).astype(np.float64)
    made = np.empty(high.shape, dtype=object)
    for i in np.ndindex(*high.shape):
        made[i] = mpf(float(high[i])) + mpf(float(low[i]))
    return made


def each(function: Any, values: Array) -> Array:
    made = np.empty(values.shape, dtype=object)
    for i in np.ndindex(*values.shape):
        made[i] = function(values[i])
    return made


def by_hand(case: Case) -> dict[str, Array]:
    """Every stage at its valid rows, as the equations of specs/README.md have it; what they leave open stays None."""
    B, S, D = case.situation.batch, case.situation.sequence, case.layer.d_model
    H = case.layer.attention.num_heads
    d = D // H
    parameter = {name: mp_array(value) for name, value in case.parameters().items()}
    epsilon = mpf(9.999999747378752e-06)  # L-2: the float32 nearest to 1e-5
    padding, causal = case.situation.mask.padding, case.situation.mask.attention is not None
    lengths = padding.lengths if isinstance(padding, EndPadding) else (S,) * B
    stage: dict[str, Array] = {}

    def norm(name: str, x: Array) -> Array:
        made = np.empty(x.shape, dtype=object)
        for b, s in np.ndindex(B, S):
            mean = mpmath.fsum(x[b, s]) / D
            variance = mpmath.fsum((v - mean) ** 2 for v in x[b, s]) / D
            made[b, s] = (x[b, s] - mean) / mpmath.sqrt(variance + epsilon)
        stage[name] = made * parameter[f"{name}.gain"] + parameter[f"{name}.shift"]
        return stage[name]

    def linear(name: str, x: Array) -> Array:
        return x @ parameter[f"{name}.weight"] + parameter[f"{name}.bias"]

    def attention(x: Array) -> Array:
        for name in ("query", "key", "value"):
            stage[name] = linear(f"attention.{name}", x)
            heads = [stage[name][:, :, h * d : (h + 1) * d] for h in range(H)]
            stage[f"{name}_heads"] = np.stack(heads, axis=1)
        q, k, v = (stage[f"{name}_heads"] for name in ("query", "key", "value"))
        scores, weights, context = (np.empty(shape, dtype=object) for shape in ((B, H, S, S),) * 2 + ((B, H, S, d),))
        for b, h, i in np.ndindex(B, H, S):
            scores[b, h, i] = [mpmath.fdot(q[b, h, i], k[b, h, j]) / mpmath.sqrt(d) for j in range(S)]
            keys = [j < lengths[b] and (j <= i or not causal) for j in range(S)]
            raised = [mpmath.exp(scores[b, h, i, j]) if keys[j] else mpf(0) for j in range(S)]
            total = mpmath.fsum(raised)
            weights[b, h, i] = [e / total if total else mpf(0) for e in raised]
            context[b, h, i] = [mpmath.fdot(weights[b, h, i], v[b, h, :, f]) for f in range(d)]
        stage.update(attention_scores=scores, attention_weights=weights, context=context)
        stage["context_merged"] = np.concatenate([context[:, h] for h in range(H)], axis=-1)
        stage["attention_output"] = linear("attention.output", stage["context_merged"])
        return stage["attention_output"]

    def feed_forward(x: Array) -> Array:
        activations = {
            "relu": lambda v: max(v, mpf(0)),
            "gelu": lambda v: v * mpmath.erfc(-v / mpmath.sqrt(2)) / 2,
        }
        stage["ffn_hidden"] = linear("feed_forward.hidden", x)
        stage["ffn_activation"] = each(activations[case.layer.feed_forward.activation], stage["ffn_hidden"])
        stage["ffn_output"] = linear("feed_forward.output", stage["ffn_activation"])
        return stage["ffn_output"]

    x = mp_array(case.x())
    if case.layer.norm.placement == "pre":
        stage["residual1"] = x + attention(norm("norm1", x))
        stage["output"] = stage["residual2"] = stage["residual1"] + feed_forward(norm("norm2", stage["residual1"]))
    else:
        stage["residual1"] = x + attention(x)
        first = norm("norm1", stage["residual1"])
        stage["residual2"] = first + feed_forward(first)
        stage["output"] = norm("norm2", stage["residual2"])
    return stage


@dataclass
class Evaluated:
    """One case, four times over: by hand, in float64, in long double, and as a golden is made."""

    case: Case
    exact: dict[str, Array]
    float64: dict[str, Array]
    long: dict[str, Array]
    expectation: Expectation

    def errors(self, observed: dict[str, Array], name: str) -> Array:
        difference = mp_array(observed[name]) - self.exact[name]
        return np.asarray(np.abs(difference[self.case.compared("stages")[name]]), dtype=np.float64)

    def condition(self, name: str) -> Array:
        return self.expectation.condition[name][self.case.compared("stages")[name]]


@pytest.fixture(scope="module", params=REGIMES)
def regime(request: Any) -> Any:
    return REGIMES[request.param]


MASKS = {
    "no-mask": (None, False),
    "padded": ((3, 1, 4), False),
    "padded-item": ((4, 0, 2), False),
    "causal-padded": ((3, 1, 4), True),
}


@pytest.fixture(scope="module", params=daily(("causal-padded",), MASKS))
def mask(request: Any) -> Any:
    return MASKS[request.param]


@pytest.fixture(scope="module", params=[of_a_release("relu"), "gelu"])
def activation(request: Any) -> Any:
    return request.param


@pytest.fixture(scope="module", params=["pre", "post"])
def evaluated(request: Any, activation: str, mask: Any, regime: dict[str, Any]) -> Evaluated:
    case = tiny(request.param, activation, *mask, **regime)
    with mp.workdps(50):
        exact = by_hand(case)
    float64, long = (evaluate(case, Arithmetic(dtype), None).stages for dtype in (np.float64, np.longdouble))
    return Evaluated(case, exact, float64, long, expectation(case, RUNS))


def test_every_stage_is_evaluated_by_hand(evaluated: Evaluated) -> None:
    shapes = evaluated.case.expected_shapes("stages")
    assert {name: value.shape for name, value in evaluated.exact.items()} == shapes
    assert {name: value.shape for name, value in evaluated.float64.items()} == shapes


def test_float64_is_within_its_own_sigma(evaluated: Evaluated) -> None:
    for name in evaluated.exact:
        error = evaluated.errors(evaluated.float64, name) / sigma(U64, evaluated.condition(name))
        assert np.sqrt(np.mean(error**2)) <= 2, name
        assert error.max() <= 5, name


def test_long_double_is_within_its_own_sigma(evaluated: Evaluated) -> None:
    for name in evaluated.exact:
        error = evaluated.errors(evaluated.long, name) / sigma(U_LONG, evaluated.condition(name))
        assert error.max() <= 8, name


def test_golden_is_the_exact_value_rounded_once(evaluated: Evaluated) -> None:
    for name in evaluated.exact:
        golden = evaluated.expectation.golden[name][evaluated.case.compared("stages")[name]]
        beyond = evaluated.errors(evaluated.expectation.golden, name) - np.spacing(np.abs(golden)) / 2
        assert (beyond / sigma(U_LONG, evaluated.condition(name))).max() <= 8, name


def test_masked_weights_are_exactly_zero_and_the_others_sum_to_one(evaluated: Evaluated) -> None:
    weights = evaluated.expectation.golden["attention_weights"]
    mask = evaluated.case.mask()
    kept = np.broadcast_to(True if mask is None else mask, weights.shape)
    assert np.all(weights[~kept] == 0)
    assert np.all((weights >= 0) & (weights <= 1))
    assert np.allclose(weights.sum(axis=-1), kept.any(axis=-1), rtol=1e-15)


def sigma(roundoff: float, condition: Array) -> Array:
    return np.maximum(roundoff * condition, SMALLEST_NORMAL)


@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_long_double_is_right_to_eighteen_digits(placement: str, activation: str) -> None:
    case = tiny(placement, activation, (3, 1, 4))
    exact, stages = by_hand(case), evaluate(case, Arithmetic(np.longdouble), None).stages
    for name, value in stages.items():
        at = case.compared("stages")[name]
        difference = np.abs(mp_array(value) - exact[name])[at].astype(np.float64)
        assert difference.max() <= 16 * U_LONG * np.abs(value[at]).max(), name


def test_a_padded_item_changes_nothing_in_the_others() -> None:
    """M-4: the oracle's rows of the items beside it are those that it gives without a mask, bit for bit."""
    with_padding = evaluate(tiny("post", "gelu", (4, 0, 4)), Arithmetic(np.longdouble), None).stages["output"]
    without = evaluate(tiny("post", "gelu", None), Arithmetic(np.longdouble), None).stages["output"]
    assert np.array_equal(with_padding[[0, 2]], without[[0, 2]])
    assert not np.array_equal(with_padding[1], without[1])


def erf_points() -> Array:
    step = np.linspace(-8, 8, 2049, dtype=np.longdouble)
    irregular = 8 * np.sin(np.arange(500, dtype=np.longdouble))
    joint = np.nextafter(np.longdouble(7), np.array([0, 9], dtype=np.longdouble))  # where the series ends
    return np.concatenate([step, irregular, joint, -joint])


def test_long_double_erf_over_its_whole_range() -> None:
    x = erf_points()
    exact = each(mpmath.erf, mp_array(x))
    found = special.erf(x)
    assert found.dtype == np.longdouble
    relative = np.abs(mp_array(found) - exact)[x != 0] / np.abs(exact[x != 0])
    assert relative.max() <= 32 * U_LONG
    assert np.array_equal(special.erf(-x), -found)


def test_float64_erf_over_its_whole_range() -> None:
    """SciPy's; rule C-1 allows erf 4 u, and a few elements that are further out would show here."""
    x = erf_points().astype(np.float64)
    found = special.erf(x)
    assert found.dtype == np.float64
    exact = each(mpmath.erf, mp_array(x))
    relative = np.abs(mp_array(found) - exact)[x != 0] / np.abs(exact[x != 0])
    assert relative.max() <= 4 * U64


def test_long_double_erf_at_its_ends() -> None:
    tiny_number = np.longdouble("1e-300")
    x = np.array([0.0, -0.0, np.inf, -np.inf, 1e300, -27.0, tiny_number, -tiny_number], dtype=np.longdouble)
    found = special.erf(x)
    assert found[:6].tolist() == [0, 0, 1, -1, 1, -1]
    assert np.signbit(found[1])
    assert not np.signbit(found[0])
    with mp.workdps(60):
        exact = mp_array(x[6:]) * 2 / mpmath.sqrt(mp.pi)
        assert max(np.abs(mp_array(found[6:]) / exact - 1)) <= 4 * U_LONG
    assert np.isnan(special.erf(np.array([np.nan], dtype=np.longdouble)))[0]
    assert special.erf(np.zeros(0, dtype=np.longdouble)).size == 0
