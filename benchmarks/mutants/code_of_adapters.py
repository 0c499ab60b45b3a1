"""The code of our PyTorch and Keras encoders, run by their frameworks: the adapter is given the builder of mutants."""

import ast
import importlib
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.mutants.code import Source, Stages
from encoder_conformance import Masks, RunRequest
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.stages import stages

IMPLS = Path(__file__).resolve().parents[2] / "impls"
_ATTENTION = (
    "query", "key", "value", "query_heads", "key_heads", "value_heads", "context", "context_merged", "attention_output",
)  # fmt: skip
_FEED_FORWARD = ("ffn_hidden", "ffn_activation", "ffn_output")
_SUB_LAYER = ("norm1", "query", "key", "value", "residual1", "norm2", "ffn_hidden", "residual2", "output")
_WRITTEN_OUT = ("query_heads", "key_heads", "value_heads", "attention_scores", "attention_weights", "context")
_FILES = ("softmax", "attention", "feed_forward", "encoder", "cross", "stack", "building")


def _source(name: str, adapter: str, call: str) -> Source:
    functions = {
        f"MultiHeadAttention.{call}": _ATTENTION,
        "MultiHeadAttention.split": ("query_heads", "key_heads", "value_heads"),
        "MultiHeadAttention.written_out": _WRITTEN_OUT,
        "MaskedSoftmax.__call__": ("attention_weights",),
        f"FeedForward.{call}": _FEED_FORWARD,
        "SubLayer.__call__": _SUB_LAYER,
        f"EncoderLayer.{call}": ("output",),
    }
    if name == "keras_tf":
        functions |= {"gelu": ("ffn_activation",), "gelu_tanh": ("ffn_activation",)}
    return Source(IMPLS / name, _FILES, functions, lambda tree: _run(name, adapter, tree))


def _run(name: str, adapter: str, tree: ast.Module) -> Stages:
    of, mutated = importlib.import_module(f"encoder_conformance.impls.{name}.adapter"), ModuleType("mutant")
    exec(compile(ast.fix_missing_locations(tree), str(IMPLS / name), "exec"), vars(mutated))
    driven = getattr(of, adapter)()  # a new one: Keras' keeps the encoders that it has made
    vars(driven).update({key: value for key, value in vars(_started(name, adapter)).items() if key not in vars(driven)})

    def answers(case: Case) -> dict[str, Array]:
        right, of.encoder_of = of.encoder_of, mutated.encoder_of
        try:
            return _stages(driven, case)
        finally:
            of.encoder_of = right

    return answers


@cache
def _started(name: str, adapter: str) -> Any:
    """Once a process: TensorFlow's settings cannot be made twice."""
    started = getattr(importlib.import_module(f"encoder_conformance.impls.{name}.adapter"), adapter)()
    started.start("cpu", 1)
    return started


def _stages(driven: Any, case: Case) -> dict[str, Array]:
    drawn = {name: value.astype(np.float32) for name, value in case.parameters().items()}
    driven.build(case.layer.model_dump(mode="json"), drawn, "float32")
    bias = case.attention_bias()
    masks = Masks(case.padding_mask(), case.attention_mask(), None if bias is None else bias.astype(np.float32))
    found = driven.run_check("stages", case.x().astype(np.float32), masks, RunRequest())
    return {name: np.asarray(found[name], np.float32) for name in stages(case.layer) if name in found}


PYTORCH = _source("pytorch", "PyTorch", "forward")
KERAS = _source("keras_tf", "KerasTensorFlow", "call")
