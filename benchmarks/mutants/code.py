"""Mutants of an encoder's own code: one node of the syntax tree of one of our three encoders is another."""

import ast
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.load import load

LAYERS = ("pre-gelu", "post-relu", "post-gelu", "post-rms-gelu-tanh", "pre-rms-silu")
Stages = Callable[[Case], dict[str, Array]]
"""A case → every stage, float32. Raises what the code raises."""


@dataclass(frozen=True)
class Source:
    """The code of an encoder, in the files of a folder that are read as one. `functions`: function that is mutated, or
    method as Class.method → the stages that it computes. `run`: the code's tree → what it computes."""

    folder: Path
    files: tuple[str, ...]
    """Each after those that it imports."""
    functions: Mapping[str, tuple[str, ...]]
    run: Callable[[ast.Module], Stages]

    def parsed(self) -> ast.Module:
        """The statements of all files but their imports of each other."""
        texts = ((self.folder / f"{name}.py").read_text(encoding="utf-8") for name in self.files)
        body = [node for text in texts for node in ast.parse(text).body if not self._is_own(node)]
        return ast.Module(body, [])

    def _is_own(self, node: ast.stmt) -> bool:
        return isinstance(node, ast.ImportFrom) and f".impls.{self.folder.name}." in (node.module or "")

    def unchanged(self) -> Stages:
        """What the code gives as it is."""
        return self.run(self.parsed())

    def body(self, tree: ast.Module, function: str) -> ast.FunctionDef:
        *of, name = function.split(".")
        [inside] = [each.body for each in tree.body if isinstance(each, ast.ClassDef) and [each.name] == of] or [
            tree.body
        ]
        [body] = (node for node in inside if isinstance(node, ast.FunctionDef) and node.name == name)
        return body


_ALIKE = (
    ("q", "k", "v"), ("x", "h", "memory"), ("weights", "scores"), ("centred", "variance"), ("query", "key", "value"),
    ("gain", "shift"), ("norm1", "norm2"), ("hidden", "output"), ("W_q", "W_k", "W_v"), ("dropout1", "dropout2"),
)  # fmt: skip
"""Names, attributes, and strings that are keys of parameters, that may be mistaken for each other."""
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_NUMBERS = (2.0, 0.5, -1.0, 1.1, 0.9)


@dataclass(frozen=True)
class CodeMutant:
    """`function` is the one with another node; `change` says which."""

    mistake = ""
    layer: str
    function: str
    change: str
    source: Source = field(repr=False, compare=False)
    tree: ast.Module = field(repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.layer} {self.function}: {self.change}"

    @cached_property
    def _run(self) -> Stages:
        return self.source.run(self.tree)

    def answers(self, case: Case) -> dict[str, Array]:
        """Every stage, float32. Raises what the code raises."""
        with np.errstate(all="ignore"):
            return self._run(case)

    def output(self, case: Case) -> Array:
        return self.answers(case)["output"]

    def has_step(self, stage: str) -> bool:
        return stage in self.source.functions[self.function]


def code_mutants(source: Source, count: int, seed: int) -> Iterator[CodeMutant]:
    """Those that run, and give every stage in its shape: what raises an error is seen by anybody."""
    chance, made, seen, unchanged = random.Random(seed), 0, set[tuple[str, str, str]](), source.unchanged()
    while made < count:
        layer = LAYERS[made % len(LAYERS)]
        other_norm = "rms_norm" if load().layers[layer].norm.kind == "layer_norm" else "layer_norm"
        function, tree = chance.choice([name for name in source.functions if name != other_norm]), source.parsed()
        change = _changed(source.body(tree, function), chance)
        if change is None or (layer, function, change) in seen:
            continue
        seen.add((layer, function, change))
        mutant = CodeMutant(layer, function, change, source, tree)
        case = load().cases[f"{layer}/padding-right"]
        try:
            found, right = mutant.answers(case), unchanged(case)
        except Exception:  # whatever mutated code raises
            continue
        if all(name in found and found[name].shape == right[name].shape for name in right):
            made += 1
            yield mutant


def _changed(function: ast.FunctionDef, chance: random.Random) -> str | None:
    """Changes one node of the function's body in place, and says how; None where nothing fits what was drawn."""
    places = [
        (parent, name, at)
        for statement in function.body
        for parent in ast.walk(statement)
        for name, at in _children(parent)
    ]
    parent, name, at = chance.choice(places)
    old = getattr(parent, name) if at is None else getattr(parent, name)[at]
    options = list(_instead(old, chance))
    if not options:
        return None
    new = chance.choice(options)
    if at is None:
        setattr(parent, name, new)
    else:
        getattr(parent, name)[at] = new
    return f"{ast.unparse(old)} → {ast.unparse(new)}"


def _children(parent: ast.AST) -> Iterator[tuple[str, int | None]]:
    """The expressions right below a node; not the name of a stage that is tapped, and no annotation."""
    tapped = isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id in ("tap", "drop")
    for name, value in ast.iter_fields(parent):
        if name in ("annotation", "returns", "targets", "target", "decorator_list"):
            continue
        for at, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            named = tapped and (name == "func" or (name == "args" and at == 0))
            if isinstance(child, ast.expr) and not named:
                yield name, at


def _instead(node: ast.expr, chance: random.Random) -> Iterator[ast.expr]:
    match node:
        case ast.Constant(value=bool()):
            return
        case ast.Constant(value=int(number)):
            yield from (ast.Constant(other) for other in (-2, -1, 0, 1, 2) if other != number)
        case ast.Constant(value=float(number)):
            yield ast.Constant(number * chance.choice(_NUMBERS))
        case ast.Constant(value=str(text)):
            yield from (ast.Constant(other) for group in _ALIKE if text in group for other in group if other != text)
        case ast.Name(id=text):
            yield from (ast.Name(other) for group in _ALIKE if text in group for other in group if other != text)
        case ast.Attribute(value=value, attr=text) if any(text in group for group in _ALIKE):
            others = (other for group in _ALIKE if text in group for other in group if other != text)
            yield from (ast.Attribute(value, other, node.ctx) for other in others)
        case ast.BinOp(left=left, op=operator, right=right):
            yield from (left, right)
            if isinstance(operator, _OPERATORS):
                yield from (ast.BinOp(left, other(), right) for other in _OPERATORS if not isinstance(operator, other))
                yield ast.BinOp(right, operator, left)
            yield ast.BinOp(ast.Constant(chance.choice(_NUMBERS)), ast.Mult(), node)
        case ast.Call(func=ast.Name(id="tap" | "drop")):
            return  # what it shows would have another name
        case ast.Call(args=[one, *others], keywords=keywords):
            yield one
            yield from others[-1:]
            if len(others) == 1 and not keywords:
                yield ast.Call(node.func, [others[0], one], [])
        case ast.Call(func=ast.Attribute(value=value)):
            yield value
        case ast.UnaryOp(operand=operand):
            yield operand
        case ast.Compare(ops=[ast.IsNot() | ast.Is() | ast.Eq() | ast.In()]):
            yield from (ast.Constant(True), ast.Constant(False))
        case ast.IfExp(body=body, orelse=other):
            yield from (body, other)
