"""What the identifier says of a step by itself, of no layer that is known."""

import numpy as np
import pytest
from scipy.special import erf

from encoder_conformance.blackbox.lone_step import LoneStep
from encoder_conformance.spec.axes import Array

X = np.random.default_rng(0).standard_normal((3, 7, 12))
GAIN, SHIFT = 1 + 0.3 * np.random.default_rng(1).standard_normal((2, 12))
SCORES = np.random.default_rng(2).standard_normal((2, 3, 7, 7))
HIDDEN = np.broadcast_to(np.arange(7) > [[[[4]]], [[[5]]]], SCORES.shape)
LIMIT = 1e-6


def gelu(x: Array) -> Array:
    return 0.5 * x * (1 + erf(x / np.sqrt(2)))


def gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def normed(x: Array, epsilon: float = 1e-5, *, ddof: int = 0) -> Array:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True, ddof=ddof) + epsilon) * GAIN + SHIFT


def softmax(scores: Array, hidden: Array, axis: int = -1) -> Array:
    exponentials = np.where(hidden, 0.0, np.exp(scores))
    return exponentials / exponentials.sum(axis, keepdims=True)


def masked(value: float) -> Array:
    return np.where(HIDDEN, value, SCORES)


def said(step: LoneStep, found: Array) -> str:
    noise = np.random.default_rng(3).standard_normal(found.shape) * LIMIT / 20
    answer = step.answer((found + noise * np.abs(found)).astype(np.float32), LIMIT)
    return "" if answer is None else str(answer)


@pytest.mark.parametrize(
    ("found", "due"),
    [
        (gelu_tanh, "0.5 * a * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 * a ** 3)))"),
        (lambda x: np.maximum(x, 0), "maximum(a, 0)"),
        (lambda x: x / (1 + np.exp(-1.702 * x)), "a * sigmoid(1.702 * a)"),
    ],
)
def test_another_activation_is_an_equation_and_a_name_of_the_catalogue(found: object, due: str) -> None:
    answer = said(LoneStep(X, gelu(X)), found(X))  # type: ignore[operator]
    assert answer.startswith(f"{due} of a, what it takes, and not 0.5 * a * (1 + erf(a / sqrt(2))) (")
    assert "ctivation" in answer or "GELU" in answer


def test_items_that_show_nothing_may_stand_before_those_that_do() -> None:
    x = np.random.default_rng(4).standard_normal((400, 12)) * (np.arange(400) >= 200)[:, None]
    assert said(LoneStep(x, gelu(x)), gelu_tanh(x)).startswith("0.5 * a * (1 + tanh(")


def test_what_holds_in_some_items_alone_is_no_equation_of_a_step() -> None:
    x = np.random.default_rng(4).standard_normal((400, 12))
    found = np.where(np.arange(400)[:, None] < 200, gelu(x), gelu_tanh(x))
    assert said(LoneStep(x, gelu(x)), found) == ""


def test_what_hides_places_of_the_last_item_alone_is_no_equation() -> None:
    scores = np.random.default_rng(5).standard_normal((3, 12, 20, 20))
    hidden = np.broadcast_to((np.arange(3)[:, None, None, None] == 2) & (np.arange(20) > 13), scores.shape)
    step = LoneStep(scores, softmax(scores, np.zeros_like(hidden)))
    assert said(step, softmax(scores, hidden)) == ""


def test_an_activation_that_the_catalogue_has_not_is_an_equation_alone() -> None:
    assert said(LoneStep(X, np.maximum(X, 0)), np.tanh(X)) == "tanh(a) of a, what it takes, and not maximum(a, 0)"


def test_another_epsilon_is_fitted() -> None:
    answer = said(LoneStep(X, normed(X), (GAIN, SHIFT)), normed(X, 1e-3))
    assert answer.startswith("(a - mean(a, -1)) / sqrt(var(a, -1) + 0.001) * gain + shift of a")
    assert answer.endswith("and not (a - mean(a, -1)) / sqrt(var(a, -1) + 1e-05) * gain + shift")


def test_the_variance_over_one_less_is_told() -> None:
    assert "var(a, -1, 1)" in said(LoneStep(X, normed(X), (GAIN, SHIFT)), normed(X, ddof=1))


@pytest.mark.parametrize("least", [-1e9, -np.inf])
def test_a_softmax_is_told_beside_what_is_hidden(least: float) -> None:
    step = LoneStep(masked(least), softmax(SCORES, HIDDEN))
    assert said(step, softmax(2 * SCORES, HIDDEN)) == "softmax(2 * a) of a, what it takes, and not softmax(a)"


def test_a_softmax_over_the_queries_is_told() -> None:
    nothing = np.zeros_like(HIDDEN)
    found = softmax(np.where(HIDDEN.all(-2, keepdims=True), 0.0, SCORES), nothing, -2)  # what is as low everywhere
    answer = said(LoneStep(masked(-3e38), softmax(SCORES, HIDDEN)), found)
    assert answer == "softmax(a, -2) of a, what it takes, and not softmax(a)"


def test_what_is_right_or_of_no_known_form_is_told_nothing() -> None:
    assert said(LoneStep(X, gelu(X)), gelu(X)) == ""
    assert said(LoneStep(X, np.cumsum(X, -1)), gelu(X)) == ""
    assert said(LoneStep(X, gelu(X)), np.where(X > 2, np.nan, gelu(X))) == ""


@pytest.mark.release
def test_what_no_equation_gives_is_told_nothing() -> None:
    assert said(LoneStep(X, gelu(X)), np.random.default_rng(4).standard_normal(X.shape)) == ""
