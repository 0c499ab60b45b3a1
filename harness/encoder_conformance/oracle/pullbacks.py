"""Pullbacks of the equation language: one rule for each operation (V-13)."""

import ast
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.equation import Operands, bucketed, exchanged, rotation
from encoder_conformance.oracle.forms import FORMS
from encoder_conformance.oracle.forms.heads import append
from encoder_conformance.oracle.forms.linear import shared_by_heads
from encoder_conformance.spec.axes import BHST, KM, RH, Array, Elementwise, M, Mapped, Reduced, Rows

ByParts = Sequence[Array | None]
"""The gradient by each part of an expression, in its shape; None by a part without one."""
PartPullback = Callable[[Array], ByParts]
"""The gradient by an expression's value → those by its parts."""


def pullback_of(
    node: ast.expr, a: Arithmetic, operands: Operands, value: Elementwise, parts: Sequence[Any]
) -> PartPullback | None:
    """The rule of an expression with this value and these values of its parts; None where it has no gradient.

    Raises ValueError for an operation that has a gradient, and no rule here.
    """
    match node:
        case ast.BinOp(op=ast.Pow()):
            return _fitted(_power(a, value, *parts), parts)
        case ast.BinOp(op=operator) if type(operator) in _BINARY:
            return _fitted(_BINARY[type(operator)](a, *parts), parts)
        case ast.UnaryOp(op=ast.USub()):
            return lambda g: (-g,)
        case ast.Call(func=ast.Name(id=name)):
            if name in ("detach", "index", "round", "sign", "within"):
                return None
            if name in _FUNCTIONS:
                return _fitted(_FUNCTIONS[name](a, operands, value, *parts), parts)
        case ast.Compare() | ast.BinOp(op=ast.BitAnd() | ast.BitOr() | ast.FloorDiv()) | ast.UnaryOp(op=ast.Invert()):
            return None
    raise ValueError(f"{ast.unparse(node)}: there is no rule for its gradient")


def _fitted(rule: PartPullback, parts: Sequence[Any]) -> PartPullback:
    """The rule, with each gradient summed over the axes along which its part was broadcast."""

    def pullback(g: Elementwise) -> ByParts:
        by_parts = zip(rule(g), parts, strict=False)  # a rule may know more parts than were given
        return [by if by is None else _summed_to(by, np.shape(part)) for by, part in by_parts]

    return pullback


def _summed_to(gradient: Elementwise, shape: tuple[int, ...]) -> Reduced:
    more = gradient.ndim - len(shape)
    axes = tuple(range(more)) + tuple(
        at + more for at, size in enumerate(shape) if size == 1 and gradient.shape[at + more] != 1
    )
    return gradient.sum(axis=axes, keepdims=True).reshape(shape) if axes else np.broadcast_to(gradient, shape)


def _power(a: Arithmetic, value: Elementwise, x: Elementwise, exponent: Elementwise) -> PartPullback:
    slope = a.multiply(exponent, np.power(x, exponent - 1))
    by_exponent = None if np.ndim(exponent) == 0 else a.multiply(value, a.log(x))  # a number is a constant
    return lambda g: (a.multiply(g, slope), None if by_exponent is None else a.multiply(g, by_exponent))


def _matmul(a: Arithmetic, x: Rows, y: KM) -> PartPullback:
    def rule(g: Elementwise) -> ByParts:
        if y.ndim == 2:  # one product over all rows, as the weight's gradient is one sum
            by_y = a.matmul(x.reshape(-1, x.shape[-1]).T, g.reshape(-1, g.shape[-1]))
        else:
            by_y = a.matmul(np.swapaxes(x, -1, -2), g)
        return a.matmul(g, np.swapaxes(y, -1, -2)), by_y

    return rule


_BINARY: dict[type, Callable[[Arithmetic, Array, Array], PartPullback]] = {
    ast.Add: lambda a, x, y: lambda g: (g, g),
    ast.Sub: lambda a, x, y: lambda g: (g, -g),
    ast.Mult: lambda a, x, y: lambda g: (a.multiply(g, y), a.multiply(g, x)),
    ast.Div: lambda a, x, y: lambda g: (a.divide(g, y), -a.divide(a.multiply(a.divide(g, y), x), y)),
    ast.Mod: lambda a, x, y: lambda g: (g, -a.multiply(g, np.floor_divide(x, y))),
    ast.MatMult: _matmul,
}


def _of_slope(slope: Elementwise, a: Arithmetic) -> PartPullback:
    return lambda g: (a.multiply(g, slope),)


def _softmax(a: Arithmetic, weights: BHST, scores: BHST, mask: BHST, axis: float = -1.0) -> PartPullback:
    def rule(g: Elementwise) -> ByParts:
        along = a.sum(a.multiply(g, weights), int(axis))
        return np.where(mask, a.multiply(weights, a.subtract(g, along)), 0.0), *[None] * (1 if axis == -1.0 else 2)

    return rule


def _var(a: Arithmetic, x: Elementwise, axis: float, ddof: float = 0.0) -> PartPullback:
    count = x.shape[int(axis)]
    apart = a.subtract(x, a.divide(a.sum(x, int(axis)), a.exact(float(count))))
    slope = a.divide(2.0 * apart, a.exact(float(count) - float(ddof)))
    return lambda g: (a.multiply(g, slope), None, None)


def _mean(a: Arithmetic, x: Elementwise, axis: float) -> PartPullback:
    count = a.exact(float(x.shape[int(axis)]))
    return lambda g: (a.divide(np.broadcast_to(g, x.shape), count), None)


def _chosen(first: Elementwise) -> PartPullback:
    """The gradient goes to the first part where `first` is true, else to the second."""
    return lambda g: (np.where(first, g, 0.0), np.where(first, 0.0, g))


def _repeated(g: Elementwise, axis: int, at: int) -> Elementwise:
    """The gradient by an element that stands in the place of every one of its axis: the sum goes there."""
    here = np.arange(g.shape[axis]) == at % g.shape[axis]
    along = here.reshape([-1 if number == axis % g.ndim else 1 for number in range(g.ndim)])
    return np.where(along, g.sum(axis=axis, keepdims=True), 0.0)


def _heads(name: str) -> Callable[..., PartPullback]:
    def rule(
        a: Arithmetic, operands: Operands, value: Elementwise, x: Elementwise, form: str = "standard"
    ) -> PartPullback:
        sizes = {"num_heads": x.shape[-1] // operands.layer.head_dim} if name == "split_heads" else {}
        numbers = np.arange(1, x.size + 1).reshape(x.shape)
        order = FORMS[name].variants[form](a, numbers, **sizes)[0]  # a wrong form has no pullback; 0 is no element's

        def pullback(g: Elementwise) -> ByParts:
            by_x = np.zeros(x.size + 1, g.dtype)
            np.add.at(by_x, order, g)
            return (by_x[1:].reshape(x.shape),)

        return pullback

    return rule


def _by_heads(a: Arithmetic, o: Operands, value: Mapped, x: Rows, weight: KM, bias: M) -> PartPullback:
    wide = np.broadcast_to(bias, weight.shape[-1:])
    return shared_by_heads(a, x, weight, wide, o.layer.attention.num_heads)[1]


def _permuted(x: Elementwise, axis: int, order: Sequence[float]) -> PartPullback:
    """An element that is taken more than once, or never, gets the sum of what goes back to it."""

    def rule(g: Elementwise) -> ByParts:
        by_x = np.zeros(x.shape, g.dtype)
        np.add.at(np.moveaxis(by_x, axis, 0), [int(at) for at in order], np.moveaxis(g, axis, 0))
        return (by_x,)

    return rule


def _by_bucket(buckets: str, a: Arithmetic, o: Operands, y: BHST, table: RH, max_distance: float) -> PartPullback:
    """The gradient [R, H] of a table whose rows are added by the buckets of that variant."""
    return lambda g: (bucketed(a, o, table, max_distance, buckets)[1](np.broadcast_to(g, y.shape))[1], None)


def _unchanged(g: Elementwise) -> ByParts:
    return (g,)


_FUNCTIONS: dict[str, Callable[..., PartPullback]] = {
    "abs": lambda a, o, y, x: _of_slope(np.sign(x), a),
    "append": lambda a, o, y, x, *vector: append(a, x, *vector or (np.zeros(x.shape[-1]),))[1],
    "by_bucket": partial(_by_bucket, "standard"),
    "by_clipped": partial(_by_bucket, "clipped"),
    "by_heads": _by_heads,
    "cast": lambda a, o, y, x, dtype: _unchanged,
    "cos": lambda a, o, y, x: _of_slope(-a.sin(x), a),
    "erf": lambda a, o, y, x: _of_slope(a.multiply(a.constant(2 / np.sqrt(np.pi)), a.exp(-a.multiply(x, x))), a),
    "exchange": lambda a, o, y, x, axis, *both: lambda g: (exchanged(g, int(axis), *map(int, both)),),
    "exp": lambda a, o, y, x: _of_slope(y, a),
    "flip": lambda a, o, y, x, axis: lambda g: (np.flip(g, int(axis)),),
    "largest": lambda a, o, y, x, *axis: lambda g: (np.where(x == y, g, 0.0), None),
    "log": lambda a, o, y, x: lambda g: (a.divide(g, x),),
    "maximum": lambda a, o, y, x, other: _chosen(np.greater(x, other)),
    "mean": lambda a, o, y, x, axis: _mean(a, x, axis),
    "merge_heads": _heads("merge_heads"),
    "minimum": lambda a, o, y, x, other: _chosen(np.less(x, other)),
    "repeat_heads": lambda a, o, y, x, times: (
        lambda g: (a.sum(g.reshape(len(g), x.shape[1], int(times), *x.shape[2:]), 2, keepdims=False), None)
    ),
    "rotate": lambda a, o, y, x, *how: lambda g: (*rotation(a, o, x, *how)[1](g), None, None, None),
    "permute": lambda a, o, y, x, axis, *order: _permuted(x, int(axis), order),
    "repeat": lambda a, o, y, x, axis, at: lambda g: (_repeated(g, int(axis), int(at)), None, None),
    "roll": lambda a, o, y, x, shift, axis: lambda g: (np.roll(g, -int(shift), int(axis)),),
    "scale_gradient": lambda a, o, y, x, factor: lambda g: (a.multiply(g, factor), None),
    "sigmoid": lambda a, o, y, x: _of_slope(a.multiply(y, a.subtract(a.exact(1.0), y)), a),
    "sin": lambda a, o, y, x: _of_slope(a.cos(x), a),
    "softmax": lambda a, o, y, x, mask, *axis: _softmax(a, y, x, mask, *axis),
    "softplus": lambda a, o, y, x: _of_slope(a.divide(a.exact(1.0), a.add(a.exact(1.0), a.exp(-x))), a),
    "split_heads": _heads("split_heads"),
    "sqrt": lambda a, o, y, x: lambda g: (a.divide(g, a.multiply(a.exact(2.0), y)),),
    "sum": lambda a, o, y, x, axis: lambda g: (np.broadcast_to(g, x.shape), None),
    "tanh": lambda a, o, y, x: _of_slope(a.subtract(a.exact(1.0), a.multiply(y, y)), a),
    "transpose": lambda a, o, y, x: lambda g: (np.swapaxes(g, -1, -2),),
    "var": lambda a, o, y, x, axis, *ddof: _var(a, x, axis, *ddof),
    "where": lambda a, o, y, condition, x, other: lambda g: (None, *_chosen(condition)(g)),
}
