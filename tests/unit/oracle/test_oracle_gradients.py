"""The oracle's hand-written gradients against central differences in long double, element by element."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from products import of_a_release

from encoder_conformance.oracle.arithmetic import Arithmetic, Rounded
from encoder_conformance.oracle.condition import expectation
from encoder_conformance.oracle.encoder import evaluate
from encoder_conformance.oracle.inputs import LayerInputs
from encoder_conformance.oracle.kinks import kinked_rows
from encoder_conformance.oracle.play import Play
from encoder_conformance.oracle.tape import Tape
from encoder_conformance.spec import portable
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import load
from encoder_conformance.spec.plan import plan
from encoder_conformance.spec.situation import Situation

Array = np.ndarray[Any, Any]
NO_ROWS = np.zeros((0, 2), dtype=np.int64)
STEP = np.longdouble(2) ** -14
KINKED: dict[str, Any] = {"d_ff": 8, "batch": 3, "sequence": 5, "pattern": "offset", "exponent": 9}
"""In a pre-norm layer with ReLU, an input of mean 130 000: one row of the hidden layer stands on a kink."""


class OnAKink(Case):
    """x is 254 or 255 with even odds, times a power of two: a mean so far off that hidden units come near zero."""

    def x(self) -> Array:
        n = portable.integers("x", int(np.prod(self.x_shape)))
        return np.ldexp((254 + n % 2).astype(np.float64), self.situation.input.exponent).reshape(self.x_shape)


def tiny(
    placement: str,
    activation: str,
    lengths: tuple[int, ...] | None = None,
    choices: Mapping[str, dict[str, Any]] = MappingProxyType({}),
    *,
    blind: tuple[tuple[int, ...], ...] | None = None,
    d_ff: int = 5,
    batch: int = 2,
    sequence: int = 3,
    pattern: str = "symmetric",
    exponent: int = -7,
    checks: tuple[str, ...] = ("output", "stages", "gradients"),
) -> Case:
    layer: dict[str, Any] = {
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
        "feed_forward": {"d_ff": d_ff, "activation": activation, "bias": True},
    }
    for part, chosen in choices.items():
        layer[part] = {**layer[part], **chosen} if isinstance(chosen, dict) else chosen
    situation = {
        **load().situations["no-mask"].model_dump(),
        "situation": "tiny",
        "batch": batch,
        "sequence": sequence,
        "input": {"pattern": pattern, "exponent": exponent, "padding": "as_drawn"},
        "parameter_exponents": {},
        "mask": {
            "padding": {"kind": "right", "lengths": lengths} if lengths else None,
            "attention": {"kind": "blind", "queries": blind} if blind else None,
            "bias": None,
        },
        "checks": checks,
    }
    return (OnAKink if pattern == "offset" else Case)(Layer.model_validate(layer), Situation.model_validate(situation))


def loss_of(case: Case, cotangent: Array) -> Callable[[dict[str, Array]], Any]:
    """sum(output * cotangent) as a function of x and the parameters, in long double."""

    def loss(values: dict[str, Array]) -> Any:
        tape = Tape(Arithmetic(np.longdouble))
        parameters = {name: tape.leaf(values[name]) for name in case.parameters()}
        leaves = {name: tape.leaf(values[name]) for name in ("x", "memory") if name in values}
        play = Play(tape, case.layer, parameters, LayerInputs(values["x"], {}, case.mask()))
        stages = play.run(plan(case.layer), **leaves)
        return (stages["output"].value * cotangent).sum()

    return loss


def over_a_memory(lengths: tuple[int, ...], attention: dict[str, Any]) -> Case:
    """Attention alone: three queries over a memory of two positions (E-17)."""
    whole = tiny("pre", "gelu", lengths, {"attention": attention})
    layer = {**whole.layer.model_dump(), "part": "attention", "family": "attention"}
    situation = {**whole.situation.model_dump(), "families": ("attention",), "memory": {"sequence": 2}}
    return Case(Layer.model_validate(layer), Situation.model_validate(situation))


def leaves_of(case: Case) -> dict[str, Array]:
    memory = case.memory()
    leaves = {"x": case.x(), **({} if memory is None else {"memory": memory}), **case.parameters()}
    return {name: value.astype(np.longdouble) for name, value in leaves.items()}


def by_differences(loss: Callable[[dict[str, Array]], Any], leaves: dict[str, Array], name: str) -> Array:
    """Fourth-order central differences: (8 (f(h) − f(−h)) − (f(2h) − f(−2h))) / 12 h."""
    found = np.zeros(leaves[name].shape, dtype=np.longdouble)
    for i in np.ndindex(*found.shape):
        at = {}
        for steps in (-2, -1, 1, 2):
            moved = leaves[name].copy()
            moved[i] += steps * STEP
            at[steps] = loss({**leaves, name: moved})
        found[i] = (8 * (at[1] - at[-1]) - (at[2] - at[-2])) / (12 * STEP)
    return found


RMS = {"norm": {"kind": "rms_norm"}}
BIASLESS = {"qkv_bias": False}
WHISPER = {"attention": {"key_bias": False}}
ROPE = {"theta": 100.0, "pairing": "halves", "rotated": 2}
BUCKETS = {"buckets": 4, "max_distance": 3}
LINEAR = {"distances": "linear", "slopes": "interpolated"}
CLIPPED = {"buckets": 3, "max_distance": 1, "distances": "clipped"}
QK_NORM = {"kind": "layer_norm", "over": "head", "shift": True}
GROUPED = {"head_dim": 4, "kv_heads": 1, "qk_norm": QK_NORM, "softcap": 2.0, "scale": 5.0}
SCALED = {"layer_scale": ("attention", "feed_forward"), "residual_scale": 0.75, "feed_forward": {"gated": True}}
WINDOWED = {"window": {"left": 1, "right": 0}, "qk_norm": {**QK_NORM, "over": "all", "shift": False}}
SHARED = {
    "projections": "shared_by_heads",
    "scale": "d_model",
    "masked_score": -1e20,
    "fully_masked_row": "uniform",
}


@pytest.fixture(
    scope="module",
    params=[
        of_a_release(("pre", "relu", None)),
        of_a_release(("pre", "gelu", (3, 1))),
        of_a_release(("pre", "gelu", (0, 3))),
        of_a_release(("post", "relu", (2, 3))),
        ("post", "relu", (3, 0)),
        of_a_release(("post", "gelu", None)),
        (
            "pre",
            "silu",
            None,
            {**RMS, "attention": {**BIASLESS, "output_bias": False}, "feed_forward": {"bias": False}},
            None,
        ),
        ("post", "gelu_tanh", (2, 3), RMS, None),
        of_a_release(("pre", "gelu", (3, 1), WHISPER, None)),
        of_a_release(
            ("post", "silu", None, {"attention": {"value_bias": False}, "feed_forward": {"hidden_bias": False}}, None)
        ),
        of_a_release(("pre", "quick_gelu", (3, 1))),
        of_a_release(
            (
                "pre",
                "silu",
                (3, 1),
                {"feed_forward": {"gated": True, "hidden_bias": False}, "attention": {"rope": ROPE}},
            )
        ),
        ("post", "gelu", None, {"attention": {"rope": {**ROPE, "pairing": "interleaved"}, "position_bias": BUCKETS}}),
        of_a_release(("sandwich", "relu", (2, 3), {**RMS, **SCALED, "attention": GROUPED})),
        ("res_post", "gelu", (3, 2), {"attention": {"position_bias": CLIPPED}}),
        ("pre", "gelu", (2, 3), {"parallel": "two_norms", "attention": {"position_bias": LINEAR}}),
        of_a_release(("pre", "silu", (3, 2), {**RMS, **SCALED, "parallel": "one_norm"})),
        ("post", "silu", (3, 2), {"attention": {"appended_key": "learned", "kv_heads": 1}}, ((1,), ())),
        of_a_release(("pre", "silu", (3, 0), {"attention": {"appended_key": "zero", "softcap": 2.0}})),
        of_a_release(("pre", "gelu", (3, 2), {"norm": {"shift": False, "first": False}, "attention": WINDOWED})),
        of_a_release(("pre", "gelu", (3, 2), {"attention": {**BIASLESS, **SHARED}}, ((1,), (0,)))),
        of_a_release(("post", "relu", (3, 2), {"attention": {"fully_masked_row": "zero"}}, ((2,), ()))),
        of_a_release(("pre", "gelu", (2, 3), {"attention": {"fully_masked_row": "uniform"}}, ((0,), (1, 2)))),
    ],
    ids=[
        "pre-relu",
        "pre-gelu-padded",
        "pre-gelu-padded-item",
        "post-relu-padded",
        "post-relu-padded-item",
        "post-gelu",
        "pre-rms-silu-without-biases",
        "post-rms-gelu-tanh",
        "pre-key-without-bias",
        "post-value-and-hidden-without-bias",
        "pre-quick-gelu",
        "pre-gated-rope",
        "post-interleaved-buckets",
        "sandwich-grouped",
        "res-post-clipped-distances",
        "parallel-two-norms-linear-distances",
        "parallel-one-norm",
        "post-appended-key-of-grouped-heads",
        "pre-zero-key-capped",
        "pre-shiftless-window",
        "pre-shared-heads-filled",
        "post-zero-rows",
        "pre-uniform-rows",
    ],
)
def case(request: Any) -> Case:
    *layer, blind = request.param if len(request.param) == 5 else (*request.param, None)
    return tiny(*layer, blind=blind)


def test_every_gradient_agrees_with_differences(case: Case) -> None:
    cotangent = case.cotangent(NO_ROWS).astype(np.longdouble)
    gradients = evaluate(case, Arithmetic(np.longdouble), cotangent).gradients
    loss, leaves = loss_of(case, cotangent), leaves_of(case)
    assert gradients.keys() == leaves.keys()
    scale = {name: float(np.abs(value).max()) for name, value in gradients.items()}
    for name in leaves:
        differences = by_differences(loss, leaves, name)
        assert gradients[name].shape == leaves[name].shape, name
        largest = scale[name] if name != "attention.key.bias" else scale["attention.query.bias"]  # exactly zero
        assert np.abs(differences - gradients[name]).max() <= 1e-9 * largest, name


@pytest.mark.parametrize("attention", [{}, {**BIASLESS, **SHARED}], ids=["full", "shared-heads-filled"])
def test_every_gradient_over_a_memory_agrees_with_differences(attention: dict[str, Any]) -> None:
    case = over_a_memory((2, 1), attention)
    test_every_gradient_agrees_with_differences(case)
    by_memory = evaluate(case, Arithmetic(np.float64), case.cotangent(NO_ROWS)).gradients["memory"]
    assert by_memory.shape == (2, 2, 6)
    assert not by_memory[1, 1].any()  # its padding
    assert by_memory[~np.array([[False, False], [False, True]])].all()


def test_float64_gradients_are_within_sigma_of_the_golden(case: Case) -> None:
    expected = expectation(case, 32)
    gradients = evaluate(case, Arithmetic(np.float64), case.cotangent(expected.kinked_rows)).gradients
    for name, value in gradients.items():
        key = f"gradient.{name}"
        sigma = np.maximum(2.0**-53 * expected.condition[key], 2.0**-1022)
        error = np.abs(value - expected.golden[key]) / sigma
        assert np.sqrt(np.mean(error**2)) <= 2, name
        assert error.max() <= 10, name


def test_padding_sends_no_gradient(case: Case) -> None:
    """M-3, B-1: nothing flows from padded rows, and x at padded positions gets exactly zero."""
    x = evaluate(case, Arithmetic(np.float64), case.cotangent(NO_ROWS)).gradients["x"]
    if case.layer.attention.fully_masked_row != "uniform":  # a query with no key then looks at padding too (M-4)
        assert np.all(x[~case.valid()] == 0)
    assert np.all(np.abs(x[case.valid()]).max(axis=-1) > 0)


def test_key_bias_has_no_gradient(case: Case) -> None:
    """Softmax does not see a shift of all its scores, so the exact gradient is zero; σ must say that noise is right.

    A key that is turned or normed shifts each score by something else, and one that no position has by nothing.
    """
    expected, attention = expectation(case, 32), case.layer.attention
    if attention.rope or attention.qk_norm or attention.appended_key:
        return
    if "attention.key.bias" not in case.parameters():
        assert "gradient.attention.key.bias" not in expected.golden
        return
    golden, condition = (values["gradient.attention.key.bias"] for values in (expected.golden, expected.condition))
    assert np.abs(golden).max() < 1e-17
    assert np.all(condition > 0)


@pytest.fixture(scope="module")
def kinked() -> Case:
    return tiny("pre", "relu", **KINKED)


def test_rows_on_a_kink_have_no_cotangent(kinked: Case) -> None:
    rows = kinked_rows(kinked)
    assert rows.tolist() == [[2, 2]]
    zero = np.all(kinked.cotangent(rows) == 0, axis=-1)
    assert np.argwhere(zero).tolist() == rows.tolist()
    others = np.ones(zero.shape, dtype=np.bool_)
    others[2, 2] = False
    assert np.array_equal(kinked.cotangent(rows)[others], kinked.cotangent(NO_ROWS)[others])


def test_rows_are_kinked_where_the_hidden_layer_is_within_ten_sigma_of_zero(kinked: Case) -> None:
    expected = expectation(kinked, 32)
    hidden, condition = expected.golden["ffn_hidden"], expected.condition["ffn_hidden"]
    nearest = (np.abs(hidden) / (2.0**-24 * condition)).min(axis=-1)
    clear = np.abs(np.log(nearest / 10)) > 0.3  # a row's own 10 σ comes from other draws, and is not smoothed
    assert clear.all()
    assert np.argwhere(nearest < 10).tolist() == expected.kinked_rows.tolist() == [[2, 2]]


def test_a_kinked_rows_hidden_layer_moves_no_gradient(kinked: Case) -> None:
    """Pushing its unit over the kink moves the gradient by noise when the row is out, by a slope when it is in."""
    rows = kinked_rows(kinked)
    hidden = evaluate(kinked, Arithmetic(np.float64), None).stages["ffn_hidden"][2, 2]
    unit = int(np.abs(hidden).argmin())
    push = -1.01 * hidden[unit]
    for cotangent, same in ((kinked.cotangent(rows), True), (kinked.cotangent(NO_ROWS), False)):
        before, after = (gradients_with_bias(kinked, cotangent, unit, by) for by in (0.0, push))
        moved = np.abs(after - before).max() / np.abs(before).max()
        assert bool(moved < 1e-3) is same


def gradients_with_bias(case: Case, cotangent: Array, unit: int, by: float) -> Array:
    tape = Tape(Arithmetic(np.float64))
    values = case.parameters()
    values["feed_forward.hidden.bias"][unit] += by
    parameters = {name: tape.leaf(value) for name, value in values.items()}
    stages = Play(tape, case.layer, parameters, LayerInputs(case.x(), {}, case.mask())).run(
        plan(case.layer), x=tape.leaf(case.x())
    )
    wanted = {"weight": parameters["feed_forward.hidden.weight"]}
    return tape.gradients(stages["output"], cotangent, wanted)["weight"][:, unit]


def test_only_relu_gradients_have_kinks() -> None:
    assert kinked_rows(tiny("pre", "gelu", **KINKED)).shape == (0, 2)
    assert kinked_rows(tiny("pre", "relu", checks=("output",), **KINKED)).shape == (0, 2)


def test_padded_rows_are_not_listed_as_kinked() -> None:
    """Lengths 5, 5, 1: the row (2, 2) is within 10 σ of a kink here too, but holds no data."""
    case = tiny("pre", "relu", (5, 5, 1), **{**KINKED, "d_ff": 5, "exponent": 8})
    hidden, *disturbed = (
        evaluate(case, arithmetic, None).stages["ffn_hidden"][2, 2]
        for arithmetic in (Arithmetic(np.float64), *(Rounded(2.0**-24, run) for run in range(16)))
    )
    noise = np.sqrt(np.mean((np.array(disturbed) - hidden) ** 2, axis=0))
    assert (np.abs(hidden) / noise).min() < 8
    assert kinked_rows(case).shape == (0, 2)


def test_relu_slope_at_zero_is_zero() -> None:
    """E-6, at an exact zero: a hidden layer whose weights and bias are nothing passes nothing back."""
    case = tiny("post", "relu")
    tape = Tape(Arithmetic(np.longdouble))
    values = case.parameters() | {
        "feed_forward.hidden.weight": np.zeros((6, 5)),
        "feed_forward.hidden.bias": np.zeros(5),
    }
    parameters = {name: tape.leaf(value) for name, value in values.items()}
    stages = Play(tape, case.layer, parameters, LayerInputs(case.x(), {}, None)).run(
        plan(case.layer), x=tape.leaf(case.x())
    )
    gradients = tape.gradients(stages["output"], case.cotangent(NO_ROWS), parameters)
    assert not np.any(gradients["feed_forward.hidden.bias"])
    assert not np.any(gradients["feed_forward.hidden.weight"])
    assert np.any(gradients["feed_forward.output.bias"])
