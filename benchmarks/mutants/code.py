"""Mutants of an encoder's own code: one node of the syntax tree of our JAX encoder is another, and NumPy runs it.

The code is written against the functions that NumPy has too, so a mutant needs no compiler and takes milliseconds.
"""

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from encoder_conformance.oracle.arithmetic import Array
from encoder_conformance.oracle.encoder import given
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import load
from encoder_conformance.spec.stages import stages

SOURCE = Path(__file__).resolve().parents[2] / "impls" / "jax_pure" / "encoder.py"
LAYERS = ("pre-gelu", "post-relu", "post-gelu", "post-rms-gelu-tanh", "pre-rms-silu")
STAGES = {
    "encoder_layer": ("norm1", "query", "attention_output", "residual1", "norm2", "ffn_hidden", "residual2", "output"),
    "layer_norm": ("norm1", "norm2"),
    "rms_norm": ("norm1", "norm2"),
    "attention": ("query", "key", "value", "query_heads", "key_heads", "value_heads", "context_merged"),
    "written_out_attention": (
        "query_heads", "key_heads", "value_heads", "attention_scores", "attention_weights", "context", "context_merged",
    ),
    "feed_forward": ("ffn_hidden", "ffn_activation", "ffn_output"),
    "linear": ("query", "key", "value", "attention_output", "ffn_hidden", "ffn_output"),
}  # fmt: skip
"""Function that is mutated → the stages that it computes."""
_ALIKE = (
    ("q", "k", "v"), ("x", "h", "keys"), ("weights", "scores"), ("centred", "variance"), ("query", "key", "value"),
    ("gain", "shift"), ("norm1", "norm2"), ("hidden", "output"),
)  # fmt: skip
"""Names, and strings that are keys of parameters, that may be mistaken for each other."""
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_NUMBERS = (2.0, 0.5, -1.0, 1.1, 0.9)


@dataclass(frozen=True)
class CodeMutant:
    """`function` is the one with another node; `change` says which."""

    layer: str
    function: str
    change: str
    tree: ast.Module = field(repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.layer} {self.function}: {self.change}"

    @cached_property
    def code(self) -> SimpleNamespace:
        return _run(self.tree)

    def answers(self, case: Case) -> dict[str, Array]:
        """Every stage, float32. Raises what the code raises."""
        return _stages(self.code, case)

    def output(self, case: Case) -> Array:
        return self.answers(case)["output"]

    def has_step(self, stage: str) -> bool:
        return stage in STAGES[self.function]


def unchanged(case: Case) -> dict[str, Array]:
    """What the code gives as it is."""
    return _stages(_run(_parsed()), case)


def _parsed() -> ast.Module:
    return ast.parse(SOURCE.read_text(encoding="utf-8"))


def code_mutants(count: int, seed: int) -> Iterator[CodeMutant]:
    """Those that run, and give every stage in its shape: what raises an error is seen by anybody."""
    chance, made, seen = random.Random(seed), 0, set[tuple[str, str, str]]()
    while made < count:
        layer = LAYERS[made % len(LAYERS)]
        other_norm = "rms_norm" if load().layers[layer].norm.kind == "layer_norm" else "layer_norm"
        function, tree = chance.choice([name for name in STAGES if name != other_norm]), _parsed()
        [body] = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function)
        change = _changed(body, chance)
        if change is None or (layer, function, change) in seen:
            continue
        seen.add((layer, function, change))
        mutant = CodeMutant(layer, function, change, tree)
        case = load().cases[f"{layer}/padding-right"]
        try:
            with np.errstate(all="ignore"):
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
        case ast.BinOp(left=left, op=operator, right=right):
            yield from (left, right)
            if isinstance(operator, _OPERATORS):
                yield from (ast.BinOp(left, other(), right) for other in _OPERATORS if not isinstance(operator, other))
                yield ast.BinOp(right, operator, left)
            yield ast.BinOp(ast.Constant(chance.choice(_NUMBERS)), ast.Mult(), node)
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


def _run(tree: ast.Module) -> SimpleNamespace:
    """The module's names, with NumPy in the place of JAX."""
    kept = [node for node in tree.body if not (isinstance(node, ast.Import | ast.ImportFrom) and _is_jax(node))]
    module = ast.fix_missing_locations(ast.Module(kept, []))
    names: dict[str, Any] = {"jax": _JAX, "jnp": _NUMPY, "Array": np.ndarray, "__name__": "mutant"}
    exec(compile(module, str(SOURCE), "exec"), names)
    return SimpleNamespace(**names)


def _is_jax(node: ast.Import | ast.ImportFrom) -> bool:
    named = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
    return any(name.split(".")[0] == "jax" for name in named)


def _softmax(x: Array, axis: int = -1) -> Array:
    weights = np.exp(x - x.max(axis=axis, keepdims=True))
    return weights / weights.sum(axis=axis, keepdims=True)


def _gelu(x: Array, approximate: bool = True) -> Array:
    from scipy.special import erf

    if approximate:
        return 0.5 * x * (1 + np.tanh(np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x * x * x)))
    return 0.5 * x * (1 + erf(x / np.float32(np.sqrt(2))))


_NUMPY = SimpleNamespace(**{name: getattr(np, name) for name in dir(np) if not name.startswith("_")}, bfloat16=object)
_JAX = SimpleNamespace(
    nn=SimpleNamespace(
        relu=lambda x: np.maximum(x, 0), gelu=_gelu, silu=lambda x: x / (1 + np.exp(-x)), softmax=_softmax
    ),
    random=SimpleNamespace(),
)


def _stages(code: SimpleNamespace, case: Case) -> dict[str, Array]:
    layer, what = case.layer, given(case)
    seen: dict[str, Array] = {}

    def tap(name: str, stage: Array) -> Array:
        seen[name] = np.asarray(stage)
        return stage

    masks = _masks(code, case, what)
    with np.errstate(all="ignore"):
        code.encoder_layer(_config(code, layer), _tree(layer, what.parameters), what.x.astype(np.float32), masks, tap)
    return {name: seen[name].astype(np.float32) for name in stages(layer) if name in seen}


def _config(code: SimpleNamespace, layer: Layer) -> Any:
    row = layer.attention.fully_masked_row
    filled = layer.attention.masked_score
    return code.Config(
        layer.d_model,
        layer.attention.num_heads,
        layer.feed_forward.activation,
        layer.norm.placement,
        layer.norm.epsilon,
        layer.norm.kind,
        layer.attention.scale,
        None if filled == "minus_infinity" else filled,
        "uniform" if row == "unspecified" else row,
    )


def _masks(code: SimpleNamespace, case: Case, what: Any) -> Any:
    B, S, _ = case.x_shape
    shape = B, case.layer.attention.num_heads, S, S
    allowed = None if what.mask is None else np.broadcast_to(what.mask.astype(bool), shape)
    bias = None if what.bias is None else np.broadcast_to(what.bias.astype(np.float32), shape)
    return code.Masks(allowed, bias)


def _tree(layer: Layer, parameters: dict[str, Array]) -> dict[str, Any]:
    """The parameters as the encoder takes them: kernels [D, H, d] and [H, d, D]."""
    D, H = layer.d_model, layer.attention.num_heads
    shapes = {"query": ((D, H, -1), (H, -1)), "key": ((D, H, -1), (H, -1)), "value": ((D, H, -1), (H, -1))}
    shapes["output"] = ((H, -1, D), (D,))
    tree: dict[str, Any] = {}
    for name, value in parameters.items():
        *path, last = name.split(".")
        at = tree
        for part in path:
            at = at.setdefault(part, {})
        narrow = value.astype(np.float32)
        if path[0] == "attention":
            narrow = narrow.reshape(shapes[path[1]][last == "bias"])
        at["kernel" if last == "weight" else last] = narrow
    return tree
