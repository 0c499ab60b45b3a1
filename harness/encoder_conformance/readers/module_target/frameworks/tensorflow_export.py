"""Exports a function of x on TensorFlow to ONNX, so that the graph can be read."""

import hashlib
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import tensorflow as tf

from encoder_conformance.readers.module_target.calling_lines import code_in
from encoder_conformance.readers.module_target.frameworks.kept_exports import recalled_or
from encoder_conformance.readers.module_target.installing import install
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.readers.onnx_file.graph.operators import IDENTITIES, MOVES

_LIBRARIES = ("keras", "tensorflow", "einops")
"""Packages whose lines are not the user's."""
_ARRANGED = "Reshape"
_HANDED_ON = "Identity"
"""What TensorFlow puts behind what a function gives: no line of the user's."""
_MADE_BY = ("tensorflow", "tensorflow-cpu", "tf2onnx", "onnx", "numpy")


def exported(function: Callable[..., Any], x_shape: tuple[int, ...]) -> onnx.ModelProto:
    """Exports a function of x by tf2onnx. Raises ExecutionError if it is not installed."""
    signature = [tf.TensorSpec(x_shape, tf.float32, name="x")]
    traced = _traceable(function, signature)
    known = traced.get_concrete_function(*signature)

    def export() -> onnx.ModelProto:
        try:
            import tf2onnx
        except ImportError:
            raise ExecutionError(f"tf2onnx is not installed: {install('tf2onnx')}") from None
        model: onnx.ModelProto
        model, _ = tf2onnx.convert.from_function(traced, signature, opset=18)
        _without_erfc(model.graph)
        _with_what_is_held(model.graph, known)
        return model

    return recalled_or(export, _known_by(known), _MADE_BY)


def _with_what_is_held(graph: onnx.GraphProto, traced: Any) -> None:
    """Numbers in place of inputs, which tf2onnx makes of tensors that a layer made before it was called."""
    held = {inside.name: value for value, inside in traced.graph.captures}
    for taken in [each for each in graph.input if each.name in held]:
        graph.input.remove(taken)
        graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(held[taken.name]), taken.name))


def _traceable(function: Callable[..., Any], signature: list[tf.TensorSpec]) -> Any:
    """A function as TensorFlow traces it. AutoGraph, which rewrites all code that it meets and so takes most of the
    time, is left to what cannot be traced without: it branches on a tensor."""
    plain = tf.function(function, autograph=False)
    try:
        plain.get_concrete_function(*signature)
    except Exception:
        return tf.function(function)
    return plain


def _known_by(traced: Any) -> list[object] | None:
    """What an export is known by: the graph, and the values that it takes from outside. None where one is no array."""
    digest = hashlib.sha256(traced.graph.as_graph_def().SerializeToString(deterministic=True))
    variables = {id(each.handle): each for each in traced.graph.variables}
    for taken in traced.captured_inputs:
        value = variables.get(id(taken), taken)
        if getattr(value, "dtype", None) == tf.resource:
            return None
        digest.update(np.asarray(tf.convert_to_tensor(value)).tobytes())
    return [digest.hexdigest()]


def _without_erfc(graph: onnx.GraphProto) -> None:
    """1 - erf in place of erfc, which TensorFlow's GELU is and ONNX has not."""
    nodes = []
    for node in graph.node:
        if node.op_type != "Erfc":
            nodes.append(node)
            continue
        [x], [out] = node.input, node.output
        one = onnx.numpy_helper.from_array(np.array(1, np.float32), f"{out}/one")
        graph.initializer.append(one)
        erf = onnx.helper.make_node("Erf", [x], [f"{out}/erf"])
        nodes += [erf, onnx.helper.make_node("Sub", [one.name, f"{out}/erf"], [out], node.name)]
    del graph.node[:]
    graph.node.extend(nodes)


class LinesByName:
    """Is given a value of an export, which has the name of TensorFlow's step that makes it, and finds that one's line.
    `function`: what was exported, of x; it is traced once more, which gives its steps the same names."""

    def __init__(self, function: Callable[..., Any], model: onnx.ModelProto, x_shape: tuple[int, ...]) -> None:
        self._function, self._shape = function, x_shape
        self._producers = {name: node for node in model.graph.node for name in node.output}

    def __call__(self, name: str, moved: bool = False) -> str:
        """`model.py:12: x = x + self.attend(x)`; "" where no step has the name, but for what is moved by the exporter
        alone, and is of the step whose numbers it has. `moved`: of steps that arrange it, one behind the other, which
        an exporter makes one of, the line of the first."""
        while name not in self._steps:
            node = self._producers.get(name)
            if node is None or node.op_type not in MOVES | IDENTITIES:
                return ""
            name = node.input[0]
        step = self._steps[name]
        while moved and step.type == _ARRANGED and step.inputs[0].op.type == _ARRANGED:
            step = step.inputs[0].op
        while not (line := code_in(step.traceback, _LIBRARIES)) and step.type == _HANDED_ON:
            step = step.inputs[0].op
        return line

    @cached_property
    def _steps(self) -> dict[str, Any]:
        """Value → the step of TensorFlow's that makes it."""
        signature = [tf.TensorSpec(self._shape, tf.float32, name="x")]
        traced = _traceable(self._function, signature).get_concrete_function(*signature)
        return {value.name: step for step in traced.graph.get_operations() for value in step.outputs}
