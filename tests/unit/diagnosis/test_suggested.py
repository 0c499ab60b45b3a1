"""What no list of edits has and the data show: another order of elements, a solved linear map, slices, curves."""

import ast
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from wrong_layers import Wrong, observed

from encoder_conformance.diagnosis.claims import sentence
from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.diagnosis.identify.characteristics import characteristics
from encoder_conformance.diagnosis.identify.curves import Points, curve
from encoder_conformance.diagnosis.identify.edits import is_held_by
from encoder_conformance.diagnosis.identify.equation_search import Effort, nearest_equations
from encoder_conformance.diagnosis.identify.identify import describe_outputs
from encoder_conformance.diagnosis.identify.samples import Sample, samples_of
from encoder_conformance.diagnosis.identify.suggested import terms_before
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.equation import Equation
from encoder_conformance.spec.load import load

CASES = [load().cases[f"post-relu/{situation}"] for situation in ("no-mask", "mask-per-head", "low-variance")]


def samples(stage: str, wrong: Wrong, cases: Sequence[Case] = CASES) -> list[Sample]:
    return samples_of(stage, [Evidence(observed(case, {stage: wrong})) for case in cases])


def later(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.release)


def found(stage: str, wrong: Wrong) -> str:
    return nearest_equations(stage, samples(stage, wrong), Effort(10000))[0].text


@pytest.mark.release
@pytest.mark.parametrize(
    ("stage", "wrong", "expected"),
    [
        ("context_merged", lambda text: "merge_heads(exchange(context, 1, 0, 2))", "permute(merge_heads(context), -1"),
        later(
            "query",
            lambda text: text.replace("attention.query.weight", "exchange(attention.key.weight, -2, 3, 5)"),
            "x @ exchange(attention.key.weight, -2, 3, 5) + attention.query.bias",
        ),
        later(
            "context",
            lambda text: f"where(index(value_heads, 1) == num_heads - 1, 2 * ({text}), {text})",
            "where(index(attention_weights, -3) == num_heads - 1, 2 * attention_weights, attention_weights) "
            "@ value_heads",
        ),
        later("context", lambda text: f"repeat({text}, -2, 0)", "repeat(attention_weights @ value_heads, -2, 0)"),
        later(
            "query", lambda text: f"({text}) * log(1 + sequence_length)", "log(1 + sequence_length) * (x @ attention."
        ),
        later(
            "key",
            lambda text: text.replace("x @", "(x + norm2.gain + 1.5) @"),
            "(x + norm2.gain + 1.5) @ attention.key.weight + attention.key.bias",
        ),
        later("residual1", lambda text: "x / sqrt(sum(x ** 2, -1))", "x / sqrt(sum(x ** 2, -1))"),
        later(
            "residual1",
            lambda text: f"where(index(x, 1) >= sequence_length // 4 * 4, x, {text})",
            "where(index(x, -2) >= sequence_length // 4 * 4, x, x + attention_output)",
        ),
        later("value", lambda text: f"round(100 * ({text})) / 100", "round((x @ attention.value.weight + attention."),
        later(
            "query",
            lambda text: f"({text}) @ attention.query.weight + attention.query.bias",
            "(x @ attention.query.weight + attention.query.bias) @ attention.query.weight + attention.query.bias",
        ),
        later(
            "attention_scores",
            lambda text: f"({text}) - 0.05 * abs(index({text}, -1) - index({text}, -2))",
            "-0.05 * abs(index(",
        ),
    ],
    ids=[
        *("another order", "a solved map", "one head", "slice", "size", "a term before a map", "one term alone"),
        *("block", "decimals", "twice", "positions"),
    ],
)
def test_the_data_suggest_the_equation(stage: str, wrong: Wrong, expected: str) -> None:
    assert expected in found(stage, wrong)


@pytest.mark.release
def test_what_is_wrong_in_one_length_alone_is_looked_for_there() -> None:
    """The cases with a mask are right: one has whole blocks, and in the other one padding stands behind them."""
    behind = "index(x, 1) >= sequence_length // 3 * 3"
    cases = [load().cases[f"post-relu/{name}"] for name in ("padding-right", "mask-per-head", "no-mask")]
    seen = samples("value", lambda text: f"where({behind}, 0 * ({text}), {text})", cases)
    assert [sample.operands["sequence_length"] % 3 for sample in seen] == [1, 0, 1]
    assert ">= sequence_length // 3 * 3, " in nearest_equations("value", seen, Effort(10000))[0].text


@pytest.mark.release
def test_a_term_before_a_map_is_found_in_fewer_rows_than_the_map_has() -> None:
    case = load().cases["post-gelu/single-item"]
    seen = samples("key", lambda text: text.replace("x @", "(x + norm2.gain + 1.5) @"), [case])
    assert case.x_shape[0] * case.x_shape[1] < case.layer.d_model
    assert "(x + norm2.gain + 1.5) @ attention.key.weight + attention.key.bias" in map(ast.unparse, terms_before(seen))
    assert list(terms_before(samples("key", lambda text: f"sin({text})", [case]))) == []


@pytest.mark.release
def test_a_part_of_a_sum_is_found_where_one_operand_is_absent_elsewhere() -> None:
    """Without a bias it is a part of the scores."""
    every, third = "attention_scores + bias", "index(attention_scores + bias, -1) % 3 == 0"
    wrong = f"softmax(where({third}, -1 * ({every}), {every}), mask)"
    with_bias = [load().cases["post-relu/alibi"], *CASES[:2]]
    seen = samples("attention_weights", lambda text: wrong, with_bias)
    assert nearest_equations("attention_weights", seen, Effort(10000))[0].text == wrong


@pytest.mark.parametrize(
    ("stage", "wrong", "said"),
    [
        ("value", lambda text: f"({text}) * where(index(x, -1) < 10, 1.5, 1)", "at features < d_model / 2 alone"),
        ("value", lambda text: "tanh(x) @ attention.value.weight", "value is no linear map of x ("),
        (
            "key",
            lambda text: "x @ (attention.key.weight * (index(attention.key.weight, 0) > 1)) + attention.key.bias",
            "of rank 18 of 20: its weight is attention.key.weight but for 40 of 400 entries (rows 0 to 1",
        ),
        (
            "attention_weights",
            lambda text: f"({text}) * 0.7 + 0.01 * cos(index(attention_scores, -1))",
            "weights are not 0 where the mask hides the key: up to 0.01",
        ),
        (
            "residual1",
            lambda text: "x + attention_output * (1 + 0.1 * cos(index(x, -1)))",
            "residual1 is attention_output times 0.901 to 1.1 plus x times 1, by feature",
        ),
        (
            "norm1",
            lambda text: text.replace("+ epsilon)", "+ 0.5 + 0.1 * cos(index(residual1, 1)))"),
            "Each row of norm1 is (input - centre) / divisor * gain + shift: the centre is the mean plus 0, and the "
            "divisor 1.",
        ),
        (
            "attention_scores",
            lambda text: f"({text}) + cos(3 * index({text}, -1)) * sin(1 + index({text}, -2))",
            "What is added to attention_scores depends on the positions of query and key alone (",
        ),
    ],
    ids=["features", "no map", "rank", "leaks", "by feature", "rows", "added"],
)  # fmt: skip
def test_what_is_not_identified_is_described(stage: str, wrong: Wrong, said: str) -> None:
    assert said in " ".join(map(sentence, characteristics(stage, samples(stage, wrong))))


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("softmax(attention_scores + bias, mask)", True),
        ("softmax(2 * (bias + attention_scores), mask)", True),
        ("2 * by_heads(attention_scores, attention_scores, bias)", True),
        ("softmax(attention_scores / (bias + 0.5), mask)", False),
        ("softmax(attention_scores * bias, mask)", False),
        ("softmax(attention_scores + exp(bias), mask)", False),
        ("softmax(attention_scores + (head_dim - bias), mask)", False),
    ],
)
def test_an_absent_operand_is_no_constant(text: str, holds: bool) -> None:
    """What rests on a bias that no case has holds for these cases alone."""
    tree = Equation(text).tree
    assert is_held_by(tree, {"attention_scores"}) is holds
    assert is_held_by(tree, {"attention_scores", "bias"})


def test_no_equation_explains_nan_everywhere() -> None:
    """log(x) @ weight + bias is NaN everywhere too, and nobody wrote it."""
    lost = samples("key", lambda text: f"({text}) * log(0 - 1)")
    assert nearest_equations("key", lost, Effort(10000)) == []
    assert "key holds NaN where the specification has numbers" in sentence(characteristics("key", lost)[0])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [("log(0 - 1) * ({})", "output holds NaN where"), ("3 * ({})", "output is 3 times what is specified (")],
)
def test_an_output_alone_is_described(wrong: str, said: str) -> None:
    case = load().cases["pre-gelu/no-mask"]
    seen = observed(case, {"residual2": lambda text: wrong.format(text)}, output_only=True)
    assert said in " ".join(map(sentence, describe_outputs([Evidence(seen)])))


def test_a_right_step_is_described_as_nothing_else() -> None:
    for stage in ("query", "context"):
        assert characteristics(stage, samples(stage, lambda text: text)) == ()


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (np.tanh, "odd, constant at the left, -1, constant at the right, 1"),
        (lambda x: x * x, "even"),
        (lambda x: np.maximum(x, 0), "f(x) = x for 50% of x"),
    ],
)
def test_a_curve_is_said_by_its_shape(function: Callable, said: str) -> None:
    given = np.linspace(-9, 9, 4001)
    found = curve("ffn_activation", "ffn_hidden", [Points(given, function(given), np.full(4001, 1e-7))])
    assert found is not None
    text = sentence(found)
    assert said in text
    assert "▁" in text


def test_noise_is_no_curve() -> None:
    draw = np.random.default_rng(0)
    found = curve("act", "in", [Points(draw.normal(size=4000), draw.normal(size=4000), np.full(4000, 1e-7))])
    assert found is not None
    assert found.kind == "no-curve"
