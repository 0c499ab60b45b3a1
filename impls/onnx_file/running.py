"""Runs a model, whole and with its inner values, or one node of it by itself."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper
from onnx.reference import ReferenceEvaluator

Array = np.ndarray
Tensors = dict[str, Array]


class Failed(Exception):
    """A model or a node does not run on what it was given."""


class Runner:
    """A model in ONNX Runtime with every optimisation off; in ONNX's reference implementation where that will not.

    `wanted` are values of the graph that are to be answered beside its own outputs. `problem` says what ONNX Runtime
    had against the model.
    """

    def __init__(self, model: onnx.ModelProto, wanted: Iterable[str] = (), threads: int = 1) -> None:
        shown = onnx.ModelProto()
        shown.CopyFrom(model)
        own = {output.name for output in shown.graph.output}
        shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted if name not in own)
        self.names = [output.name for output in shown.graph.output]
        self._shown, self._reference = shown, None
        self.session: ort.InferenceSession | None = None
        self.problem = ""
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            self.session = ort.InferenceSession(shown.SerializeToString(), options, ["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime has a class of its own for every status
            self.problem = said(error)

    def run(self, feeds: Mapping[str, Array]) -> Tensors:
        """The outputs and the wanted values by name; raises Failed."""
        try:
            if self.session:
                return self._named(self.session.run(None, dict(feeds)))
            self._reference = self._reference or ReferenceEvaluator(self._shown)
            with np.errstate(all="ignore"):
                return self._named(self._reference.run(None, dict(feeds)))
        except Exception as error:
            raise Failed(said(error)) from None

    def refer(self, problem: str) -> None:
        """From now on by ONNX's reference implementation, since ONNX Runtime has this problem with the model."""
        self.session, self.problem = None, problem

    def _named(self, answers: Sequence[Array]) -> Tensors:
        return {name: np.asarray(value) for name, value in zip(self.names, answers, strict=True)}


class Nodes:
    """Single nodes of a graph, computed by ONNX's reference implementation on whatever numbers they are given."""

    def __init__(self, opsets: Mapping[str, int]) -> None:
        self.imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
        self._made = lru_cache(maxsize=None)(self._make)
        self._nodes: dict[int, onnx.NodeProto] = {}

    def run(self, node: onnx.NodeProto, given: Iterable[Array | None]) -> list[Array]:
        """Its outputs; raises Failed."""
        self._nodes[id(node)] = node  # kept alive, so that the number stays its own
        feeds = {name: value for name, value in zip(node.input, given, strict=True) if name and value is not None}
        try:
            with np.errstate(all="ignore"):
                return [np.asarray(value) for value in self._made(id(node)).run(None, feeds)]
        except Exception as error:
            raise Failed(f"{node.op_type}: {said(error)}") from None

    def _make(self, key: int) -> ReferenceEvaluator:
        node = self._nodes[key]
        names = dict.fromkeys(name for name in node.input if name)
        graph = helper.make_graph(
            [node],
            "one",
            [onnx.ValueInfoProto(name=name) for name in names],
            [onnx.ValueInfoProto(name=name) for name in node.output if name],
        )
        return ReferenceEvaluator(helper.make_model(graph, opset_imports=self.imports))


def said(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
