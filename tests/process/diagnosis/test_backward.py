"""Which term of the backward pass is missing or scaled, where the forward pass is right."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from products import daily

from encoder_conformance.diagnosis.backward.consistency import not_following
from encoder_conformance.diagnosis.backward.diagnose import diagnose_backward
from encoder_conformance.diagnosis.backward.observed import ObservedGradients, observe_gradients
from encoder_conformance.diagnosis.epsilon import measured_epsilon
from encoder_conformance.judging.records import Diagnosis
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.backward import gradients, played
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.deviant import changes, deviant
from encoder_conformance.oracle.encoder import evaluate
from encoder_conformance.oracle.equation import Operands
from encoder_conformance.oracle.forms import stage_equations
from encoder_conformance.oracle.forms.needs import has_empty_row
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.oracle.inputs import given
from encoder_conformance.oracle.kinks import kinked_rows
from encoder_conformance.oracle.play import softmax_choices
from encoder_conformance.reports.run.terminal import diagnosis_text
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.equation import Equation
from encoder_conformance.spec.load import constants, load

FLOAT32 = FORMATS["float32"]
CASES = [
    load().cases[case]
    for layer in ("pre-gelu", "post-relu")
    for case in (f"{layer}/padding-right", f"{layer}/no-mask", f"{layer}/single-item")
]
SAME = {"attention_scores": ("attention_weights",), "residual1": ("attention_output",), "output": ("residual2",)}
"""Stages between which nothing tells what goes back through one from what goes back through the other."""
Wrong = Callable[[str], str]
Gradients = dict[str, np.ndarray[Any, Any]]


def of_equations(case: Case, equations: Mapping[str, Equation], dtype: Any = np.float64) -> Gradients:
    arithmetic, what = Arithmetic(dtype), given(case)
    parameters = {name: value.astype(dtype) for name, value in what.parameters.items()}
    values = {**parameters, "x": what.x.astype(dtype), **what.beside_x(case.layer)}
    layer = played(equations, arithmetic, Operands(case.layer, values, softmax_choices(case.layer)))
    found = gradients(layer, arithmetic, case.cotangent(kinked_rows(case)))
    return {**{name: np.zeros_like(value) for name, value in parameters.items()}, **found}


def seen(case: Case, found: Gradients) -> ObservedGradients:
    expected = read_golden(case, read_golden_manifest(), constants())
    answers = {name: value.astype(np.float32) for name, value in found.items()}
    known = observe_gradients(case, expected, FLOAT32, answers, failed=True)
    assert known is not None
    return known


def diagnosed(
    wrong: Mapping[str, Wrong],
    change: Callable[[Case, Gradients], Gradients] | None = None,
    cases: Sequence[Case] = CASES,
) -> Diagnosis:
    found = []
    for case in cases:
        specified = stage_equations(case.layer)
        equations = {**specified, **{stage: Equation(of(specified[stage].text)) for stage, of in wrong.items()}}
        own = of_equations(case, equations, np.float32)
        found.append(seen(case, change(case, own) if change else own))
    return diagnose_backward("mine", "float32", found)


def small_cases_with_gradients() -> list[str]:
    return [
        name
        for name, case in load().cases.items()
        if case.layer.d_model <= 64
        and stage_equations(case.layer)
        and case.layer.embedding is None
        and "gradients" in case.situation.checks
        and not has_empty_row(case)
    ]


@pytest.mark.release
@pytest.mark.parametrize("every", daily([4], [4, 1]))
def test_equations_give_the_gradients_of_the_oracle(every: int) -> None:
    """Rule V-13, in every small case; what is 0 but for rounding is compared with the largest gradient."""
    names = small_cases_with_gradients()
    assert len(names) > 150
    positioned = next(name for name in names if given(load().cases[name]).positions is not None)
    for name in (positioned, *names[::every]):
        case = load().cases[name]
        right = evaluate(case, Arithmetic(np.float64), case.cotangent(kinked_rows(case))).gradients
        found = of_equations(case, stage_equations(case.layer))
        largest = max(float(np.abs(value).max()) for value in right.values())
        assert {*right} <= {*found}, name
        for gradient, value in right.items():
            assert np.abs(found[gradient] - value).max() <= 1e-11 * largest, (name, gradient)


def without_mean(text: str) -> str:
    return text.replace("- mean(", "- detach(mean(", 1).replace(", -1)) /", ", -1))) /", 1)


def without_variance(text: str) -> str:
    return text.replace("sqrt(var(", "sqrt(detach(var(").replace(" + epsilon", ") + epsilon")


def without(name: str) -> Wrong:
    return lambda text: text.replace(name, f"detach({name})")


def multiplied(name: str, factor: str) -> Wrong:
    return lambda text: text.replace(name, f"scale_gradient({name}, {factor})")


def all_multiplied(factor: str) -> Wrong:
    return lambda text: f"scale_gradient({text}, {factor})"


def without_denominator(text: str) -> str:
    above = "where(mask, exp(attention_scores + bias), 0)"
    return f"{above} / detach(sum({above}, -1))"


@pytest.mark.release
@pytest.mark.parametrize(
    ("stage", "wrong", "found"),
    [
        pytest.param("norm2", without_mean, "- detach(mean(", id="mean"),
        *(
            pytest.param(*one, marks=pytest.mark.release)  # a diagnosis each
            for one in (
                ("attention_weights", without_denominator, "/ detach(sum("),
                ("output", all_multiplied("1 / batch_size"), "1 / batch_size"),
                ("norm1", without_variance, "detach(sqrt(var("),
                ("residual1", without("attention_output"), "detach("),
                ("residual1", multiplied("x", "2"), "scale_gradient(x, 2) +"),
                ("value", multiplied("attention.value.weight", "0.5"), "scale_gradient(attention.value.weight, 0.5)"),
                ("attention_scores", all_multiplied("1 / sqrt(head_dim)"), "1 / sqrt(head_dim)"),
                ("ffn_output", without("feed_forward.output.bias"), "detach(feed_forward.output.bias)"),
            )
        ),
    ],
)
def test_one_term_is_named(stage: str, wrong: Wrong, found: str) -> None:
    diagnosis = diagnosed({stage: wrong})
    assert diagnosis.confidence == "explained", diagnosis_text(diagnosis)
    same = {stage, *SAME.get(stage, ())}
    assert len(stages := {each.stage for each in diagnosis.equations}) == 1, diagnosis_text(diagnosis)
    assert stages <= same, diagnosis_text(diagnosis)
    for each in diagnosis.equations:
        assert found in each.found
        assert each.rms < 2 < 100 < each.specified_rms
    assert "the forward pass is right" in diagnosis_text(diagnosis)


@pytest.mark.release
def test_an_activation_with_the_derivative_of_another() -> None:
    silu = "ffn_hidden * sigmoid(ffn_hidden)"
    diagnosis = diagnosed({"ffn_activation": lambda text: f"{silu} + detach({text} - {silu})"})
    assert diagnosis.confidence == "explained"
    assert all("sigmoid(ffn_hidden) + detach(" in each.found for each in diagnosis.equations)


@pytest.mark.release
def test_an_activation_of_a_gate_with_the_derivative_of_another() -> None:
    cases = [load().cases[f"pre-rope-gated/{situation}"] for situation in ("padding-right", "no-mask")]
    gelu = "(0.5 * ffn_gate * (1 + erf(ffn_gate / sqrt(2))))"
    diagnosis = diagnosed({"ffn_activation": lambda text: f"{gelu} + detach({text} - {gelu})"}, cases=cases)
    assert diagnosis.confidence == "explained", diagnosis_text(diagnosis)
    assert all("erf(ffn_gate / sqrt(2))) + detach(" in each.found for each in diagnosis.equations)


@pytest.mark.release
def test_a_mistake_in_both_norms_comes_out_twice() -> None:
    diagnosis = diagnosed({"norm1": without_mean, "norm2": without_mean})
    assert diagnosis.confidence == "explained", diagnosis_text(diagnosis)
    assert {each.stage for each in diagnosis.equations} == {"norm1", "norm2"}


WRONG = {
    "norm-eps-1e-3": catalogue()["norm-eps-1e-3"],
    "mask-ignored": catalogue()["mask-ignored"],
    "gelu-tanh": catalogue()["gelu-tanh"],
    "scale-by-d-model": catalogue()["scale-by-d-model"],
    "epsilon of norm2": measured_epsilon("norm2", 3e-3),
}
"""Ways to be wrong whose gradients the oracle gives: another choice, or another mask."""
FREE_OF_PADDING = [
    load().cases[f"{layer}/{name}"] for layer in ("pre-gelu", "post-relu") for name in ("no-mask", "causal")
]


def of_wrong_layer(case: Case, deviation: Deviation) -> Gradients:
    """Gradients of a float32 layer that is wrong in this way, by the oracle's own backward pass."""
    wrong = deviant(case, [deviation])  # of wrong forms those have a gradient that are a layer's own choice
    cotangent = case.cotangent(kinked_rows(case))
    return evaluate(replace(case, layer=wrong.layer), Arithmetic(np.float32), cotangent, wrong.given).gradients


@pytest.mark.parametrize("name", daily(("mask-ignored",), WRONG))
def test_gradients_that_follow_from_what_explains_the_output_are_accounted_for(name: str) -> None:
    found = [(case, of_wrong_layer(case, WRONG[name])) for case in FREE_OF_PADDING if changes(case, WRONG[name])]
    assert found
    assert not_following([seen(*each) for each in found], [WRONG[name]]) == {}
    twice = [(case, {name: 2 * value for name, value in given.items()}) for case, given in found]
    left = not_following([seen(*each) for each in twice], [WRONG[name]])
    assert [*left] == [case.id for case, _ in found]
    assert min(left.values()) > 20


def test_gradients_that_nobody_specifies_are_not_held_to_anything() -> None:
    right = [seen(case, of_equations(case, stage_equations(case.layer), np.float32)) for case in FREE_OF_PADDING[:1]]
    assert not_following(right, [catalogue()["residual1-missing"]]) == {}
    padded = [seen(case, of_equations(case, stage_equations(case.layer), np.float32)) for case in CASES[:1]]
    assert not_following(padded, [catalogue()["mask-ignored"]]) == {}, "x may be 0 at padding, or as drawn"
    assert not_following(right, [catalogue()["norm-eps-1e-3"]]).keys() == {FREE_OF_PADDING[0].id}


NOT_ITS_GRADIENTS = """
def build(self, layer, parameters, dtype):
    layer["norm"]["epsilon"] = 1e-3
    return super().build(layer, parameters, dtype)

def gradients(self, x, masks, run, cotangent):
    return {name: value * FACTOR for name, value in super().gradients(x, masks, run, cotangent).items()}
"""


@pytest.mark.release
@pytest.mark.parametrize(("factor", "confidence"), [("1", "explained"), ("2", "closest")])
def test_an_explanation_accounts_for_gradients_too(
    conform: Callable[..., Any], fake: Callable[..., Any], factor: str, confidence: str
) -> None:
    folder = fake("scaled", NOT_ITS_GRADIENTS.replace("FACTOR", factor))
    cases = [word for case in ("no-mask", "padding-right") for word in ("--case", f"pre-gelu/{case}")]
    ended = conform("run", "--impl", folder, *cases, "--dtype", "float32")
    (diagnosis,) = ended.report["diagnoses"]
    assert (diagnosis["confidence"], diagnosis["deviations"]) == (confidence, ["norm-eps-1e-3"])
    left = "Not accounted for: gradients of pre-gelu/no-mask ("
    assert (left in ended.stdout) is (confidence == "closest")


@pytest.mark.release
def test_exchanged_and_transposed_gradients_are_said() -> None:
    def exchange(case: Case, found: Gradients) -> Gradients:
        query, key = "attention.query.weight", "attention.key.weight"
        return {**found, query: found[key], key: found[query]}

    diagnosis = diagnosed({}, exchange)
    assert diagnosis.confidence == "seen"
    said = " ".join(diagnosis.sentences)
    assert "The gradient of attention.query.weight is that of attention.key.weight (" in said
    assert f"σ over {len(CASES)} cases)" in said

    def transpose(case: Case, found: Gradients) -> Gradients:
        name = "attention.output.weight"
        return {**found, name: found[name].T}

    turned = diagnosed({}, transpose)
    assert "The gradient of attention.output.weight is that, transposed (" in " ".join(turned.sentences)


@pytest.mark.release
def test_what_no_equation_gives_is_not_explained() -> None:
    def noise(case: Case, found: Gradients) -> Gradients:
        name = "attention.value.weight"
        wrong = np.cos(np.arange(found[name].size)).reshape(found[name].shape)
        return {**found, name: found[name] * (1 + 0.1 * wrong)}

    diagnosis = diagnosed({}, noise)
    assert diagnosis.confidence == "unknown"
    assert "Gradients out of line, from the output back: attention.value.weight (" in diagnosis_text(diagnosis)
