"""Every function and operator of the equation language has a rule for its gradient: that of central differences."""

import numpy as np
import pytest

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.backward import gradients, played
from encoder_conformance.oracle.equation import Operands
from encoder_conformance.oracle.forms import FORMS
from encoder_conformance.oracle.play import softmax_choices
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.equation import FUNCTIONS, OPERATORS, Equation
from encoder_conformance.spec.load import load

EXACT = Arithmetic(np.float64)
STEP = 1e-6
LAYER = load().layers["post-relu"]
H, D = LAYER.attention.num_heads, LAYER.d_model
DRAW = np.random.default_rng(1)
VALUES = {
    "x": DRAW.uniform(0.3, 2.0, (2, 3, D)),  # of both signs where an expression subtracts 1
    "norm1": DRAW.uniform(0.3, 2.0, (2, 3, D)),
    "attention.query.weight": DRAW.normal(size=(D, D)),
    "attention.key.weight": DRAW.normal(size=(D // H, D // H)),
    "attention.query.bias": DRAW.normal(size=D),
    "attention.position_bias.table": DRAW.normal(size=(4, H)),
    "attention_scores": DRAW.normal(size=(2, H, 3, 3)),
    "context": DRAW.normal(size=(2, H, 3, D // H)),
    "mask": np.tri(3, dtype=np.bool_)[None, None],
}
SMOOTH = {
    "abs": ["abs(x - 1)"],
    "append": ["append(context)", "append(context, attention.query.bias)"],
    "by_bucket": ["attention_scores * by_bucket(attention.position_bias.table, 3)"],
    "by_clipped": ["attention_scores * by_clipped(attention.position_bias.table, 1)"],
    "by_heads": ["by_heads(x, attention.key.weight, 0.5)"],
    "by_slopes": ["attention_scores * by_slopes('interpolated')"],
    "cast": ["cast(x, 'float64')"],
    "cos": ["cos(x)"],
    "erf": ["erf(x)"],
    "exchange": ["exchange(x, 1, 0, 2)", "exchange(x, -1, 1, 99)"],
    "exp": ["exp(x)"],
    "flip": ["flip(x, 1)"],
    "largest": ["largest(x, -1)", "largest(x)"],
    "log": ["log(x)"],
    "maximum": ["maximum(x, norm1)"],
    "mean": ["mean(x, 1)"],
    "merge_heads": [f"merge_heads(context, '{form}')" for form in FORMS["merge_heads"].variants],
    "minimum": ["minimum(x, norm1)"],
    "permute": ["permute(x, 1, 2, 0, 1)", "permute(x, 1, 2, 2, 0)"],
    "repeat": ["x * repeat(x, 1, 2)"],
    "repeat_heads": ["repeat_heads(context, 2)"],
    "rotate": ["rotate(context, 100.0, 2, 'halves')", "rotate(context, 100.0, 4, 'interleaved')"],
    "roll": ["roll(x, 1, 1)", "roll(x, -2, -1)"],
    "sigmoid": ["sigmoid(x)"],
    "sin": ["sin(x)"],
    "softmax": ["softmax(attention_scores, mask)", "softmax(attention_scores, mask, -3)"],
    "softplus": ["softplus(x - 1)"],
    "split_heads": [f"split_heads(x, '{form}')" for form in FORMS["split_heads"].variants],
    "sqrt": ["sqrt(x)"],
    "sum": ["sum(x, 0)"],
    "tanh": ["tanh(x)"],
    "transpose": ["transpose(context)"],
    "var": ["var(x, -1)", "var(x, 1, 1)"],
    "where": ["where(x > 1, x, norm1 * x)", "where(x, norm1, x)"],
    "Add": ["x + attention.query.bias"],
    "Sub": ["mean(x, -1) - norm1"],
    "Mult": ["x * attention.query.bias * (x > 1)"],
    "Div": ["attention.query.bias / x"],
    "Mod": ["x % 0.7", "x % norm1"],
    "Pow": ["x ** 3", "x ** 0.5", "x ** -1.3", "x ** norm1", "mean(x, -1) ** attention.query.bias"],
    "MatMult": ["x @ attention.query.weight", "context @ transpose(context)"],
    "USub": ["-x"],
}
FLAT = {
    "index": ["index(x, 1)"],
    "round": ["round(x)"],
    "within": ["within(1, 0)"],
    "sign": ["sign(x - 1)"],
    "FloorDiv": ["x // norm1"],
    "BitAnd": ["(x > 1) & (x < 1.5)"],
    "BitOr": ["(x < 1) | (x > 1.5)"],
    "Invert": ["~(x > 1)"],
    "Eq": ["x == norm1"],
    "NotEq": ["x != norm1"],
    "Lt": ["x < norm1"],
    "LtE": ["x <= norm1"],
    "Gt": ["x > norm1"],
    "GtE": ["x >= norm1"],
}
"""Whose values do not change with their operands, but for jumps."""
OF_ITS_OWN = {"detach": ("detach(sin(x))", 0.0), "scale_gradient": ("scale_gradient(sin(x), 0.25)", 0.25)}
"""Expression, and the part of the gradient that goes back, by definition."""


def operands(changed: dict[str, Array]) -> Operands:
    return Operands(LAYER, {**VALUES, **changed}, softmax_choices(LAYER))


def difference(text: str, name: str, direction: Array, cotangent: Array) -> float:
    """The central difference of sum(value * cotangent) along a direction of one operand."""
    ahead, behind = (
        played({"output": Equation(text)}, EXACT, operands({name: VALUES[name] + step * direction}))["output"].value
        for step in (STEP, -STEP)
    )
    return float(np.sum((np.asarray(ahead, np.float64) - behind) * cotangent)) / (2 * STEP)


def assert_gradients(text: str, part: float = 1.0) -> None:
    """`part`: of the difference, what goes back."""
    layer = played({"output": Equation(text)}, EXACT, operands({}))
    cotangent = np.random.default_rng(2).normal(size=layer["output"].value.shape)
    found = gradients(layer, EXACT, cotangent)
    for name in Equation(text).names - {"mask"}:
        direction = np.random.default_rng(3).normal(size=VALUES[name].shape)
        along = float(np.sum(found.get(name, 0.0) * direction))
        expected = part * difference(text, name, direction, cotangent)
        assert along == pytest.approx(expected, rel=1e-6, abs=1e-6), (text, name)
        assert name not in found or found[name].shape == VALUES[name].shape


def test_every_function_and_operator_is_here() -> None:
    assert {*SMOOTH, *FLAT, *OF_ITS_OWN} == {*FUNCTIONS, *(operator.__name__ for operator in OPERATORS)}


@pytest.mark.parametrize("name", [*SMOOTH, *FLAT])
def test_a_gradient_is_that_of_differences(name: str) -> None:
    for text in {**SMOOTH, **FLAT}[name]:
        assert_gradients(text)
        assert_gradients(f"sin({text}) * mean(mean(mean(x, 0), 1), 2)")  # as a part of something


@pytest.mark.parametrize("name", OF_ITS_OWN)
def test_what_is_a_gradient_by_definition(name: str) -> None:
    assert_gradients(*OF_ITS_OWN[name])
