"""Forms of an equation in a narrower format: its result rounded, or its operands, or both, as autocast has it."""

import ast
from collections.abc import Iterator

from encoder_conformance.diagnosis.identify.edits import parsed, places, with_named
from encoder_conformance.oracle.equation import CASTS
from encoder_conformance.spec.equation import SIZES, dotted


def of_the_result(tree: ast.expr) -> Iterator[ast.expr]:
    """Yield the equation with its result rounded to each format."""
    return (_rounded(tree, dtype) for dtype in CASTS)


def roundings(tree: ast.expr) -> Iterator[ast.expr]:
    """Yield the equation with its result rounded to each format; with the factors of its products, and the result too;
    and with all its operands, and the result too."""
    yield from of_the_result(tree)
    factors = {name for node, _ in places(tree) if isinstance(node, ast.BinOp) for name in _factors(node)}
    operands = {name for node, _ in places(tree) if (name := dotted(node)) and name not in (*SIZES, "mask")}
    for dtype in CASTS:
        for names in {frozenset(factors), frozenset(operands)} - {frozenset()}:
            inside = tree
            for name in sorted(names):
                inside = with_named(inside, name, _rounded(parsed(name), dtype))
            yield inside
            yield _rounded(inside, dtype)


def _factors(node: ast.BinOp) -> Iterator[str]:
    """Yield the operands that a matrix product multiplies."""
    if isinstance(node.op, ast.MatMult):
        for factor in (node.left, node.right):
            yield from (name for part, _ in places(factor) if (name := dotted(part)) and name not in SIZES)


def _rounded(tree: ast.expr, dtype: str) -> ast.expr:
    return parsed(f"cast({ast.unparse(tree)}, {dtype!r})")
