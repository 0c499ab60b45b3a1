"""Edits of an equation: every equation that differs from it in one place.

An edit is one of those that people make by mistake: another operand, an operation left out or done twice, another axis,
another order of a tensor's elements, another use of the mask, a number. A number that an edit needs is the name `c`,
which `constants` fits to the data.
"""

import ast
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from encoder_conformance.diagnosis.identify.forms import (
    CENTRES,
    OF_BLOCKS,
    OF_INDEX,
    OF_MASK,
    OF_SOFTMAX,
    OF_SQUARE,
    QUANTISERS,
    SIZED,
)
from encoder_conformance.diagnosis.identify.samples import EXACT
from encoder_conformance.oracle.equation import Operands, evaluate_tree, parts_of
from encoder_conformance.spec.equation import FUNCTIONS, SIZES, dotted

CONSTANT = "c"
Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]
"""Operand → its shape: what may stand in the place of what."""
_NOT_AROUND = ("transpose", "detach", "round")
_AROUND = (
    *(f"{name}({{0}})" for name in sorted(FUNCTIONS) if FUNCTIONS[name] == (1, 1) and name not in _NOT_AROUND),
    "maximum({0}, 0)",
    "1 - {0}",
    "{0} ** 2",
    "c * tanh({0} / c)",
    "minimum({0}, c)",
    "maximum({0}, c)",
)
"""What may be done to any part of an equation."""
_OF_TWO = (
    "{0} + {1}", "{0} - {1}", "{1} - {0}", "{0} * {1}", "{0} / {1}", "{1} / {0}", "{0} + {1} + {1}", "{0} - 2 * {1}",
    "{0} * {1} * {1}", "{0} * {0} * {1}", "{0} * (1 + {1})", "{0} / {1} / {1}", "{0} / ({1} + c)", "{0} / sqrt({1})",
    "maximum({0}, {1})", "minimum({0}, {1})",
)  # fmt: skip
"""Operations on two parts that an operator may be mistaken for."""
_OF_AN_AXIS = (
    "cast", "exchange", "flip", "index", "largest", "mean", "merge_heads", "permute", "repeat", "roll", "split_heads",
    "sum", "var",
)  # fmt: skip
"""Functions whose further arguments are axes, indices or words."""
_ARRANGED = ("interleaved", "by-reshape")
_OF_ONE = ("erf", "tanh", "sigmoid", "sin", "cos", "exp", "abs")
"""Functions that one of them may be mistaken for."""


def parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def in_forms(forms: Iterable[str], *of: str) -> Iterator[ast.expr]:
    """Yield each form, with what it is a form `of` in the places `{0}` and `{1}`."""
    return (parsed(form.format(*of)) for form in forms)


def edits(tree: ast.expr, operands: Operands, shape: Shape, factors: Sequence[str] = (CONSTANT,)) -> Iterator[ast.expr]:
    """Yield every tree that differs in one place, some with the name `c` for a number, and some of them twice.

    `operands` are those that it may read, `shape` is that of the result, and `factors` what a part of an axis may be
    multiplied with.
    """
    shapes = {name: value.shape for name, value in operands.values.items()}
    yield from _of_the_result(ast.unparse(tree), shapes, shape)
    yield from _nested(tree, shapes, shape)
    for node, put, of_node in _edited(tree, operands):
        for other in (*_instead(node, shapes), *_of_shape(node, of_node, operands)):
            yield put(other)
    yield from in_parts(tree, operands, factors)


def in_parts(tree: ast.expr, operands: Operands, factors: Sequence[str] = (CONSTANT,)) -> Iterator[ast.expr]:
    """Yield every tree with a part of an axis of an operand, or of a sum inside, multiplied by one of the factors."""
    for node, put, shape in _edited(tree, operands):
        if dotted(node) or (node is not tree and _is_a_sum(node)):
            yield from (put(other) for other in in_a_part(ast.unparse(node), shape, operands, factors))


def _edited(tree: ast.expr, operands: Operands) -> Iterator[tuple[ast.expr, Callable[[ast.expr], ast.expr], Shape]]:
    """Yield each part that may be edited, how to put another in its place, and its shape: () of a number and the mask.

    An axis is edited with its function; and of an absent operand nothing says what becomes of it.
    """
    beside = {part for node, _ in places(tree) for part in _beside(node)}
    for node, put in places(tree):
        name = dotted(node)
        absent = name and name not in operands.values and name not in SIZES and name != "mask"
        if node not in beside and not absent:
            is_plain = isinstance(node, ast.Constant) or name == "mask"
            yield node, put, () if is_plain else _shape_of(node, operands)


def _beside(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the parts of an argument that is an axis, an index or a word."""
    match node:
        case ast.Call(func=ast.Name(id=name), args=[_, *rest]) if name in _OF_AN_AXIS:
            for argument in rest:
                yield from _parts(argument)
        case ast.Call(func=ast.Name(id="softmax"), args=[_, _, axis]):
            yield from _parts(axis)
        case ast.Constant(value=str()):  # the pairs of a rotation
            yield node


def _shape_of(node: ast.expr, operands: Operands) -> Shape:
    with np.errstate(all="ignore"):
        return np.shape(evaluate_tree(node, EXACT, operands))


def _of_shape(node: ast.expr, shape: Shape, operands: Operands) -> Iterator[ast.expr]:
    """Yield what a part that is a tensor of this shape may be taken for: one element of an axis for all, centred,
    rounded, with its transpose, or with one more operand."""
    if not shape or isinstance(node, ast.Compare):
        return
    text = f"({ast.unparse(node)})"
    for axis in (axis for axis in range(-len(shape), 0) if shape[axis] > 1):
        yield from (parsed(f"repeat({text}, {axis}, {at})") for at in (0, -1))
        yield parsed(f"{text} - mean({text}, {axis})")
    yield from in_forms(QUANTISERS if len(shape) > 1 else (q for q in QUANTISERS if "-2" not in q), text)
    yield from in_forms(SIZED, text)
    if shape[-1] == shape[-2:][0] and len(shape) > 1:
        yield from in_forms(OF_SQUARE, text)
    for other, value in operands.values.items():
        if other != "mask" and value.shape in (shape, shape[-1:]) and dotted(node) != other:
            yield parsed(f"{text} + {other}")


def _is_a_sum(node: ast.expr) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub)


def in_a_part(text: str, shape: Shape, operands: Operands, factors: Sequence[str] = (CONSTANT,)) -> Iterator[ast.expr]:
    """Yield an expression of this shape with a part of an axis multiplied."""
    for axis in (axis for axis in range(-len(shape), 0) if shape[axis] > 1):
        size = size_of_axis(operands, shape, axis)
        forms = (*OF_INDEX, *(OF_BLOCKS if size == "sequence_length" else ()))
        for at, factor in product((form.format(size) for form in forms), factors):
            yield parsed(f"where(index({text}, {axis}) {at}, {factor} * ({text}), {text})")


def size_of_axis(operands: Operands, shape: Shape, axis: int) -> str:
    """Return the name of the size that an axis has, or a number."""
    of_batch = ("batch_size",) if axis == -len(shape) < -2 else ("num_heads", "sequence_length")
    names = (*of_batch, "head_dim", "d_model", "d_ff")
    return next((name for name in names if operands[name] == shape[axis]), str(shape[axis]))


def _nested(tree: ast.expr, shapes: Shapes, shape: Shape) -> Iterator[ast.expr]:
    """Yield the step taken twice: the equation in the place of an operand of its own shape, wherever that stands."""
    for name in sorted({name for node, _ in places(tree) if (name := dotted(node))}):
        if shapes.get(name) == shape:
            yield with_named(tree, name, parsed(ast.unparse(tree)))


def with_named(tree: ast.expr, name: str, by: ast.expr) -> ast.expr:
    """Return the tree with an expression in the place of every operand of this name."""
    for node, _ in [*places(tree)]:
        if dotted(node) == name:
            tree = _put(tree, node, by)
    return tree


def is_held_by(tree: ast.expr, present: Container[str]) -> bool:
    """Whether each operand that the tree names is `present` in some case. One that is not may be added to another
    operand, which says nothing of it; with a number it would stand for a number, and nobody wrote that."""
    match tree:
        case ast.BinOp(left=other, op=ast.Add() | ast.Sub(), right=absent) if _is_absent(absent, present):
            return _reads(other) and is_held_by(other, present)
        case ast.BinOp(left=absent, op=ast.Add(), right=other) if _is_absent(absent, present):
            return _reads(other) and is_held_by(other, present)
        case ast.Call(func=ast.Name(id="by_heads"), args=[x, weight, absent]) if _is_absent(absent, present):
            return is_held_by(x, present) and is_held_by(weight, present)
    return not _is_absent(tree, present) and all(is_held_by(part, present) for part in parts_of(tree))


def _is_absent(node: ast.expr, present: Container[str]) -> bool:
    name = dotted(node)
    return bool(name) and name not in present and name not in (*SIZES, "mask", CONSTANT)


def _reads(tree: ast.expr) -> bool:
    """Whether any operand is named, and not numbers and sizes alone."""
    return any(name not in SIZES for node, _ in places(tree) if (name := dotted(node)))


def _of_the_result(text: str, shapes: Shapes, shape: Shape) -> Iterator[ast.expr]:
    """Yield the result in another order of its elements, and with another tensor added."""
    for other, its_shape in shapes.items():
        if its_shape in (shape, shape[-1:]) and other != "mask":
            yield parsed(f"{text} + {CONSTANT} * {other}")
    yield from _reordered(f"({text})", shape)


def _reordered(text: str, shape: Shape) -> Iterator[ast.expr]:
    for axis in range(-len(shape), 0):
        if shape[axis] > 1:
            yield parsed(f"flip({text}, {axis})")
            yield from (parsed(f"roll({text}, {shift}, {axis})") for shift in (1, -1, 2, -2))


def places(tree: ast.expr) -> Iterator[tuple[ast.expr, Callable[[ast.expr], ast.expr]]]:
    """Yield each part of the tree, and how to put another in its place."""
    yield from ((part, partial(_put, tree, part)) for part in _parts(tree))


def _parts(tree: ast.expr) -> Iterator[ast.expr]:
    yield tree
    for part in parts_of(tree):
        yield from _parts(part)


def _put(tree: Any, part: ast.expr, other: ast.expr) -> Any:
    """Return the tree, or a list of them, with `other` in the place of one part; what lacks that part stays itself."""
    if tree is part:
        return other
    if isinstance(tree, list):
        return [_put(each, part, other) for each in tree]
    if not isinstance(tree, ast.expr) or dotted(tree):
        return tree
    fields = {field: _put(value, part, other) for field, value in ast.iter_fields(tree)}
    return type(tree)(**fields) if any(fields[each] != getattr(tree, each) for each in fields) else tree


def _instead(node: ast.expr, shapes: Shapes) -> Iterator[ast.expr]:
    """Yield what may stand in the place of one part."""
    text = ast.unparse(node)
    match node:
        case ast.Constant(value=int() | float()):
            yield parsed(CONSTANT)
            return
        case ast.Name() | ast.Attribute():
            yield from _other_operand(dotted(node) or "", shapes)
        case ast.BinOp(left=left, op=operator, right=right):
            yield from _other_operation(left, operator, right)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            yield from _other_call(name, arguments)
    if text == "mask" or isinstance(node, ast.Compare):
        return
    yield parsed(f"{CONSTANT} * ({text})")
    yield parsed(f"{text} + {CONSTANT}")
    yield from in_forms(_AROUND, f"({text})")


def _other_operand(name: str, shapes: Shapes) -> Iterator[ast.expr]:
    if name == "mask":
        yield from map(parsed, OF_MASK)
        return
    shape = shapes.get(name)
    if shape is None:  # a size
        yield from (parsed(size) for size in SIZES if size not in (name, "epsilon", "pi"))
        return
    for other, its_shape in shapes.items():
        if other != name and its_shape == shape and other != "mask":
            yield parsed(other)
            yield parsed(f"{name} + {CONSTANT} * {other}")
        if len(shape) == 2 and its_shape == shape[::-1] and other != name:
            yield parsed(f"transpose({other})")
    yield from _reordered(name, shape)
    if len(shape) in (1, 2):
        yield parsed(f"0 * {name}")
        yield parsed(f"1 + {name}")


def _other_operation(left: ast.expr, operator: ast.operator, right: ast.expr) -> Iterator[ast.expr]:
    one, other = f"({ast.unparse(left)})", f"({ast.unparse(right)})"
    yield left
    yield right
    forms: tuple[str, ...]
    if isinstance(operator, ast.MatMult):
        forms = ("{0} @ transpose({1})", "transpose({0}) @ {1}", "transpose({0} @ {1})")
    elif isinstance(operator, ast.Pow):
        forms = ("{0} ** c",)
    else:
        forms = _OF_TWO
    yield from in_forms(forms, one, other)


def _other_call(name: str, arguments: list[ast.expr]) -> Iterator[ast.expr]:
    given = [ast.unparse(argument) for argument in arguments]
    if given:
        rest = ", ".join(given[1:])
        yield parsed(f"{name}({name}({', '.join(given)}), {rest})")
    match name, given:
        case (("mean" | "var" | "sum" | "largest"), [x, _]):
            yield from (parsed(f"{name}({x}, {axis})") for axis in (0, 1, 2))
            yield parsed(CONSTANT)
            others = {"mean": ("sum", "largest"), "var": ("largest",)}.get(name, ())
            yield from (parsed(f"{other}({x}, -1)") for other in others)
            if name == "var":
                yield from map(
                    parsed, (f"var({x}, -1, 1)", f"mean({x} ** 2, -1)", f"mean(abs({x} - mean({x}, -1)), -1) ** 2")
                )
                yield from (parsed(f"mean(({x} - mean({x}, -1)) ** 2, {axis})") for axis in (0, 1, 2))
            if name == "mean":
                yield parsed(f"0 * mean({x}, -1)")
        case "sqrt", [x]:
            yield arguments[0]
            match arguments[0]:
                case ast.BinOp(left=inner, op=ast.Add(), right=epsilon):
                    yield parsed(f"sqrt({ast.unparse(inner)}) + {ast.unparse(epsilon)}")
                    yield parsed(f"sqrt(maximum({ast.unparse(inner)}, {ast.unparse(epsilon)}))")
        case "softmax", [scores, "mask", *_]:
            yield from in_forms(OF_SOFTMAX, f"({scores})")
        case (("split_heads" | "merge_heads"), [x, *_]):
            yield from (parsed(f"{name}({x}, {form!r})") for form in _ARRANGED)
        case (("erf" | "tanh" | "sigmoid" | "exp"), [x]):
            yield from (parsed(f"{other}({x})") for other in _OF_ONE if other != name)
            yield arguments[0]
        case (("maximum" | "minimum"), [x, y]):
            yield parsed(f"{'minimum' if name == 'maximum' else 'maximum'}({x}, {y})")
            yield arguments[0]
        case "transpose", [x]:
            yield arguments[0]


def normalisations(of: str, gain: str, shift: str) -> Iterator[ast.expr]:
    """Yield norms of this input that differ in several places: all divisors, centres and affine parts there are."""
    centred = f"({of} - mean({of}, -1))"
    inner = (of, centred)
    divisors = (
        f"sqrt(var({of}, -1) + epsilon)",
        f"sqrt(mean({of} ** 2, -1) + epsilon)",
        f"(sqrt(var({of}, -1)) + epsilon)",
        f"sqrt(var({of}, -1, 1) + epsilon)",
        f"(sqrt(var({of}, -1, 1)) + epsilon)",
        f"sqrt(sum({of} ** 2, -1) + epsilon)",
        f"(mean(abs({of}), -1) + epsilon)",
        f"(largest(abs({of}), -1) + epsilon)",
        "1",
    )
    affine = (f"* {gain} + {shift}", f"* (1 + {gain}) + {shift}", f"* {gain}", f"+ {shift}", "")
    yield from (parsed(f"{x} / {divisor} {ending}") for x, divisor, ending in product(inner, divisors, affine))
    for x in (each.format(of) for each in CENTRES):  # and the divisor is made of the same
        divisor = f"sqrt(mean({x} ** 2, -1) + epsilon)"
        yield from (parsed(f"{x} / {divisor} {ending}") for ending in affine[:2])
