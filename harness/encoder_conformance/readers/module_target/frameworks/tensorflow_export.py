"""Exports a function of x on TensorFlow to ONNX, so that the graph can be read."""

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import tensorflow as tf

from encoder_conformance.readers.module_target.frameworks.kept_exports import recalled_or
from encoder_conformance.readers.module_target.installing import install
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError

_MADE_BY = ("tensorflow", "tensorflow-cpu", "tf2onnx", "onnx", "numpy")


def exported(function: Callable[..., Any], x_shape: tuple[int, ...]) -> onnx.ModelProto:
    """Exports a function of x by tf2onnx. Raises ExecutionError if it is not installed."""
    signature, traced = [tf.TensorSpec(x_shape, tf.float32, name="x")], tf.function(function)

    def export() -> onnx.ModelProto:
        try:
            import tf2onnx
        except ImportError:
            raise ExecutionError(f"tf2onnx is not installed: {install('tf2onnx')}") from None
        model: onnx.ModelProto
        model, _ = tf2onnx.convert.from_function(traced, signature, opset=18)
        _without_erfc(model.graph)
        return model

    return recalled_or(export, _known_by(traced.get_concrete_function(*signature)), _MADE_BY)


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
