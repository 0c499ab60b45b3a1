"""Evaluates equations (rule V-12) over the oracle's arithmetic: exact, or with rounding noise.

An equation's operands may have any shapes that broadcast: x is [B, S, D], heads are [B, H, S, d], scores [B, H, S, T].
"""

import ast
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.forms import FORMS
from encoder_conformance.oracle.forms.forward_only import narrowed
from encoder_conformance.oracle.forms.heads import append
from encoder_conformance.oracle.forms.linear import shared_by_heads
from encoder_conformance.oracle.forms.position_bias import linear
from encoder_conformance.oracle.tape import Pullback
from encoder_conformance.spec.axes import BHST, KM, Array, BHSd, BHTd, Elementwise, Mapped, Reduced, Rows
from encoder_conformance.spec.case import within
from encoder_conformance.spec.dtypes import FORMATS as DTYPES
from encoder_conformance.spec.equation import SIZES, Equation, dotted
from encoder_conformance.spec.layer import Layer


@dataclass(frozen=True)
class Operands:
    """The operands that an equation may name: `values` are stages, parameters and inputs; sizes are the layer's.

    `known`: `structure` of an expression → its exact value with these operands, which is not computed anew.
    """

    layer: Layer
    values: Mapping[str, Array]
    softmax_choices: Mapping[str, Any]
    known: Mapping[int, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Elementwise:
        """Raises ValueError for an operand that this layer does not have, except a bias or a shift, which is 0."""
        if name in self.values:
            return self.values[name]
        if size := _SIZES.get(name):
            return np.asarray(float(size(self)))
        if name == "mask":
            return np.ones((1, 1, 1, 1), dtype=np.bool_)
        if name == "bias" or name.endswith((".bias", ".shift")):
            return np.zeros((), dtype=np.float32)  # adds nothing, and widens nothing
        raise ValueError(f"this layer has no {name}, or not yet")

    def having(self, name: str, value: Array) -> "Operands":
        """These operands and one more."""
        return Operands(self.layer, {**self.values, name: value}, self.softmax_choices)

    def having_number(self, name: str, value: Array) -> "Operands":
        """These operands and a number that no expression reads whose value is known."""
        return Operands(self.layer, {**self.values, name: value}, self.softmax_choices, self.known)

    def knowing(self, tree: ast.expr, a: Arithmetic) -> "Operands":
        """These operands, with the value of every part of the tree that can be computed; `a` is exact."""
        known = dict[int, Any]()
        operands = Operands(self.layer, self.values, self.softmax_choices, known)
        for part in _innermost_first(tree):
            if parts_of(part) and structure(part) not in known:
                with suppress(ValueError, IndexError, TypeError, KeyError, OverflowError):
                    known[structure(part)] = _program_of(part)(a, operands)
        return operands


_SIZES: dict[str, Callable[[Operands], float]] = {
    "d_model": lambda operands: operands.layer.d_model,
    "head_dim": lambda operands: operands.layer.head_dim,
    "num_heads": lambda operands: operands.layer.attention.num_heads,
    "d_ff": lambda operands: operands.layer.feed_forward.d_ff,
    "epsilon": lambda operands: operands.layer.norm.epsilon,
    "pi": lambda operands: math.pi,
    "batch_size": lambda operands: operands.values["x"].shape[0],
    "sequence_length": lambda operands: operands.values["x"].shape[1],
}


def evaluate(equation: Equation, a: Arithmetic, operands: Operands) -> Elementwise:
    """The stage that the equation gives. Raises ValueError where shapes do not fit."""
    return evaluate_tree(equation.tree, a, operands)


def evaluate_tree(tree: ast.expr, a: Arithmetic, operands: Operands) -> Elementwise:
    """The value of an equation's tree, which may name operands that no equation may."""
    try:
        return np.asarray(_program_of(tree)(a, operands))
    except OverflowError:  # of an axis or an index
        raise ValueError(f"{ast.unparse(tree)} has a number that is no axis and no index") from None


Program = Callable[[Arithmetic, Operands], Any]


@lru_cache(maxsize=2**14)
def _program_of(node: ast.expr) -> Program:
    """The computation that an expression stands for, taken apart once: a search runs it some thirty times, and trees
    that differ in one place share the others."""
    if name := dotted(node):
        return (lambda a, operands: a.exact(operands[name])) if name in SIZES else (lambda a, operands: operands[name])
    combine, parts = _combination(node), [_program_of(part) for part in parts_of(node)]
    if not parts:
        return combine
    number = structure(node)

    def run(a: Arithmetic, operands: Operands) -> Any:
        if number in operands.known:
            return operands.known[number]
        return combine(a, operands, *[part(a, operands) for part in parts])

    return run


@lru_cache(maxsize=2**14)
def structure(node: ast.expr) -> int:
    """A number that no other expression has, but one that is written the same."""
    return _number(_head(node), *map(structure, parts_of(node)))


@lru_cache(maxsize=2**17)
def _number(*_: object) -> int:
    """The number of what begins so and has parts of these numbers; another, where it was not used for long."""
    return next(_NUMBERS)


_NUMBERS = itertools.count()


def _head(node: ast.expr) -> object:
    """What an expression is beside its parts."""
    match node:
        case ast.Constant(value=value):
            return "constant", repr(value)
        case ast.BinOp(op=operator) | ast.UnaryOp(op=operator) | ast.Compare(ops=[operator]):
            return type(operator)
        case ast.Call(func=ast.Name(id=name)):
            return "call", name
    return dotted(node) or ast.dump(node)


def _innermost_first(node: ast.expr) -> Iterator[ast.expr]:
    for part in parts_of(node):
        yield from _innermost_first(part)
    yield node


def parts_of(node: ast.expr) -> list[ast.expr]:
    """The expressions that an expression is made of; none of a name and of a constant."""
    match node:
        case ast.Call(args=arguments):
            return list(arguments)
        case ast.BinOp(left=left, right=right) | ast.Compare(left=left, comparators=[right]):
            return [left, right]
        case ast.UnaryOp(operand=operand):
            return [operand]
    return []


def combined(node: ast.expr, parts: Sequence[Any], a: Arithmetic, operands: Operands) -> Any:
    """The value of an expression that is no name, given the values of its parts."""
    return _combination(node)(a, operands, *parts)


def _combination(node: ast.expr) -> Callable[..., Any]:
    """(arithmetic, operands, values of the parts) → the value of an expression that is no name."""
    match node:
        case ast.Constant(value=str() as text):
            return lambda a, operands: text
        case ast.Constant(value=int() | float() as number):
            exact = _is_exact(number)
            return lambda a, operands: a.exact(number) if exact else a.constant(number)
        case ast.BinOp(op=ast.Pow()):
            return lambda a, operands, x, exponent: _power(a, x, exponent)
        case ast.BinOp(op=operator):
            binary = _BINARY[type(operator)]
            return lambda a, operands, x, y: binary(a, x, y)
        case ast.UnaryOp(op=ast.USub()):
            return lambda a, operands, x: -x
        case ast.UnaryOp(op=ast.Invert()):
            return lambda a, operands, x: ~x.astype(np.bool_)
        case ast.Compare(ops=[comparison]):
            compare = _COMPARISONS[type(comparison)]
            return lambda a, operands, x, y: compare(x, y)
        case ast.Call(func=ast.Name(id=name)):
            return _FUNCTIONS[name]
    raise ValueError(f"{ast.unparse(node)} is no part of the language")


def _is_exact(number: float) -> bool:
    """Whether every format holds it: whole numbers up to 256, halves and quarters of them."""
    return (math.frexp(number)[0] * 2**8).is_integer()


def _power(a: Arithmetic, x: Elementwise, exponent: Elementwise) -> Elementwise:
    if np.ndim(exponent):
        return a.constant(np.power(x, exponent))
    if exponent in (2.0, 3.0, 4.0):
        return reduce(a.multiply, [x] * int(exponent))
    return a.sqrt(x) if exponent == 0.5 else a.constant(np.power(x, exponent))


def _matmul(a: Arithmetic, x: Rows, y: KM) -> Mapped:
    if x.ndim < 2 or y.ndim < 2 or x.shape[-1] != y.shape[-2]:
        raise ValueError(f"{x.shape} @ {y.shape}")
    return a.matmul(x, y)


_BINARY: dict[type, Callable[[Arithmetic, Array, Array], Array]] = {
    ast.Add: lambda a, x, y: a.add(x, y),
    ast.Sub: lambda a, x, y: a.subtract(x, y),
    ast.Mult: lambda a, x, y: a.multiply(x, y),
    ast.Div: lambda a, x, y: a.divide(x, y),
    ast.FloorDiv: lambda a, x, y: np.floor_divide(x, y),
    ast.Mod: lambda a, x, y: np.mod(x, y),
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


def _sigmoid(a: Arithmetic, x: Elementwise) -> Elementwise:
    return a.divide(a.exact(1.0), a.add(a.exact(1.0), a.exp(-x)))


def _mean(a: Arithmetic, x: Elementwise, axis: float) -> Reduced:
    return a.divide(a.sum(x, int(axis)), a.exact(float(x.shape[int(axis)])))


def _var(a: Arithmetic, x: Elementwise, axis: float, ddof: float = 0.0) -> Reduced:
    apart = a.subtract(x, _mean(a, x, axis))
    total = a.sum(a.multiply(apart, apart), int(axis))
    return a.divide(total, a.exact(float(x.shape[int(axis)]) - float(ddof)))


def _softmax(a: Arithmetic, operands: Operands, scores: BHST, mask: BHST, axis: float = -1.0) -> BHST:
    """Softmax over an axis, the keys' unless another is named. Masked scores are filled as the layer says."""
    form, at = FORMS["softmax"].variants["standard"], int(axis)
    mask = np.broadcast_to(mask.astype(np.bool_), np.broadcast_shapes(mask.shape, scores.shape))
    choices = dict(operands.softmax_choices)
    turned = form(a, np.swapaxes(scores, at, -1), np.swapaxes(mask, at, -1), **choices)
    return np.swapaxes(turned.weights, at, -1)


CASTS = (*DTYPES, "tf32")
"""Formats that `cast` rounds to."""


def _cast(x: Elementwise, dtype: str) -> Elementwise:
    """x rounded to a format by its name."""
    if dtype not in CASTS:
        raise ValueError(f"{dtype} is no format: {', '.join(CASTS)}")
    return narrowed(x, dtype)


def exchanged(x: Elementwise, axis: int, one: int, other: int) -> Elementwise:
    """x with two elements of an axis in each other's place; as it is, where it has not both."""
    order = np.arange(x.shape[axis])
    if max(one, other) < len(order):
        order[[one, other]] = order[[other, one]]
    return np.take(x, order, axis=axis)


def _heads(name: str) -> Callable[..., Array]:
    def arrange(a: Arithmetic, operands: Operands, x: Elementwise, form: str = "standard") -> Elementwise:
        sizes = {"num_heads": x.shape[-1] // operands.layer.head_dim} if name == "split_heads" else {}
        return np.asarray(FORMS[name].variants[form](a, x, **sizes)[0])

    return arrange


def rotation(
    a: Arithmetic, operands: Operands, x: BHSd, theta: float, rotated: float, pairing: str
) -> tuple[BHSd, Pullback]:
    """x turned by its positions, which are those that the operands have, or 0 … S − 1."""
    form = FORMS["rotation"].variants["standard" if pairing == "halves" else pairing]
    positions = operands.values.get("positions")
    turned: tuple[BHSd, Pullback] = form(a, x, theta=float(theta), rotated=int(rotated), positions=positions)
    return turned


def bucketed(
    a: Arithmetic, operands: Operands, table: Array, max_distance: float, buckets: str = "standard"
) -> tuple[BHST, Pullback]:
    """[1, H, S, S] of the table [R, H], by the bucket of key − query, which the variant `buckets` tells."""
    S = operands.values["x"].shape[1]
    form = FORMS["position_bias"].variants[buckets]
    of: tuple[BHST, Pullback] = form(
        a, np.zeros((1, table.shape[1], S, S)), table, buckets=len(table), max_distance=int(max_distance)
    )
    return of


def _by_slopes(a: Arithmetic, operands: Operands, slopes: str) -> BHST:
    """[1, H, S, S], less the further key and query are apart."""
    S, H = operands.values["x"].shape[1], operands.layer.attention.num_heads
    return linear(a, np.zeros((1, H, S, S)), np.zeros((1, H)), slopes=slopes, head_dim=operands.layer.head_dim)[0]


def _near(a: Arithmetic, operands: Operands, left: float, right: float) -> BHST:
    """[1, 1, S, S], true where a key is within a window about its query."""
    S = operands.values["x"].shape[1]
    near = within((int(left), int(right)), S, S)
    assert near is not None
    return near


def _of_arithmetic(name: str) -> Callable[..., Elementwise]:
    return lambda a, operands, x: getattr(a, name)(x)


def _appended(a: Arithmetic, operands: Operands, x: BHTd, *vector: Array) -> BHTd:
    return append(a, x, *vector or (np.zeros(x.shape[-1]),))[0]


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _of_arithmetic(name) for name in ("cos", "erf", "exp", "log", "sin", "sqrt", "tanh")},
    "abs": lambda a, o, x: np.abs(x),
    "append": _appended,
    "by_bucket": lambda *given: bucketed(*given)[0],
    "by_clipped": lambda a, o, table, most: bucketed(a, o, table, most, "clipped")[0],
    "by_slopes": _by_slopes,
    "by_heads": lambda a, o, x, weight, bias: shared_by_heads(
        a, x, weight, np.broadcast_to(bias, weight.shape[-1:]), o.layer.attention.num_heads
    )[0],
    "cast": lambda a, o, x, dtype: _cast(x, dtype),
    "detach": lambda a, o, x: x,
    "exchange": lambda a, o, x, axis, one, other: exchanged(x, int(axis), int(one), int(other)),
    "flip": lambda a, o, x, axis: np.flip(x, int(axis)),
    "index": lambda a, o, x, axis: np.arange(x.shape[int(axis)]).reshape(
        [-1 if at == int(axis) % x.ndim else 1 for at in range(x.ndim)]
    ),
    "largest": lambda a, o, x, *axis: x.max(axis=int(axis[0]) if axis else None, keepdims=True),
    "maximum": lambda a, o, x, y: np.maximum(x, y),
    "mean": lambda a, o, x, axis: _mean(a, x, axis),
    "merge_heads": _heads("merge_heads"),
    "minimum": lambda a, o, x, y: np.minimum(x, y),
    "permute": lambda a, o, x, axis, *order: np.take(x, [int(at) for at in order], axis=int(axis)),
    "repeat": lambda a, o, x, axis, at: np.broadcast_to(np.take(x, [int(at)], axis=int(axis)), x.shape),
    "repeat_heads": lambda a, o, x, times: np.repeat(x, int(times), axis=1),
    "rotate": lambda *given: rotation(*given)[0],
    "roll": lambda a, o, x, shift, axis: np.roll(x, int(shift), int(axis)),
    "round": lambda a, o, x: np.rint(x),
    "scale_gradient": lambda a, o, x, factor: x,
    "sigmoid": lambda a, o, x: _sigmoid(a, x),
    "sign": lambda a, o, x: np.sign(x),
    "softmax": _softmax,
    "softplus": lambda a, o, x: a.add(np.maximum(x, 0.0), a.log(a.add(a.exact(1.0), a.exp(-np.abs(x))))),
    "split_heads": _heads("split_heads"),
    "sum": lambda a, o, x, axis: a.sum(x, int(axis)),
    "transpose": lambda a, o, x: np.swapaxes(x, -1, -2),
    "var": lambda a, o, x, axis, *ddof: _var(a, x, axis, *ddof),
    "where": lambda a, o, condition, x, y: np.where(condition.astype(np.bool_), x, y),
    "within": _near,
}
