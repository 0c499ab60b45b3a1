"""Claims about answers that were asked for, about gradients, and about answers that cannot be compared: of each a layer
of which it is true, and one of which it is not."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from products import daily
from wrong_layers import FLOAT32, Wrong, computed, observed

from encoder_conformance.diagnosis.backward.diagnose import diagnose_backward
from encoder_conformance.diagnosis.backward.observed import ObservedGradients, observe_gradients
from encoder_conformance.diagnosis.claims import KINDS, sentence
from encoder_conformance.diagnosis.dependence import CHANGED, dependence
from encoder_conformance.diagnosis.diagnose import incomparable
from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.diagnosis.experiments import experiments, identify_by_experiments
from encoder_conformance.diagnosis.explanation import as_closest
from encoder_conformance.diagnosis.identify.characteristics import characteristics
from encoder_conformance.diagnosis.identify.samples import samples_of
from encoder_conformance.judging.observation import Observation, observation_of
from encoder_conformance.judging.records import Claim, Diagnosis
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.encoder import evaluate
from encoder_conformance.oracle.expected import NOTHING
from encoder_conformance.oracle.golden.build import compute
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.load import constants, load

ASKED = [load().cases[f"pre-gelu/{situation}"] for situation in ("no-mask", "padding-right", "causal")]
DEPENDS: dict[str, dict[str, Wrong]] = {
    "batch_independence": {"residual1": lambda text: f"{text} + 0.1 * mean(mean(x, 0), 1)"},
    "padding_content": {"residual1": lambda text: f"{text} + 0.1 * mean(x, 1)"},
    "padding_length": {"residual1": lambda text: f"{text} + 0.01 * sequence_length"},
    "permutation": {"residual1": lambda text: f"{text} + 0.1 * cos(index(x, 1))"},
    "causality": {"attention_weights": lambda text: text.replace("mask", "mask | ~mask")},
}
"""Invariant → a layer that breaks it."""
ON_NOTHING: dict[str, Wrong] = {"residual1": lambda text: f"1.01 * ({text})"}


def said_of(wrong: dict[str, Wrong], *, noise: float = 0.0) -> list[Claim]:
    """What is said of a layer that answers with this much noise of its own."""

    def ask(cases: Sequence[Case]) -> list[Observation]:
        """Without goldens: answers are compared with each other."""
        drawn = np.random.default_rng(0)
        outputs = [computed(case, wrong)["output"] + noise * drawn.normal(size=case.x_shape) for case in cases]
        return [
            Observation(case, FLOAT32, True, True, NOTHING, {}, {"output": output.astype(np.float64)})
            for case, output in zip(cases, outputs, strict=True)
        ]

    return list(dependence([Evidence(observed(case, ON_NOTHING)) for case in ASKED], ask))


def on(said: Sequence[Claim], kind: str) -> set[str]:
    return {each for claim in said if claim.kind == kind for each in str(claim.values["on"]).split("; on ")}


@pytest.mark.parametrize("invariant", DEPENDS)
def test_what_an_answer_depends_on_is_never_said_to_leave_it_as_it_is(invariant: str) -> None:
    said = said_of(DEPENDS[invariant])
    assert CHANGED[invariant] in on(said, "depends")
    assert CHANGED[invariant] not in on(said, "independent")
    assert all(each.sigma is not None and each.sigma > 10 for each in said if each.kind == "depends")


def test_a_layer_that_is_wrong_everywhere_depends_on_nothing_of_this() -> None:
    said = said_of(ON_NOTHING)
    assert on(said, "depends") == set()
    assert on(said, "independent") == {*CHANGED.values()}
    assert all(each.sigma is not None and each.sigma < 10 for each in said)


def test_an_answer_with_noise_of_its_own_depends_on_chance() -> None:
    said = said_of(ON_NOTHING, noise=1e-4)
    assert CHANGED["determinism"] in on(said, "depends")
    assert CHANGED["determinism"] not in on(said, "independent")


OF_A_PART: dict[str, tuple[dict[str, Wrong], set[str], set[str]]] = {
    "the attention": (
        {"attention_scores": lambda text: f"tanh({text})"},
        {"without-attention", "without-scores"},
        {"without-feed-forward"},
    ),
    "the feed-forward network": (
        {"ffn_activation": lambda text: f"tanh({text})"},
        set(),
        {"without-attention"},
    ),
}
"""What is wrong → the equations, and the experiments that are in line, and out of line: the first of these is the last
that is looked at where nothing is found."""


@pytest.mark.parametrize("part", daily([*OF_A_PART][:1], OF_A_PART))
def test_an_experiment_is_in_line_where_what_is_wrong_is_switched_off(part: str) -> None:
    wrong, right, out = OF_A_PART[part]

    def ask(cases: Sequence[Case]) -> list[Observation]:
        return [observed(case, wrong, output_only=True, expected=compute(case, constants())) for case in cases]

    pieces = [Evidence(observed(ASKED[0], wrong, output_only=True))]
    found = identify_by_experiments(pieces, experiments(pieces, ask), until=0.0)  # no time to find anything
    assert found is not None
    named = {kind: {c.values["experiment"] for c in found.observed if c.kind == kind} for kind in KINDS}
    assert named["in-line-alone"] == right
    assert named["out-of-line-alone"] == out
    for each in found.observed:
        assert each.sigma is not None
        assert (each.sigma < 10) is (each.kind == "in-line-alone")
        assert each.cases == len(pieces)


def gradients_of(change: Callable[[str, np.ndarray], np.ndarray]) -> ObservedGradients:
    case = replace(ASKED[0])
    expected = read_golden(case, read_golden_manifest(), constants())
    right = evaluate(case, Arithmetic(np.float32), case.cotangent(expected.kinked_rows)).gradients
    answers = {name: change(name, np.asarray(value)).astype(np.float32) for name, value in right.items()}
    seen = observe_gradients(case, expected, FLOAT32, answers, failed=True)
    assert seen is not None
    return seen


def test_gradients_are_right_or_out_of_line_and_never_both() -> None:
    def wrong(name: str, value: np.ndarray) -> np.ndarray:
        uneven = 1 + 0.1 * np.cos(np.arange(value.size)).reshape(value.shape)
        return np.asarray(value * uneven if name == "attention.value.weight" else value)

    seen = gradients_of(wrong)
    said = {each.kind: each for each in diagnose_backward("mine", "float32", [seen]).observed}
    assert said["gradients-out"].values["names"] == "attention.value.weight"
    assert said["gradients-out"].sigma is not None and said["gradients-out"].sigma > 10  # noqa: PT018
    right = str(said["gradients-right"].values["names"]).split(", ")
    assert {*right} == {*seen.observed} - {"attention.value.weight"}
    assert said["gradients-right"].sigma is not None and said["gradients-right"].sigma < 10  # noqa: PT018


def test_what_an_explanation_leaves_out_is_said_with_what_it_leaves() -> None:
    explained = Diagnosis(
        implementation="mine", dtype="float32", confidence="explained", first_stage="query", cases=("a/b",)
    )
    [said] = as_closest(explained, {"a/c": 12.0, "a/d": 345.6, "a/e": None}).observed
    assert sentence(said) == "Not accounted for: a/c, a/d, a/e (3.5e+02 σ)."
    [unseen] = as_closest(explained, {"a/e": None}).observed
    assert sentence(unseen) == "Not accounted for: a/e."


def answered(change: Callable[[np.ndarray], np.ndarray]) -> Observation:
    case = ASKED[0]
    expected = read_golden(case, read_golden_manifest(), constants())
    answers = {"output": change(computed(case, {})["output"])}
    return observation_of(case, expected, FLOAT32, answers, failed=True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda y: y[:1], ["shape"]),
        (lambda y: y.astype(np.float64), ["dtype"]),
        (lambda y: y[:1].astype(np.float64), ["shape"]),
        (lambda y: 2 * y, []),
        (lambda y: np.nan * y, []),
    ],
    ids=["another shape", "another dtype", "both", "other numbers", "NaN"],
)
def test_an_answer_that_cannot_be_compared_is_said_to_be_that_and_no_other(
    change: Callable[[np.ndarray], np.ndarray], said: list[str]
) -> None:
    assert [each.kind for each in incomparable([Evidence(answered(change))])] == said


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda text: f"where({text} == {text}, {text}, 0)", ["filled"]),
        (lambda text: f"2 * ({text})", ["factor"]),
        (lambda text: text, []),
    ],
    ids=["zeros", "other numbers", "right"],
)
def test_what_stands_where_nan_is_right_is_said(wrong: Wrong, said: list[str]) -> None:
    case = next(case for name, case in load().cases.items() if name.startswith("post-gelu-nan-rows/blind-queries"))
    seen = samples_of("attention_weights", [Evidence(observed(case, {"attention_weights": wrong}))])
    assert [each.kind for each in characteristics("attention_weights", seen)] == said
