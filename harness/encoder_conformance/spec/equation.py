"""The equation language: what a stage is computed from, as one expression (rule V-12).

    value = norm1 @ attention.value.weight + attention.value.bias

The syntax is that of a Python expression. Names are stages, parameters, `x`, `mask`, `bias` (of the scores) and the
sizes of the layer; `FUNCTIONS` and `OPERATORS` have the rest. The oracle evaluates equations (`oracle/equation.py`).
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from encoder_conformance.spec.parameters import PARAMETER_NAMES
from encoder_conformance.spec.stages import SHAPES

SIZES = ("d_model", "head_dim", "num_heads", "d_ff", "batch_size", "sequence_length", "epsilon", "pi")
"""Numbers: the sizes of a layer and of x, its epsilon, and π."""
INPUTS = ("x", "memory", "mask", "bias")
"""`mask` is bool, true where a query may attend to a key; without one it is true everywhere, and `bias` is 0."""
NAMES = frozenset({*SIZES, *INPUTS, *SHAPES, *PARAMETER_NAMES})
FUNCTIONS: dict[str, tuple[int, int]] = {
    **dict.fromkeys(
        ("abs", "by_slopes", "cos", "detach", "erf", "exp", "log", "round", "sigmoid", "sign", "sin", "softplus"),
        (1, 1),
    ),
    **dict.fromkeys(("sqrt", "tanh", "transpose"), (1, 1)),
    **dict.fromkeys(("merge_heads", "split_heads"), (1, 2)),
    **dict.fromkeys(("by_bucket", "by_clipped", "cast", "flip", "index", "maximum", "mean", "minimum"), (2, 2)),
    **dict.fromkeys(("repeat_heads", "scale_gradient", "sum", "within"), (2, 2)),
    **dict.fromkeys(("softmax", "var"), (2, 3)),
    **dict.fromkeys(("by_heads", "repeat", "roll", "where"), (3, 3)),
    "rotate": (4, 4),
    "exchange": (4, 4),
    "permute": (3, 65),
    "largest": (1, 2),
    "append": (1, 2),
}
"""Function → how many arguments it takes, at least and at most."""
OPERATORS = (
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult, ast.BitAnd, ast.BitOr,
    ast.USub, ast.Invert, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE,
)  # fmt: skip


@dataclass(frozen=True)
class Equation:
    """An expression, checked. `text` is as it was written; two of the same `form` say the same."""

    text: str

    def __post_init__(self) -> None:
        """Raises ValueError, which says what is wrong and in which column."""
        for problem in _problems(self.tree):
            raise ValueError(problem)

    @cached_property
    def tree(self) -> ast.expr:
        try:
            return ast.parse(self.text, mode="eval").body
        except SyntaxError as error:
            raise ValueError(f"is no expression: {error.msg} (column {error.offset})") from None

    @cached_property
    def form(self) -> str:
        return ast.unparse(self.tree)

    @cached_property
    def names(self) -> frozenset[str]:
        """The stages, parameters, inputs and sizes that it reads."""
        return frozenset(_names(self.tree))


def dotted(node: ast.expr) -> str | None:
    """The name that a node spells, dots and all; None where it is no name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (start := dotted(node.value)):
        return f"{start}.{node.attr}"
    return None


def _names(node: ast.expr) -> Iterator[str]:
    if name := dotted(node):
        yield name
        return
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr) and not (isinstance(node, ast.Call) and child is node.func):
            yield from _names(child)


def _problems(node: ast.AST) -> Iterator[str]:
    where = f"column {getattr(node, 'col_offset', 0) + 1}"
    match node:
        case ast.Name() | ast.Attribute():
            name = dotted(node) if isinstance(node, ast.expr) else None
            if name not in NAMES:
                yield f"names {name or 'something'}, which is no stage, parameter, input or size ({where})"
            return
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            least, most = FUNCTIONS.get(name, (0, -1))
            if not least <= len(arguments) <= most:
                known = f"takes {least} to {most} arguments" if name in FUNCTIONS else "is no function of the language"
                yield f"{name} {known} ({where})"
            children: list[ast.AST] = list(arguments)
        case ast.Constant(value=value):
            if not isinstance(value, int | float | str) or isinstance(value, bool):
                yield f"{value!r} is no number ({where})"
            return
        case ast.BinOp(op=operator) | ast.UnaryOp(op=operator) | ast.Compare(ops=[operator]):
            if not isinstance(operator, OPERATORS):
                yield f"{type(operator).__name__} is no operator of the language ({where})"
            children = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        case _:
            yield f"{type(node).__name__} is no part of the language ({where})"
            return
    for child in children:
        yield from _problems(child)
