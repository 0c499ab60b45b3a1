"""Functions of the equation language that take elements by their index, and round: values, and gradients."""

import ast

import numpy as np
import pytest

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.equation import Operands, evaluate_tree, parts_of, structure
from encoder_conformance.oracle.pullbacks import pullback_of
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.equation import Equation
from encoder_conformance.spec.load import load

EXACT = Arithmetic(np.float64)
LAYER = load().layers["post-relu"]


def value(text: str, x: Array) -> Array:
    return np.asarray(evaluate_tree(Equation(text).tree, EXACT, Operands(LAYER, {"x": x}, {})))


def test_elements_are_taken_by_index_and_rounded() -> None:
    x = np.array([[1.26, -2.5, 0.4], [-3.0, 4.5, 7.0]])
    np.testing.assert_array_equal(value("repeat(x, -1, -1)", x), [[0.4] * 3, [7.0] * 3])
    np.testing.assert_array_equal(value("round(x)", x), [[1, -2, 0], [-3, 4, 7]])
    np.testing.assert_array_equal(value("largest(abs(x))", x), [[7.0]])
    np.testing.assert_array_equal(value("index(x, -1) // 2", x), [[0, 0, 1]])
    np.testing.assert_array_equal(value("index(x, -1) % 2 == 0", x), [[True, False, True]])
    np.testing.assert_array_equal(value("cast(x * 1.001, 'bfloat16')", x)[0], [1.2578125, -2.5, 0.400390625])


def test_a_format_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="float12 is no format: float64, float32"):
        value("cast(x, 'float12')", np.ones((2, 2)))


@pytest.mark.parametrize("text", ["repeat(x, -1, -1)", "repeat(x, 0, 1)", "x % 0.75", "largest(x)"])
def test_their_gradients_are_central_differences(text: str) -> None:
    x, g = np.random.default_rng(0).normal(size=(2, 3, 4)), np.random.default_rng(1).normal(size=(2, 3, 4))
    tree, operands = Equation(text).tree, Operands(LAYER, {"x": x}, {})
    parts = [evaluate_tree(part, EXACT, operands) for part in parts_of(tree)]
    whole = evaluate_tree(tree, EXACT, operands)
    back = pullback_of(tree, EXACT, operands, whole, parts)
    assert back is not None
    along = np.broadcast_to(g, (2, 3, 4))[: whole.shape[0], : whole.shape[1], : whole.shape[2]]
    for at in np.ndindex(*x.shape):
        step = np.zeros_like(x)
        step[at] = 1e-6
        difference = ((value(text, x + step) - value(text, x - step)) * along).sum() / 2e-6
        assert np.asarray(back(along)[0])[at] == pytest.approx(difference, abs=1e-7)


@pytest.mark.parametrize("text", ["round(x)", "x // 2"])
def test_nothing_goes_back_through_a_step_function(text: str) -> None:
    tree = ast.parse(text, mode="eval").body
    assert pullback_of(tree, EXACT, Operands(LAYER, {}, {}), np.ones(1), [np.ones(1), np.ones(1)]) is None


SAME = [
    ("x + (x * x)", "x + x * x", True),
    ("x + x + x", "x + (x + x)", False),
    ("x - 1", "x - 1.0", False),
    ("-1 * x", "1 * x", False),
    ("mean(x, 0)", "mean(x, 1)", False),
    ("mean(x, 0)", "sum(x, 0)", False),
    ("x < norm1.gain", "x <= norm1.gain", False),
    ("cast(x, 'tf32')", "cast(x, 'bfloat16')", False),
]


@pytest.mark.parametrize(("one", "other", "same"), SAME, ids=[f"{one}, {other}" for one, other, _ in SAME])
def test_expressions_have_one_structure_if_they_are_written_the_same(one: str, other: str, same: bool) -> None:
    trees = [Equation(text).tree for text in (one, other)]
    assert (structure(trees[0]) == structure(trees[1])) is same
    assert (ast.unparse(trees[0]) == ast.unparse(trees[1])) is same


def test_a_known_part_is_not_computed_anew_and_changes_nothing() -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 4))
    texts = "exp(x) / sum(exp(x), -1)", "exp(x) / (c + sum(exp(x), -1))"
    specified, edited = (ast.parse(text, mode="eval").body for text in texts)
    plain = Operands(LAYER, {"x": x}, {})
    knowing = plain.knowing(specified, EXACT)
    assert {structure(Equation(text).tree) for text in ("exp(x)", "sum(exp(x), -1)")} < knowing.known.keys()
    number = np.asarray(0.5)
    right = evaluate_tree(edited, EXACT, plain.having("c", number))
    np.testing.assert_array_equal(evaluate_tree(edited, EXACT, knowing.having_number("c", number)), right)
    np.testing.assert_array_equal(evaluate_tree(specified, EXACT, knowing), evaluate_tree(specified, EXACT, plain))
    assert not knowing.having("x", 2 * x).known, "what is known of other operands says nothing of these"
    taken = Operands(LAYER, {"x": x}, {}, {structure(Equation("exp(x)").tree): np.ones(x.shape)})
    np.testing.assert_array_equal(evaluate_tree(Equation("2 * exp(x)").tree, EXACT, taken), 2 * np.ones(x.shape))
