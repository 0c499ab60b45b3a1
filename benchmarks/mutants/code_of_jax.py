"""The code of our JAX encoder, run by NumPy: it is written against functions that NumPy has too, so that a mutant needs
no compiler and takes milliseconds."""

import ast
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.mutants.code import Source, Stages
from encoder_conformance.oracle.inputs import given
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.stages import stages

FOLDER = Path(__file__).resolve().parents[2] / "impls" / "jax_pure"
FILES = (
    "dropout", "primitives", "positions", "softmax", "attention", "feed_forward", "encoder", "embedding", "stack",
    "building",
)  # fmt: skip
FUNCTIONS = {
    "EncoderLayer.__call__": ("output",),
    "SubLayer.__call__": (
        "norm1", "query", "attention_output", "residual1", "norm2", "ffn_hidden", "residual2", "output",
    ),
    "layer_norm": ("norm1", "norm2"),
    "rms_norm": ("norm1", "norm2"),
    "Attention.project": ("query", "key", "value", "query_heads", "key_heads", "value_heads"),
    "Attention.__call__": ("query_heads", "key_heads", "value_heads", "context_merged"),
    "Attention.written_out": (
        "query_heads", "key_heads", "value_heads", "attention_scores", "attention_weights", "context", "context_merged",
    ),
    "MaskedSoftmax.__call__": ("attention_weights",),
    "FeedForward.__call__": ("ffn_hidden", "ffn_activation", "ffn_output"),
    "linear": ("query", "key", "value", "attention_output", "ffn_hidden", "ffn_output"),
}  # fmt: skip


def _run(tree: ast.Module) -> Stages:
    return partial(_stages, _module(tree))


def _module(tree: ast.Module) -> SimpleNamespace:
    """The module's names, with NumPy in the place of JAX."""
    kept = [node for node in tree.body if not (isinstance(node, ast.Import | ast.ImportFrom) and _is_jax(node))]
    module = ast.fix_missing_locations(ast.Module(kept, []))
    names: dict[str, Any] = {"jax": _JAX, "jnp": _NUMPY, "Array": np.ndarray, "__name__": "mutant"}
    exec(compile(module, str(FOLDER), "exec"), names)
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
        encoder = code.encoder_of(layer.model_dump(mode="json"))
        encoder(_tree(layer, what.parameters), what.x.astype(np.float32), masks, tap)
    return {name: seen[name].astype(np.float32) for name in stages(layer) if name in seen}


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


JAX = Source(FOLDER, FILES, FUNCTIONS, _run)
