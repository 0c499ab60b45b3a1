"""Functions of one number that are activations somewhere in the field, and which of them gives what was observed."""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.equation import Operands, evaluate_tree
from encoder_conformance.oracle.forms.activation import ACTIVATION
from encoder_conformance.spec.axes import Elementwise
from encoder_conformance.spec.load import load

FUNCTIONS_OF_ONE = (
    "maximum({0}, 0)",
    "maximum({0}, 0) ** 2",
    "maximum({0}, c * {0})",
    "minimum(maximum({0}, 0), c)",
    "{0} * sigmoid({0})",
    "{0} * sigmoid(c * {0})",
    "sigmoid({0})",
    "tanh({0})",
    "erf({0})",
    "0.5 * {0} * (1 + erf({0} / sqrt(2)))",
    "0.5 * {0} * (1 + tanh(sqrt(2 / pi) * ({0} + 0.044715 * {0} ** 3)))",
    "0.5 * {0} * (1 + tanh(c * {0}))",
    "softplus({0})",
    "{0} * tanh(softplus({0}))",
    "where({0} > 0, {0}, exp(minimum({0}, 0)) - 1)",
    "where({0} > 0, {0}, c * (exp(minimum({0}, 0)) - 1))",
    "1.0507009873554805 * where({0} > 0, {0}, 1.6732632423543772 * (exp(minimum({0}, 0)) - 1))",
    "{0} / (1 + abs({0}))",
    "{0} * minimum(maximum({0} + 3, 0), 6) / 6",
    "minimum(maximum({0} + 3, 0), 6) / 6",
    "where(abs({0}) > c, {0}, 0)",
    "{0} - tanh({0})",
    "sin({0})",
    "abs({0})",
    "exp({0})",
    "{0}",
    "{0} ** 2",
    "minimum(maximum({0}, -1), 1)",
    "where({0} > 0, {0}, c * (exp(minimum({0}, 0) / c) - 1))",
    "where({0} > c, {0} - c, where({0} < 0 - c, {0} + c, 0))",
    "where({0} > c, {0}, 0)",
    "where({0} > 0, 1, 0)",
    "sign({0})",
    "cos({0})",
    "log(sigmoid({0}))",
    "softplus({0}) - log(2)",
    "0.5 * ({0} + sqrt({0} ** 2 + c))",
    "0.5 * (sqrt({0} ** 2 + 1) - 1) + {0}",
    "exp(-({0} ** 2))",
    "{0} * erf(softplus({0}))",
    "{0} * tanh(exp(minimum({0}, 50)))",
    "{0} + sin(c * {0}) ** 2 / c",
    "maximum({0}, 0) ** 3",
    "sign({0}) * log(1 + abs({0}))",
)
"""Equations. `{0}` is what they are applied to, and `c` a number that is fitted to the data."""
_STARTS = (0.01, 0.1, 0.2, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 6.0, 10.0, -1.0)
"""Where `c` is looked for first."""
_STEPS, _SMALL = 20, 1e-6
"""Gauss and Newton's steps at most, and the relative step that a derivative is taken over."""
_SAME = 2e-5
"""Of the largest number: what float32 constants leave."""


class FunctionOfOne(NamedTuple):
    """An equation of x. `fitted`: it has a number that was found by least squares, written with four digits."""

    text: str
    fitted: bool


def function_of_one(inputs: Elementwise, observed: Elementwise) -> FunctionOfOne | None:
    """The function, of those that no layer may name, that gives the `observed` numbers [n] of the `inputs` [n]; None
    where none does."""
    with np.errstate(all="ignore"):
        for form in (form for form in FUNCTIONS_OF_ONE if form not in ACTIVATION.equation.values()):
            text = form.format("x")
            is_fitted = re.search(r"\bc\b", text) is not None
            for c in _fitted(text, inputs, observed) if is_fitted else (0.0,):
                if np.abs(_value(text, inputs, c) - observed).max() <= _SAME * np.abs(observed).max():
                    return FunctionOfOne(re.sub(r"\bc\b", f"{c:.4g}", text), is_fitted)
    return None


def _fitted(text: str, inputs: Elementwise, observed: Elementwise) -> Iterator[float]:
    """The number that leaves the least square error, from the start that leaves least; nothing where there is none."""
    left = {c: float(np.sum((_value(text, inputs, c) - observed) ** 2)) for c in _STARTS}
    c = min(left, key=lambda each: left[each] if np.isfinite(left[each]) else np.inf)
    for _ in range(_STEPS):
        width = _SMALL * abs(c)
        slope = (_value(text, inputs, c + width) - _value(text, inputs, c - width)) / (2 * width)
        length = float(np.vdot(slope, slope))
        step = float(np.vdot(slope, observed - _value(text, inputs, c))) / length if length else np.nan
        if not np.isfinite(step) or c + step == 0:
            return
        c += float(np.clip(step, -abs(c), abs(c)))
        if abs(step) <= 1e-9 * abs(c):
            break
    yield c


def _value(text: str, x: Elementwise, c: float) -> Elementwise:
    """The equation of x and c alone, in float64."""
    layer = next(iter(load().layers.values()))  # of whose sizes it names none
    operands = Operands(layer, {"x": x, "c": np.asarray(c)}, {})
    return np.asarray(evaluate_tree(ast.parse(text, mode="eval").body, Arithmetic(np.float64), operands))
