"""Runs a model, whole and with its inner values, or one node of it by itself."""

from collections.abc import Iterable, Mapping
from copy import copy
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

    One session answers for the outputs and for every value inside: a large file is not handed over twice. `problem`
    says what ONNX Runtime had against the model.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._own = [output.name for output in model.graph.output]
        made = [name for node in model.graph.node for name in node.output if name]
        self._all = [*self._own, *dict.fromkeys(name for name in made if name not in self._own)]
        self._reference: ReferenceEvaluator | None = None
        self.session: ort.InferenceSession | None = None
        self.problem = ""
        for shown in (self._all[len(self._own) :], []):  # a value of a kind that is no output's is not looked at
            try:
                self.session = _session(model, shown)
            except Exception as error:  # ONNX Runtime has a class of its own for every status
                self.problem = said(error)
            else:
                self._all, self.problem = [*self._own, *shown], ""
                break

    def run(self, feeds: Mapping[str, Array]) -> Tensors:
        """The outputs by name; raises Failed."""
        return self._run(self._own, feeds)

    def trace(self, feeds: Mapping[str, Array]) -> Tensors:
        """The outputs and, where they can be looked at, the values inside; raises Failed."""
        return self._run(self._all, feeds)

    def _run(self, names: list[str], feeds: Mapping[str, Array]) -> Tensors:
        try:
            if self.session:
                answers = self.session.run(names, dict(feeds))
            else:
                self._reference = self._reference or ReferenceEvaluator(self._model)
                with np.errstate(all="ignore"):
                    answers = self._reference.run(names, dict(feeds))
        except Exception as error:
            raise Failed(said(error)) from None
        return {name: np.asarray(value) for name, value in zip(names, answers, strict=True)}

    def refer(self, problem: str) -> "Runner":
        """The same in ONNX's reference implementation, since ONNX Runtime has this problem with the model."""
        other = copy(self)
        other.session, other.problem = None, problem
        return other


def _session(model: onnx.ModelProto, shown: list[str]) -> ort.InferenceSession:
    """With these values of the graph for outputs, too."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    outputs = model.graph.output
    count = len(outputs)
    outputs.extend(onnx.ValueInfoProto(name=name) for name in shown)
    try:  # on the model itself, for as long as it takes: a copy of it is as large as its weights
        data = model.SerializeToString()
    finally:
        del outputs[count:]
    return ort.InferenceSession(data, options, ["CPUExecutionProvider"])


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
