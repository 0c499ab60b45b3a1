"""A softmax that loses more than its clause allows is called by that clause, and nothing else is called so."""

from collections.abc import Callable

import pytest
from wrong_layers import Wrong, observed

from encoder_conformance.diagnosis.diagnose import Failing, diagnose
from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.diagnosis.less_exact import softmax_by_log_sum
from encoder_conformance.diagnosis.match import Match
from encoder_conformance.spec.load import load

SCORES = "attention_scores + bias"
KEPT = f"where(mask, {SCORES}, -10000)"
BY_LOG_SUM = f"where(mask, exp({SCORES} - (log(sum(exp({KEPT} - largest({KEPT}, -1)), -1)) + largest({KEPT}, -1))), 0)"
LIE = f"""
from encoder_conformance.spec.equation import Equation
equations = {{"attention_weights": Equation({BY_LOG_SUM!r})}}
"""
CASES = [load().cases[f"{layer}/large-logits"] for layer in ("post-gelu", "post-relu")]


def evidence(weights: Wrong, *, hidden: tuple[str, ...] = ()) -> list[Evidence]:
    return [Evidence(observed(case, {"attention_weights": weights}, hidden=hidden)) for case in CASES]


def outputs(weights: Wrong, *names: str) -> list[Evidence]:
    cases = [load().cases[name] for name in names] or CASES
    return [Evidence(observed(case, {"attention_weights": weights}, output_only=True)) for case in cases]


@pytest.mark.release
def test_exp_of_a_score_less_the_logarithm_of_the_sum_is_called_by_its_clause(
    conform: Callable, fake: Callable
) -> None:
    cases = ("--case", "post-gelu/large-logits", "--case", "post-relu/large-mean", "--case", "post-relu/alibi-padding")
    ended = conform("run", "--impl", fake("by_log", LIE), *cases, "--dtype", "float32")
    assert ended.status == 1, ended.stdout + ended.stderr
    [diagnosis] = ended.report["diagnoses"]
    assert (diagnosis["confidence"], diagnosis["deviations"]) == ("explained", ["softmax-by-log-sum"])
    assert diagnosis["rms"] < 2
    assert "less exact than clause E-5 allows" in ended.stdout.replace("\n", " ")


OF_A_MODULE = "query_heads", "key_heads", "value_heads", "attention_scores", "attention_weights", "context"
"""Stages that no submodule shows."""


ELSE: dict[str, Wrong] = {
    "another factor of each row": lambda text: f"({text}) * (1 + 0.000004 * sin(index(attention_scores, -2)))",
    "one factor": lambda text: f"({text}) * (1 + 0.000002)",
    "no factor of a row": lambda text: f"softmax(1.0001 * {SCORES}, mask)",
}


@pytest.mark.parametrize("hidden", [(), OF_A_MODULE], ids=["weights shown", "weights hidden"])
@pytest.mark.parametrize("weights", ELSE.values(), ids=ELSE)
def test_rows_off_by_anything_else_are_not_called_so(weights: Wrong, hidden: tuple[str, ...]) -> None:
    seen = evidence(weights, hidden=hidden)
    assert not Match.of((), seen).explains
    assert softmax_by_log_sum(seen) is None


@pytest.mark.release
def test_it_is_called_so_where_nothing_else_is_wrong() -> None:
    assert softmax_by_log_sum(evidence(lambda text: BY_LOG_SUM)) is not None
    assert softmax_by_log_sum(evidence(lambda text: BY_LOG_SUM, hidden=OF_A_MODULE)) is not None
    halved = [
        Evidence(observed(case, {"attention_weights": lambda text: BY_LOG_SUM, "value": lambda text: f"2 * ({text})"}))
        for case in CASES
    ]
    assert softmax_by_log_sum(halved) is None


OUT_OF_LINE = "pre-gelu/large-logits"


@pytest.mark.parametrize(
    "names",
    [(OUT_OF_LINE,), (OUT_OF_LINE, "pre-gelu/no-mask"), (OUT_OF_LINE, "post-gelu/large-mean")],
    ids=["alone", "beside one that shows nothing", "beside one of other factors, since its scores are unsure"],
)
def test_it_is_called_so_by_its_outputs_alone(names: tuple[str, ...]) -> None:
    match = softmax_by_log_sum(outputs(lambda text: BY_LOG_SUM, *names))
    assert match is not None
    assert match.ids == ("softmax-by-log-sum",)


@pytest.mark.parametrize("weights", ELSE.values(), ids=ELSE)
def test_outputs_off_by_anything_else_are_not_called_so(weights: Wrong) -> None:
    seen = outputs(weights, OUT_OF_LINE)
    assert not Match.of((), seen).explains
    assert softmax_by_log_sum(seen) is None


def test_outputs_that_are_off_by_something_more_are_not_called_so() -> None:
    wrong: dict[str, Wrong] = {"attention_weights": lambda _: BY_LOG_SUM, "norm2": lambda text: f"1.00001 * ({text})"}
    case = load().cases[OUT_OF_LINE]
    assert softmax_by_log_sum([Evidence(observed(case, wrong, output_only=True))]) is None


@pytest.mark.release
def test_a_diagnosis_of_outputs_alone_names_the_clause() -> None:
    names = OUT_OF_LINE, "post-gelu/large-mean", "pre-gelu/no-mask", "post-gelu/padding-right"
    seen = [piece.observation for piece in outputs(lambda _: BY_LOG_SUM, *names)]
    found = diagnose(Failing("mine", "float32", repeats="same"), seen)
    assert (found.confidence, found.deviations) == ("explained", ("softmax-by-log-sum",))
    assert "less exact than clause E-5 allows" in found.sentences[0]
