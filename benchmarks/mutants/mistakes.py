"""What people write in the place of one part of an equation, by the kind of mistake."""

import ast
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from encoder_conformance.spec.equation import dotted

MASKS = ("~mask", "roll(mask, 1, -1)", "transpose(mask)", "flip(mask, -1)", "permute(mask, 0, 0)", "mask | ~mask")
FUNCTIONS = ("tanh", "sin", "abs", "sqrt", "exp", "sigmoid", "erf", "cos")
FACTORS = (2.0, 0.5, -1.0, 1.1, 0.9, 3.0, 0.1, 1.5)
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """A part of a stage's equation, the `shape` of its value, and those of the operands that the stage may read."""

    node: ast.expr
    shape: Shape
    operands: Mapping[str, Shape]
    whole: ast.expr

    @property
    def text(self) -> str:
        return f"({ast.unparse(self.node)})"

    @property
    def is_number(self) -> bool:
        return len(self.shape) == 0

    def axis(self, chance: random.Random) -> int:
        """An axis of more than one element."""
        return chance.choice([axis for axis in range(-len(self.shape), 0) if self.shape[axis] > 1] or [-1])

    def size(self, axis: int) -> str:
        """The name of the size of an axis that no layer fixes, or a number."""
        batch, sequence, _ = self.operands["x"]
        names = {sequence: "sequence_length", batch: "batch_size"} if len(self.shape) > 2 and axis != -1 else {}
        return names.get(self.shape[axis], str(self.shape[axis]))


Mistakes = Callable[[Part, random.Random], Iterator[str]]


def _operation(part: Part, chance: random.Random) -> Iterator[str]:
    """Another operand, order, operator, function, axis or number."""
    node, text, name = part.node, ast.unparse(part.node), dotted(part.node)
    if isinstance(node, ast.Constant):
        yield repr(float(text) * chance.choice(FACTORS) if float(text) else 1.0)
        return
    if name == "mask":
        yield from MASKS
        return
    if name in part.operands:
        yield from _other_operand(name, part.operands, chance)
    if isinstance(node, ast.BinOp):
        yield from _other_operator(node, chance)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        yield from _other_call(node.func.id, [ast.unparse(argument) for argument in node.args], chance)
    yield f"{chance.choice(FACTORS)} * ({text})"
    yield f"({text}) + {chance.choice(FACTORS)}"
    yield f"{chance.choice(FUNCTIONS)}({text})"


def _other_operand(name: str, operands: Mapping[str, Shape], chance: random.Random) -> Iterator[str]:
    shape = operands[name]
    yield from (other for other, its in operands.items() if its == shape and other != name)
    axis = chance.randrange(-len(shape), 0)
    yield from (f"flip({name}, {axis})", f"roll({name}, {chance.choice((1, -1, 2))}, {axis})")
    if len(shape) == 2 and shape[0] == shape[1]:
        yield f"transpose({name})"


def _other_operator(node: ast.BinOp, chance: random.Random) -> Iterator[str]:
    left, right = f"({ast.unparse(node.left)})", f"({ast.unparse(node.right)})"
    yield from (left, right)
    if not isinstance(node.op, ast.MatMult):
        yield from (f"{left} {operator} {right}" for operator in "+-*/")
        yield f"{right} - {left}"
        yield f"{left} + {chance.choice(FACTORS)} * {right}"


def _other_call(function: str, arguments: list[str], chance: random.Random) -> Iterator[str]:
    if function in ("mean", "var"):
        yield f"{function}({arguments[0]}, {chance.choice((0, 1))})"
    if function == "var":
        yield f"var({arguments[0]}, -1, 1)"
    if function in FUNCTIONS:
        yield from (f"{chance.choice(FUNCTIONS)}({arguments[0]})", arguments[0])
    if function == "softmax":
        yield from (f"softmax({arguments[0]}, {arguments[1]}, {axis})" for axis in (-2, 1))
        yield f"softmax({arguments[0]}, mask | ~mask) * mask"
    if function in ("split_heads", "merge_heads"):
        yield f"{function}({arguments[0]}, {chance.choice(('interleaved', 'by-reshape'))!r})"


def _slice(part: Part, chance: random.Random) -> Iterator[str]:
    """One element of an axis for all; and an operation on some elements alone, or on all but them."""
    if part.is_number or dotted(part.node) == "mask":
        return
    text, axis = part.text, part.axis(chance)
    at, other = _index(part, axis), chance.choice((f"0 * {text}", f"{chance.choice(FACTORS)} * {text}"))
    size = part.size(axis)
    yield from (f"repeat({text}, {axis}, {place})" for place in (0, -1))
    for condition in ("== 0", "> 0", f"< {size} // 2", f"== {size} - 1"):
        yield f"where({at} {condition}, {other}, {text})"


def _quantity(part: Part, chance: random.Random) -> Iterator[str]:
    """A size of the input, or another size of the layer, where none or another one is due."""
    name = dotted(part.node)
    sizes = ("sequence_length", "batch_size", "num_heads", "head_dim", "d_model")
    if part.is_number and name:
        yield from (size for size in sizes if size != name)
    size = chance.choice(sizes[:2])
    if not part.is_number and name != "mask":
        yield from (
            f"{part.text} {form}" for form in (f"/ {size}", f"* {size}", f"/ sqrt({size})", f"* log(1 + {size})")
        )


def _parity(part: Part, chance: random.Random) -> Iterator[str]:
    """Every other element, blocks of positions, and those that are left over behind the last whole block."""
    block = chance.choice((2, 3, 4))
    if dotted(part.node) == "mask":
        at, to = (f"index(attention_scores, {axis}) // {block}" for axis in (-1, -2))
        yield from (f"mask & ({at} {comparison} {to})" for comparison in ("==", "<=", "!="))
        return
    if part.is_number:
        return
    axis = part.axis(chance)
    at, other = _index(part, axis), chance.choice((f"0 * {part.text}", f"-1 * {part.text}", f"2 * {part.text}"))
    yield f"where({at} % {block} == 0, {other}, {part.text})"
    yield f"where({at} % 2 == 1, {other}, {part.text})"
    if len(part.shape) == 3 and part.operands.get("x", ())[1:2] == part.shape[1:2]:
        whole = f"sequence_length // {block} * {block}"
        yield f"where(index({part.text}, 1) >= {whole}, {other}, {part.text})"


def _quantiser(part: Part, chance: random.Random) -> Iterator[str]:
    """int8 by tensor and by channel, decimals, and a format at one place alone."""
    if part.is_number or dotted(part.node) == "mask":
        return
    text, axis = part.text, chance.choice((-1, -2))
    for scale in (f"largest(abs({text}))", f"largest(abs({text}), {axis if len(part.shape) > 1 else -1})"):
        levels = chance.choice((127, 127, 128, 7))
        yield f"round({text} / ({scale} / {levels})) * ({scale} / {levels})"
    yield f"round({text} * {(step := chance.choice((10, 100, 1000)))}) / {step}"
    yield f"cast({text}, {chance.choice(('bfloat16', 'float16'))!r})"


def _transposed(part: Part, chance: random.Random) -> Iterator[str]:
    """A term and its transpose."""
    if len(part.shape) > 1 and part.shape[-1] == part.shape[-2] and dotted(part.node) != "mask":
        yield f"{part.text} + transpose({part.text})"
        yield f"({part.text} + transpose({part.text})) / 2"
        yield f"{part.text} - transpose({part.text})"


def _centred(part: Part, chance: random.Random) -> Iterator[str]:
    """An operand that is centred, or brought to one size, before it is used."""
    if dotted(part.node) in part.operands:
        text, axis = part.text, chance.randrange(-len(part.shape), 0)
        yield f"{text} - mean({text}, -1)"
        yield f"{text} - mean({text}, {axis})"
        yield f"{text} / sqrt(sum({text} ** 2, -1))"


def _nested(part: Part, chance: random.Random) -> Iterator[str]:
    """A step that is taken twice, or a function."""
    whole = ast.unparse(part.whole)
    if ast.unparse(part.node) == whole:
        yield from (
            ast.unparse(_Named(name, part.whole).visit(ast.parse(whole, mode="eval").body))
            for name, shape in part.operands.items()
            if shape == part.shape and name in whole
        )
    if isinstance(part.node, ast.Call) and isinstance(part.node.func, ast.Name) and part.node.args:
        _, *rest = (ast.unparse(argument) for argument in part.node.args)
        yield f"{part.node.func.id}({', '.join((ast.unparse(part.node), *rest))})"


class _Named(ast.NodeTransformer):
    """Puts an expression in the place of every operand of a name."""

    def __init__(self, name: str, by: ast.expr) -> None:
        self._name, self._by = name, by

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr) and (name := dotted(node)):
            return self._by if name == self._name else node
        return self.generic_visit(node)


def _in_the_sum(part: Part, chance: random.Random) -> Iterator[str]:
    """A constant in a softmax's sum, and in a norm's divisor."""
    constant = chance.choice((1, 0.5, 2, 10))
    match part.node:
        case ast.Call(func=ast.Name(id="softmax"), args=[scores, *_]):
            text = ast.unparse(scores)
            for raised in (f"exp({text})", f"exp({text} - largest({text}, -1))"):
                yield f"where(mask, {raised}, 0) / ({constant} + sum(where(mask, {raised}, 0), -1))"
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            yield f"({ast.unparse(left)}) / ({constant} + {ast.unparse(right)})"


def _term(part: Part, chance: random.Random) -> Iterator[str]:
    """One more operand in a sum, before or after what is done to it."""
    if dotted(part.node) == "mask" or part.is_number:
        return
    for other, shape in part.operands.items():
        if shape in (part.shape, part.shape[-1:]) and other and len(shape) and other != ast.unparse(part.node):
            yield f"{part.text} + {other}"


KINDS: dict[str, Mistakes] = {
    "operation": _operation,
    "slice": _slice,
    "quantity": _quantity,
    "parity": _parity,
    "quantiser": _quantiser,
    "transpose": _transposed,
    "centring": _centred,
    "nesting": _nested,
    "in the sum": _in_the_sum,
    "term": _term,
}


def _index(part: Part, axis: int) -> str:
    return f"index({part.text}, {axis})"
