"""Equations of stages (rule V-12): the specified ones give what the oracle gives, and bad ones are refused."""

import numpy as np
import pytest

from encoder_conformance.judging.simulate import simulate
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.deviant import changes
from encoder_conformance.oracle.encoder import forward
from encoder_conformance.oracle.equation import Operands, evaluate
from encoder_conformance.oracle.forms import stage_equations
from encoder_conformance.oracle.inputs import LayerInputs, given
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.equation import Equation
from encoder_conformance.spec.load import load

CASES = load().cases
SITUATIONS = (
    "no-mask",
    "padding-right",
    "mask-per-head",
    "alibi",
    "memory-longer",
    "memory-mask-per-item",
    "blind-queries",
)
LAYERS = sorted({case.layer.layer for case in CASES.values() if case.layer.d_model <= 64 and not case.layer.is_stack})


def deviation(**stages: dict[str, str]) -> Deviation:
    patch = {"stages": stages}
    return Deviation.model_validate(
        {
            "deviation": "mine",
            "sentence": "A patch of a test.",
            "kind": "wiring",
            "patch": patch,
            "unseen": None,
            "links": (),
        }
    )


@pytest.mark.parametrize("layer", LAYERS)
def test_the_specified_equations_give_what_the_oracle_gives(layer: str) -> None:
    cases = [CASES[f"{layer}/{name}"] for name in SITUATIONS if f"{layer}/{name}" in CASES]
    if not cases:
        cases = [next(case for case in CASES.values() if case.layer.layer == layer and case.situation.mode == "eval")]
    for case in cases:
        what, equations = given(case), stage_equations(case.layer)
        right = forward(case.layer, what, Arithmetic(np.float64))
        assert set(equations) == set(right)
        for number, (stage, equation) in enumerate(equations.items()):
            assert not equation.names & {*list(equations)[number:]}, f"{stage} is computed from a later stage"
        told = LayerInputs(**{**vars(what), "equations": equations})
        found = forward(case.layer, told, Arithmetic(np.float64))
        for stage, value in right.items():
            np.testing.assert_allclose(found[stage], value, rtol=1e-11, atol=1e-12, err_msg=f"{case.id} {stage}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("norm1 @", "is no expression"),
        ("norm1 @ attention.value.wieght", "names attention.value.wieght, which is no stage"),
        ("open('x')", "open is no function of the language"),
        ("sqrt(x, 2)", "sqrt takes 1 to 1 arguments"),
        ("x if mask else x", "IfExp is no part of the language"),
        ("x << 2", "LShift is no operator of the language"),
        ("sum(x, axis=1)", "Call is no part of the language"),
        ("x.__class__", "names x.__class__, which is no stage"),
        ("True", "True is no number"),
    ],
)
def test_what_is_no_equation_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        Equation(text)


def test_a_patch_of_a_stage_is_simulated() -> None:
    case = CASES["pre-gelu/no-mask"]
    halved = simulate(case, [deviation(residual2={"residual1 + ffn_output": "0.5 * residual1 + ffn_output"})])
    right = simulate(case, [])
    np.testing.assert_allclose(halved["residual2"], 0.5 * right["residual1"] + right["ffn_output"], rtol=1e-12)
    np.testing.assert_array_equal(halved["output"], halved["residual2"])


def test_a_patch_of_a_stage_is_of_layers_that_specify_that_equation() -> None:
    twice = deviation(residual1={"x + attention_output": "x + 2 * attention_output"})
    assert changes(CASES["pre-gelu/no-mask"], twice)
    assert not changes(CASES["cross-attention/memory-longer"], twice)
    of_pre_norm = deviation(residual2={"residual1 + ffn_output": "residual1"})
    assert changes(CASES["pre-gelu/no-mask"], of_pre_norm)
    assert not changes(CASES["post-relu/no-mask"], of_pre_norm)
    assert not changes(CASES["pre-gelu/no-mask"], deviation(residual1={"x + attention_output": "x+attention_output"}))


def test_patches_of_two_stages_apply_each_by_itself() -> None:
    """A mistake in both kinds of layers, beside one that only post-norm layers can have."""
    both = deviation(
        residual1={"x + attention_output": "x + 2 * attention_output"},
        residual2={"norm1 + ffn_output": "norm1"},
    )
    for layer, also_norm1 in (("pre-gelu", False), ("post-relu", True)):
        case = CASES[f"{layer}/no-mask"]
        assert changes(case, both)
        right, wrong = simulate(case, ()), simulate(case, [both])
        assert not np.array_equal(wrong["residual1"], right["residual1"])
        assert np.array_equal(wrong["residual2"], wrong["norm1"]) is also_norm1


def test_a_patch_that_names_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"stages.query: names nothing"):
        deviation(query={"x": "nothing"})
    with pytest.raises(ValueError, match="stages names none of the specification's: quarry"):
        deviation(quarry={"x": "x"})


def evaluated(text: str) -> np.ndarray:
    case = CASES["post-relu/no-mask"]
    return evaluate(Equation(text), Arithmetic(np.float64), Operands(case.layer, {"x": case.x()}, {}))


def test_two_elements_are_exchanged_where_there_are_both() -> None:
    x = evaluated("x")
    np.testing.assert_array_equal(evaluated("exchange(x, -1, 0, 2)")[..., :3], x[..., [2, 1, 0]])
    np.testing.assert_array_equal(evaluated("exchange(x, 0, 0, 60)"), x)


def test_an_axis_that_is_none_is_said() -> None:
    for text in ("mean(x, 1e999)", "roll(x, 1, 7)", "flip(x, -9)"):
        with pytest.raises(ValueError, match="axis"):
            evaluated(text)
