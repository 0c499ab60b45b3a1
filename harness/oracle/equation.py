"""Evaluates equations (rule V-12) over the oracle's arithmetic: exact, or with rounding noise. There are no gradients.

Shapes: B items, H heads, S queries, T keys; x is [B, S, D], heads are [B, H, S, d], scores [B, H, S, T].
"""

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic, Array
from encoder_conformance.oracle.steps import VARIANTS
from encoder_conformance.oracle.steps.linear import shared_by_heads
from encoder_conformance.spec.equation import SIZES, Equation, dotted
from encoder_conformance.spec.layer import Layer


@dataclass(frozen=True)
class Operands:
    """What an equation may name: `values` are stages, parameters and inputs; sizes are the layer's."""

    layer: Layer
    values: Mapping[str, Array]
    softmax_choices: Mapping[str, Any]

    def __getitem__(self, name: str) -> Array:
        """Raises ValueError for what this layer does not have, but for a bias or a shift: it adds 0."""
        if name in self.values:
            return self.values[name]
        sizes = {
            "d_model": self.layer.d_model,
            "head_dim": self.layer.head_dim,
            "num_heads": self.layer.attention.num_heads,
            "d_ff": self.layer.feed_forward.d_ff,
            "epsilon": self.layer.norm.epsilon,
            "pi": math.pi,
        }
        if name in sizes:
            return np.asarray(float(sizes[name]))
        if name == "mask":
            return np.ones((1, 1, 1, 1), dtype=np.bool_)
        if name == "bias" or name.endswith((".bias", ".shift")):
            return np.zeros((), dtype=np.float32)  # adds nothing, and widens nothing
        raise ValueError(f"this layer has no {name}, or not yet")

    def having(self, name: str, value: Array) -> "Operands":
        """With one more."""
        return replace(self, values={**self.values, name: value})


def named_inputs(parameters: Mapping[str, Array], **inputs: Array | None) -> dict[str, Array]:
    """What an equation may name before any stage is there: parameters, and those of x, memory, mask and bias that
    there are."""
    return {**parameters, **{name: value for name, value in inputs.items() if value is not None}}


def evaluate(equation: Equation, a: Arithmetic, operands: Operands) -> Array:
    """The stage that the equation gives. Raises ValueError where shapes do not fit."""
    return evaluate_tree(equation.tree, a, operands)


def evaluate_tree(tree: ast.expr, a: Arithmetic, operands: Operands) -> Array:
    """The same of an equation's tree, which may name operands that no equation may."""
    return np.asarray(_value(tree, a, operands))


def _value(node: ast.expr, a: Arithmetic, operands: Operands) -> Any:
    if name := dotted(node):
        named = operands[name]
        return a.exact(named) if name in SIZES else named
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.Constant(value=int() | float() as number):
            return a.exact(number)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(a, _value(left, a, operands), _value(right, a, operands))
        case ast.BinOp(left=left, op=operator, right=right):
            return _BINARY[type(operator)](a, _value(left, a, operands), _value(right, a, operands))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, a, operands)
        case ast.UnaryOp(op=ast.Invert(), operand=operand):
            return ~_value(operand, a, operands).astype(np.bool_)
        case ast.Compare(left=left, ops=[comparison], comparators=[right]):
            return _COMPARISONS[type(comparison)](_value(left, a, operands), _value(right, a, operands))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _FUNCTIONS[name](a, operands, *(_value(argument, a, operands) for argument in arguments))
    raise ValueError(f"{ast.unparse(node)} is no part of the language")


def _power(a: Arithmetic, x: Array, exponent: Array) -> Array:
    if exponent in (2.0, 3.0, 4.0):
        return reduce(a.multiply, [x] * int(exponent))
    return a.sqrt(x) if exponent == 0.5 else a.constant(np.power(x, exponent))


def _matmul(a: Arithmetic, x: Array, y: Array) -> Array:
    if x.ndim < 2 or y.ndim < 2 or x.shape[-1] != y.shape[-2]:
        raise ValueError(f"{x.shape} @ {y.shape}")
    return a.matmul(x, y)


_BINARY: dict[type, Callable[[Arithmetic, Array, Array], Array]] = {
    ast.Add: lambda a, x, y: a.add(x, y),
    ast.Sub: lambda a, x, y: a.subtract(x, y),
    ast.Mult: lambda a, x, y: a.multiply(x, y),
    ast.Div: lambda a, x, y: a.divide(x, y),
    ast.MatMult: _matmul,
    ast.BitAnd: lambda a, x, y: x & y,
    ast.BitOr: lambda a, x, y: x | y,
}
_COMPARISONS: dict[type, Callable[[Array, Array], Array]] = {
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
}


def _sigmoid(a: Arithmetic, x: Array) -> Array:
    return a.divide(a.exact(1.0), a.add(a.exact(1.0), a.exp(-x)))


def _mean(a: Arithmetic, x: Array, axis: float) -> Array:
    return a.divide(a.sum(x, int(axis)), a.exact(float(x.shape[int(axis)])))


def _var(a: Arithmetic, x: Array, axis: float, ddof: float = 0.0) -> Array:
    apart = a.subtract(x, _mean(a, x, axis))
    total = a.sum(a.multiply(apart, apart), int(axis))
    return a.divide(total, a.exact(float(x.shape[int(axis)]) - float(ddof)))


def _softmax(a: Arithmetic, operands: Operands, scores: Array, mask: Array, axis: float = -1.0) -> Array:
    """Over an axis, the keys' unless another is named. Masked scores are filled as the layer says."""
    form, at = VARIANTS["masked_softmax"]["standard"], int(axis)
    mask = np.broadcast_to(mask.astype(np.bool_), np.broadcast_shapes(mask.shape, scores.shape))
    choices = dict(operands.softmax_choices)
    turned = form(a, np.swapaxes(scores, at, -1), np.swapaxes(mask, at, -1), **choices)
    return np.swapaxes(turned.weights, at, -1)


def _heads(step: str) -> Callable[..., Array]:
    def arrange(a: Arithmetic, operands: Operands, x: Array, form: str = "standard") -> Array:
        sizes = {"num_heads": operands.layer.attention.num_heads} if step == "query_heads" else {}
        return np.asarray(VARIANTS[step][form](a, x, **sizes)[0])

    return arrange


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": lambda a, o, x: np.abs(x),
    "by_heads": lambda a, o, x, weight, bias: shared_by_heads(
        a, x, weight, np.broadcast_to(bias, weight.shape[-1:]), o.layer.attention.num_heads
    )[0],
    "cast": lambda a, o, x, dtype: x.astype(dtype).astype(np.float64),
    "cos": lambda a, o, x: a.cos(x),
    "erf": lambda a, o, x: a.erf(x),
    "exp": lambda a, o, x: a.exp(x),
    "flip": lambda a, o, x, axis: np.flip(x, int(axis)),
    "index": lambda a, o, x, axis: np.arange(x.shape[int(axis)]).reshape(
        [-1 if at == int(axis) % x.ndim else 1 for at in range(x.ndim)]
    ),
    "largest": lambda a, o, x, axis: x.max(axis=int(axis), keepdims=True),
    "log": lambda a, o, x: a.log(x),
    "maximum": lambda a, o, x, y: np.maximum(x, y),
    "mean": lambda a, o, x, axis: _mean(a, x, axis),
    "merge_heads": _heads("merge_heads"),
    "minimum": lambda a, o, x, y: np.minimum(x, y),
    "permute": lambda a, o, x, axis, *order: np.take(x, [int(at) for at in order], axis=int(axis)),
    "roll": lambda a, o, x, shift, axis: np.roll(x, int(shift), int(axis)),
    "sigmoid": lambda a, o, x: _sigmoid(a, x),
    "sign": lambda a, o, x: np.sign(x),
    "sin": lambda a, o, x: a.sin(x),
    "softmax": _softmax,
    "softplus": lambda a, o, x: a.add(np.maximum(x, 0.0), a.log(a.add(a.exact(1.0), a.exp(-np.abs(x))))),
    "split_heads": _heads("query_heads"),
    "sqrt": lambda a, o, x: a.sqrt(x),
    "sum": lambda a, o, x, axis: a.sum(x, int(axis)),
    "tanh": lambda a, o, x: a.tanh(x),
    "transpose": lambda a, o, x: np.swapaxes(x, -1, -2),
    "var": lambda a, o, x, axis, *ddof: _var(a, x, axis, *ddof),
    "where": lambda a, o, condition, x, y: np.where(condition.astype(np.bool_), x, y),
}
