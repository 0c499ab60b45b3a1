"""The gradients of a layer whose stages are computed by equations: reverse accumulation over them (B-1, V-13)."""

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from encoder_conformance.oracle.arithmetic import Arithmetic, Array
from encoder_conformance.oracle.equation import Operands, combined, evaluate_tree, parts_of
from encoder_conformance.oracle.pullbacks import pullback_of
from encoder_conformance.spec.equation import Equation, dotted

Pullback = Callable[[Array], tuple[Array, ...]]


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
    """Every stage, each from those before it. Raises ValueError for what an equation has no gradient of."""
    found: Played = {}
    for stage, equation in equations.items():
        found[stage] = _term(equation.tree, a, operands)
        operands = operands.having(stage, found[stage].value)
    return found


def gradients(layer: Played, a: Arithmetic, cotangent: Array) -> Gradients:
    """The gradients of sum(output * cotangent) by the inputs and parameters that the equations name."""
    return _finished(layer, a, {"output": a.exact(cotangent)}, [*layer])


def through_each_part(layer: Played, a: Arithmetic, cotangent: Array) -> Iterator[tuple[str, Term, Gradients]]:
    """Stage and part → what of the gradients goes back through that part: they are linear in its factor."""
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
    """What is left when the gradients by these stages have gone back."""
    for stage in reversed(stages):
        if stage in by:
            _pull_back(layer[stage], by.pop(stage), a, by)
    return by


def _pull_back(term: Term, gradient: Array, a: Arithmetic, by: Gradients) -> None:
    if term.name is not None:
        by[term.name] = a.add(by[term.name], gradient) if term.name in by else gradient
    elif term.pullback is not None:
        for operand, own in zip(term.operands, term.pullback(gradient), strict=True):
            _pull_back(operand, own, a, by)


def _arriving(term: Term, gradient: Array) -> Iterator[tuple[Term, Array]]:
    yield term, gradient
    if term.pullback is not None:
        for operand, own in zip(term.operands, term.pullback(gradient), strict=True):
            yield from _arriving(operand, own)


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

    def pullback(gradient: Array) -> tuple[Array, ...]:
        of_parts = zip(whole(gradient), live, strict=False)  # a rule may know more parts than were given
        return tuple(own for own, wanted in of_parts if wanted and own is not None)

    taking = [part for part, wanted in zip(parts, live, strict=True) if wanted]
    return Term(node, value, None, tuple(taking), pullback)


def _has_gradient(name: str, operands: Operands) -> bool:
    return name in operands.values and name not in ("mask", "bias")
