"""Executes a model, with or without its intermediate values, or one node by itself.

A large model is given to its runtime from the disk: while it loads weights a runtime holds them two or three times, and
in bytes here they would be held once more.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper
from onnx.reference import ReferenceEvaluator

from encoder_conformance import Tensors
from encoder_conformance.platform.memory import give_freed_memory_back
from encoder_conformance.readers.onnx_file.graph.reference import evaluator
from encoder_conformance.readers.onnx_file.graph.size import LARGE, is_large
from encoder_conformance.readers.onnx_file.graph.weights_beside import write_weights_beside
from encoder_conformance.spec.axes import Array

Session = TypeVar("Session")
LONGEST = 60.0
"""Seconds of one run of a file that is looked into: a loop may have no end."""


_refused = ""


class ExecutionError(Exception):
    """A model or a node does not run on its inputs."""


def refuse_onnxruntime(reason: str) -> None:
    """From now on nothing here is run in ONNX Runtime, whose problem with each model this is: it ends the process."""
    global _refused  # of a process that it would end
    _refused = reason


class TooLong(ExecutionError):
    """A run was ended after LONGEST seconds."""


class _Session:
    """One of ONNX Runtime, with intermediate values as extra outputs. It gives no value in bfloat16 to NumPy, which is
    shown by a cast."""

    def __init__(self, model: onnx.ModelProto, shown: list[str]) -> None:
        self._session = _session(model, shown)
        narrow = [output.name for output in self._session.get_outputs() if output.type == "tensor(bfloat16)"]
        self._wide = {name: f"{name}/as float32" for name in narrow}
        if narrow:
            casts = [
                helper.make_node("Cast", [name], [wide], to=onnx.TensorProto.FLOAT) for name, wide in self._wide.items()
            ]
            others = [name for name in shown if name not in narrow]
            self._session = _session(model, [*others, *self._wide.values()], casts)

    @property
    def outputs(self) -> list[str]:
        """The names of what a run computes."""
        return [output.name for output in self._session.get_outputs()]

    def run(self, names: list[str], feeds: Mapping[str, Array], options: ort.RunOptions | None = None) -> list[Array]:
        answers = self._session.run([self._wide.get(name, name) for name in names], dict(feeds), options)
        pairs = zip(names, answers, strict=True)
        return [value.astype(ml_dtypes.bfloat16) if name in self._wide else value for name, value in pairs]


class ModelRunner:
    """A model in ONNX Runtime without optimisation, or in ONNX's reference implementation where that fails.

    Two sessions: of the outputs alone, which holds a value for as long as it is needed, and of every intermediate
    value, made when it is asked for. Of a large file the second does for both, for its weights are loaded once.
    `problem` is ONNX Runtime's complaint about the model. `ended`: a run was ended because it took too long.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model, self._large = model, is_large(model)
        self._own = [output.name for output in model.graph.output]
        produced = [name for node in model.graph.node for name in node.output if name]
        self._inner = [*dict.fromkeys(name for name in produced if name not in self._own)]
        self._reference: ReferenceEvaluator | None = None
        self._showing: _Session | None = None
        self.session: _Session | None = None
        self.problem, self.ended = "", False
        if self._large and self._shows_all():
            self.session = self._showing
            return
        try:
            self.session = _Session(model, [])
        except ExecutionError as refused:
            self.problem = str(refused)
        except Exception as error:  # ONNX Runtime has a class of its own for every status
            self.problem = error_text(error)

    def run(self, feeds: Mapping[str, Array]) -> Tensors:
        """The outputs by name; raises ExecutionError."""
        return self._run(self.session, self._own, feeds)

    def trace(self, feeds: Mapping[str, Array]) -> Tensors:
        """The outputs and, where possible, the intermediate values; raises ExecutionError."""
        return self.values([*self._own, *self._inner], feeds)

    def values(self, names: Iterable[str], feeds: Mapping[str, Array]) -> Tensors:
        """These values of a run, as far as they can be outputs; raises ExecutionError."""
        wanted = {*names}
        if self.session is None:
            return self._run(None, [name for name in [*self._own, *self._inner] if name in wanted], feeds)
        shown = self._inner if self._shows_all() else []
        session = self._showing or self.session
        found = self._run(session, [name for name in [*self._own, *shown] if name in wanted], feeds)
        if sum(value.nbytes for value in found.values()) > LARGE and not self._large:
            self._showing = None  # it keeps room for all of them for its next run, and for as long as any is held
            found = {name: value.copy() for name, value in found.items()}
        return found

    def _shows_all(self) -> bool:
        """Whether there is a session of every intermediate value: some types of value cannot be outputs."""
        if self._showing is None and self._inner:
            try:
                self._showing = _Session(self._model, self._inner)
            except Exception:  # as above
                self._inner = []
        return self._showing is not None

    def _run(self, session: _Session | None, names: list[str], feeds: Mapping[str, Array]) -> Tensors:
        try:
            if session:
                answers: Sequence[Any] = _bounded(session, names, feeds)
            else:
                self._reference = self._reference or evaluator(self._model)
                with np.errstate(all="ignore"):
                    answers = list(self._reference.run(names, dict(feeds)))
        except ExecutionError:
            self.ended = True
            raise
        except Exception as error:
            raise ExecutionError(error_text(error)) from None
        return {name: np.asarray(value) for name, value in zip(names, answers, strict=True)}

    def on_reference(self, problem: str) -> "ModelRunner":
        """The same model in ONNX's reference implementation; `problem` is ONNX Runtime's complaint."""
        other = copy(self)
        other.session, other.problem = None, problem
        return other


def loaded(
    model: Callable[[], onnx.ModelProto],
    load: Callable[[bytes | Path], Session],
    outputs: Sequence[onnx.ValueInfoProto] = (),
    nodes: Sequence[onnx.NodeProto] = (),
) -> Session:
    """`load` of the model with more outputs, and more nodes behind its own. What loading a large one took is given back
    to the system."""
    made = model()
    if not is_large(made):
        return load(_serialized_with(made, outputs, nodes))
    with TemporaryDirectory() as folder:
        path = write_weights_beside(made, Path(folder), outputs, nodes)
        del made
        give_freed_memory_back()
        session = load(path)
    give_freed_memory_back()
    return session


def _bounded(session: _Session, names: list[str], feeds: Mapping[str, Array]) -> list[Array]:
    """The outputs; raises TooLong."""
    options = ort.RunOptions()
    timer = threading.Timer(LONGEST, lambda: setattr(options, "terminate", True))
    timer.daemon = True
    timer.start()
    try:
        return session.run(names, feeds, options)
    except Exception:
        if options.terminate:
            raise TooLong(f"a run does not end within {LONGEST:.0f} s") from None
        raise
    finally:
        timer.cancel()


def _session(model: onnx.ModelProto, shown: list[str], nodes: Sequence[onnx.NodeProto] = ()) -> ort.InferenceSession:
    """A session with these intermediate values as extra outputs, and these nodes behind its own."""
    if _refused:
        raise ExecutionError(_refused)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.disable_prepacking", "1")  # a second copy of the weights

    def load(model: bytes | Path) -> ort.InferenceSession:
        given = model if isinstance(model, bytes) else str(model)
        return ort.InferenceSession(given, options, ["CPUExecutionProvider"])

    outputs = [onnx.ValueInfoProto(name=name) for name in shown]
    return loaded(lambda: model, load, outputs, nodes)


def _serialized_with(
    model: onnx.ModelProto, outputs: Iterable[onnx.ValueInfoProto], nodes: Iterable[onnx.NodeProto]
) -> bytes:
    """The model with more outputs, and more nodes behind its own: on itself, for as long as it takes, for a copy is as
    large as its weights."""
    graph = model.graph
    counts = len(graph.output), len(graph.node)
    graph.output.extend(outputs)
    graph.node.extend(nodes)
    try:
        return bytes(model.SerializeToString())
    finally:
        del graph.output[counts[0] :], graph.node[counts[1] :]


def values_of(model: onnx.ModelProto, names: list[str], feeds: Tensors) -> Tensors:
    """These values of one run; raises ExecutionError."""
    own = {output.name for output in model.graph.output} | {info.name for info in model.graph.input}
    try:
        session = _Session(model, [name for name in dict.fromkeys(names) if name not in own])
        return dict(zip(names, session.run(names, feeds), strict=True))
    except Exception as error:
        raise ExecutionError(error_text(error)) from None


class NodeRunner:
    """Executes single nodes of a graph in ONNX's reference implementation."""

    def __init__(self, opsets: Mapping[str, int]) -> None:
        self.imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
        self._made: dict[int, tuple[onnx.NodeProto, ReferenceEvaluator]] = {}

    def run(self, node: onnx.NodeProto, inputs: Iterable[Array | None]) -> list[Array]:
        """Its outputs; raises ExecutionError."""
        feeds = {name: value for name, value in zip(node.input, inputs, strict=True) if name and value is not None}
        try:
            with np.errstate(all="ignore"):
                if id(node) not in self._made:
                    self._made[id(node)] = node, self._evaluator(node)  # a node that is kept keeps its id
                return [np.asarray(value) for value in self._made[id(node)][1].run(None, feeds)]
        except Exception as error:
            raise ExecutionError(f"{node.op_type}: {error_text(error)}") from None

    def _evaluator(self, node: onnx.NodeProto) -> ReferenceEvaluator:
        names = dict.fromkeys(name for name in node.input if name)
        graph = helper.make_graph(
            [node],
            "one",
            [onnx.ValueInfoProto(name=name) for name in names],
            [onnx.ValueInfoProto(name=name) for name in node.output if name],
        )
        return evaluator(helper.make_model(graph, opset_imports=self.imports))


def error_text(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
