"""The gradients of a layer whose stages are computed by equations: reverse accumulation over them (B-1, V-13)."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.equation import Operands, combined, evaluate_tree, parts_of
from encoder_conformance.oracle.pullbacks import pullback_of
from encoder_conformance.oracle.tape import ByOperands, Pullback
from encoder_conformance.spec.axes import Array, Elementwise
from encoder_conformance.spec.equation import Equation, dotted


@dataclass(frozen=True)
class Term:
    """A part of an equation: its value, and how a gradient by it becomes gradients by its operands.

    `operands` are the parts that have a gradient, in the order of the expression; of a name there are none.
    """

    node: ast.expr
    value: Array
    name: str | None = None
    operands: tuple["Term", ...] = ()
    pullback: Pullback | None = None


Played = dict[str, Term]
"""Stage → its equation as it was computed, in the order of computation."""
Gradients = dict[str, Array]
"""Input or parameter → the gradient by it."""


def played(equations: Mapping[str, Equation], a: Arithmetic, operands: Operands) -> Played:
    """Every stage, each from those before it. Raises ValueError for an operation without a rule for its gradient."""
    found: Played = {}
    for stage, equation in equations.items():
        found[stage] = _term(equation.tree, a, operands)
        operands = operands.having(stage, found[stage].value)
    return found


def gradients(layer: Played, a: Arithmetic, cotangent: Array) -> Gradients:
    """The gradients of sum(output * cotangent) by the inputs and parameters that the equations name."""
    return _finished(layer, a, {"output": a.exact(cotangent)}, [*layer])


def through_each_part(layer: Played, a: Arithmetic, cotangent: Array) -> Iterator[tuple[str, Term, Gradients]]:
    """Yields stage, part, and the share of the gradients that goes back through the part: linear in its factor."""
    by = {"output": a.exact(cotangent)}
    for stage in reversed(layer):
        if stage not in by:
            continue
        before = [*layer][: [*layer].index(stage)]
        for term, gradient in _arriving(layer[stage], by[stage]):
            onward: Gradients = {}
            _pull_back(term, gradient, a, onward)
            yield stage, term, _finished(layer, a, onward, before)
        _pull_back(layer[stage], by.pop(stage), a, by)


def _finished(layer: Played, a: Arithmetic, by: Gradients, stages: list[str]) -> Gradients:
    """The gradients by inputs and parameters, once those by these stages have gone back."""
    for stage in reversed(stages):
        if stage in by:
            _pull_back(layer[stage], by.pop(stage), a, by)
    return by


def _pull_back(term: Term, gradient: Elementwise, a: Arithmetic, by: Gradients) -> None:
    if term.name is not None:
        by[term.name] = a.add(by[term.name], gradient) if term.name in by else gradient
    elif term.pullback is not None:
        for operand, by_operand in zip(term.operands, term.pullback(gradient), strict=True):
            _pull_back(operand, by_operand, a, by)


def _arriving(term: Term, gradient: Elementwise) -> Iterator[tuple[Term, Elementwise]]:
    yield term, gradient
    if term.pullback is not None:
        for operand, by_operand in zip(term.operands, term.pullback(gradient), strict=True):
            yield from _arriving(operand, by_operand)


def _term(node: ast.expr, a: Arithmetic, operands: Operands) -> Term:
    """The part of an equation that a node is the top of."""
    if name := dotted(node):
        return Term(node, evaluate_tree(node, a, operands), name if _has_gradient(name, operands) else None)
    parts = [_term(part, a, operands) for part in parts_of(node)]
    value = combined(node, [part.value for part in parts], a, operands)
    live = [part.name is not None or part.pullback is not None for part in parts]
    if not any(live):
        return Term(node, value)
    whole = pullback_of(node, a, operands, value, [part.value for part in parts])
    if whole is None:
        return Term(node, value)

    def pullback(gradient: Elementwise) -> ByOperands:
        by_parts = [*whole(gradient), *[None] * len(parts)]  # a rule may know fewer parts than were given, or more
        return tuple(
            np.zeros(part.value.shape, part.value.dtype) if by_part is None else by_part
            for part, by_part, wanted in zip(parts, by_parts, live, strict=False)
            if wanted
        )

    taking = [part for part, wanted in zip(parts, live, strict=True) if wanted]
    return Term(node, value, None, tuple(taking), pullback)


def _has_gradient(name: str, operands: Operands) -> bool:
    return name in operands.values and name not in ("mask", "bias")
