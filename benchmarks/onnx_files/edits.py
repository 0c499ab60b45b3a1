"""Faults that are edited into a file: numbers, attributes and nodes of an exported graph, as a tool may break them.

Each takes a model, changes it in place, and raises LookupError where it has no such place. `at` tells which of several.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from encoder_conformance.spec.axes import Array

Edit = Callable[[onnx.ModelProto], None]


def _initializer(model: onnx.ModelProto, wanted: Callable[[Array], bool], at: int) -> onnx.TensorProto:
    """The initializer, or the Constant's tensor, at this place among those that are wanted."""
    tensors = [*model.graph.initializer]
    tensors += [
        attribute.t for node in model.graph.node if node.op_type == "Constant" for attribute in node.attribute
        if attribute.name == "value"
    ]  # fmt: skip
    found = [tensor for tensor in tensors if wanted(numpy_helper.to_array(tensor))]
    if not -len(found) <= at < len(found):
        raise LookupError("there is no such tensor")
    return found[at]


def _is_float(value: Array) -> bool:
    return value.dtype.kind == "f"


def _is_matrix(value: Array) -> bool:
    return _is_float(value) and value.ndim == 2 and min(value.shape) > 1


def _is_square(value: Array) -> bool:
    return _is_matrix(value) and value.shape[0] == value.shape[1]


def _is_vector(value: Array) -> bool:
    return _is_float(value) and value.ndim == 1 and value.size > 1 and bool(np.ptp(value))


def _is_number(value: Array) -> bool:
    return _is_float(value) and value.size == 1 and bool(np.isfinite(value).all()) and float(abs(value.item())) < 1e4


def numbers(model: onnx.ModelProto, wanted: Callable[[Array], bool], at: int, change: Callable[[Array], Array]) -> None:
    """Changes the numbers of a tensor, whose shape stays."""
    tensor = _initializer(model, wanted, at)
    value = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(change(value.copy()), value.dtype), tensor.name))


def _exchanged(model: onnx.ModelProto, wanted: Callable[[Array], bool], one: int, other: int) -> None:
    """Two tensors of one shape hold each other's numbers."""
    first, second = _initializer(model, wanted, one), _initializer(model, wanted, other)
    a, b = numpy_helper.to_array(first), numpy_helper.to_array(second)
    if a.shape != b.shape:
        raise LookupError("they have not one shape")
    first.CopyFrom(numpy_helper.from_array(b, first.name))
    second.CopyFrom(numpy_helper.from_array(a, second.name))


def _one_more(value: Array) -> Array:
    value.flat[value.size // 3] += 0.1
    return value


def _rows_exchanged(value: Array) -> Array:
    value[[0, 1]] = value[[1, 0]]
    return value


def _few_levels(value: Array) -> Array:
    step = np.abs(value).max() / 127
    return np.round(value / step) * step


def _node(model: onnx.ModelProto, kinds: tuple[str, ...], at: int) -> onnx.NodeProto:
    found = [node for node in model.graph.node if node.op_type in kinds]
    if not -len(found) <= at < len(found):
        raise LookupError(f"there is no such {' or '.join(kinds)}")
    return found[at]


def attribute(model: onnx.ModelProto, kind: str, at: int, **changed: object) -> None:
    node = _node(model, (kind,), at)
    kept = [each for each in node.attribute if each.name not in changed]
    del node.attribute[:]
    node.attribute.extend([*kept, *(helper.make_attribute(name, value) for name, value in changed.items())])


def another_operator(model: onnx.ModelProto, kind: str, at: int, other: str) -> None:
    """Of as many inputs."""
    node = _node(model, (kind,), at)
    node.op_type = other
    if other != kind:
        del node.attribute[:]


def left_out(model: onnx.ModelProto, kind: str, at: int, keeps: int) -> None:
    """The node gives one of its inputs as it is."""
    node = _node(model, (kind,), at)
    kept = node.input[keeps]
    del node.input[:]
    del node.attribute[:]
    node.op_type = "Identity"
    node.input.append(kept)


def inputs_exchanged(model: onnx.ModelProto, kind: str, at: int, one: int = 0, other: int = 1) -> None:
    node = _node(model, (kind,), at)
    node.input[one], node.input[other] = node.input[other], node.input[one]


def put_behind(
    model: onnx.ModelProto, kind: str, at: int, operators: tuple[tuple[str, Mapping[str, object]], ...]
) -> None:
    """These operators of one input after a node."""
    node = _node(model, (kind,), at)
    place = next(number for number, each in enumerate(model.graph.node) if each is node)
    output, value = node.output[0], f"{node.output[0]}/before"
    node.output[0] = value
    made = []
    for number, (operator, attributes) in enumerate(operators):
        name = output if number == len(operators) - 1 else f"{output}/edited/{number}"
        made.append(helper.make_node(operator, [value], [name], **attributes))
        value = name
    after = [*model.graph.node[: place + 1], *made, *model.graph.node[place + 1 :]]
    kept = [onnx.NodeProto.FromString(each.SerializeToString()) for each in after]
    del model.graph.node[:]
    model.graph.node.extend(kept)


def condition_turned(model: onnx.ModelProto, at: int) -> None:
    inputs_exchanged(model, "Where", at, 1, 2)


_HALF = (("Cast", {"to": TensorProto.FLOAT16}), ("Cast", {"to": TensorProto.FLOAT}))
EDITS: dict[str, Edit] = {
    "a matrix 1 % larger": partial(numbers, wanted=_is_matrix, at=0, change=lambda value: value * 1.01),
    "the last matrix of 8 bits": partial(numbers, wanted=_is_matrix, at=-1, change=_few_levels),
    "a square matrix transposed": partial(numbers, wanted=_is_square, at=1, change=np.transpose),
    "one number of a matrix off by 0.1": partial(numbers, wanted=_is_matrix, at=2, change=_one_more),
    "two rows exchanged": partial(numbers, wanted=_is_matrix, at=-2, change=_rows_exchanged),
    "two matrices exchanged": partial(_exchanged, wanted=_is_square, one=0, other=1),
    "a vector lost": partial(numbers, wanted=_is_vector, at=0, change=np.zeros_like),
    "the last vector lost": partial(numbers, wanted=_is_vector, at=-1, change=np.zeros_like),
    "a vector reversed": partial(numbers, wanted=_is_vector, at=2, change=lambda value: value[::-1]),
    "two vectors exchanged": partial(_exchanged, wanted=_is_vector, one=0, other=1),
    "a number 2 % larger": partial(numbers, wanted=_is_number, at=0, change=lambda value: value * 1.02),
    "another number 2 % larger": partial(numbers, wanted=_is_number, at=2, change=lambda value: value * 1.02),
    "the last number 2 % larger": partial(numbers, wanted=_is_number, at=-1, change=lambda value: value * 1.02),
    "epsilon 1e-3": partial(attribute, kind="LayerNormalization", at=0, epsilon=1e-3),
    "epsilon of the last norm 1e-4": partial(attribute, kind="LayerNormalization", at=-1, epsilon=1e-4),
    "softmax over the queries": partial(attribute, kind="Softmax", at=0, axis=-2),
    "heads not put side by side": partial(attribute, kind="Transpose", at=-1, perm=[0, 1, 2, 3]),
    "sigmoid for the softmax": partial(another_operator, kind="Softmax", at=0, other="Sigmoid"),
    "tanh for erf": partial(another_operator, kind="Erf", at=0, other="Tanh"),
    "tanh for sigmoid": partial(another_operator, kind="Sigmoid", at=0, other="Tanh"),
    "a sum subtracted": partial(another_operator, kind="Add", at=-1, other="Sub"),
    "a first sum subtracted": partial(another_operator, kind="Add", at=0, other="Sub"),
    "sine and cosine exchanged": partial(another_operator, kind="Cos", at=0, other="Sin"),
    "ReLU lost": partial(left_out, kind="Relu", at=0, keeps=0),
    "the last sum lost": partial(left_out, kind="Add", at=-1, keeps=0),
    "a sum in the middle lost": partial(left_out, kind="Add", at=-3, keeps=1),
    "the sign lost": partial(left_out, kind="Neg", at=0, keeps=0),
    "tanh lost": partial(left_out, kind="Tanh", at=0, keeps=0),
    "the distance's sign kept": partial(left_out, kind="Abs", at=0, keeps=0),
    "the mask ignored": partial(left_out, kind="Where", at=-1, keeps=2),
    "the first pattern ignored": partial(left_out, kind="Where", at=0, keeps=2),
    "the mask turned round": partial(condition_turned, at=-1),
    "a difference turned round": partial(inputs_exchanged, kind="Sub", at=0),
    "a quotient turned round": partial(inputs_exchanged, kind="Div", at=-1),
    "softmax twice": partial(put_behind, kind="Softmax", at=0, operators=(("Softmax", {"axis": -1}),)),
    "weights in float16": partial(put_behind, kind="Softmax", at=0, operators=_HALF),
    "scores in float16": partial(put_behind, kind="MatMul", at=3, operators=_HALF),
    "the output in float16": partial(put_behind, kind="Add", at=-1, operators=_HALF),
    "ReLU behind a product": partial(put_behind, kind="MatMul", at=-2, operators=(("Relu", {}),)),
}
"""Sentence → what it does."""


def applicable(model: onnx.ModelProto) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Each edit that the model has a place for, and the model with it."""
    for name, edit in EDITS.items():
        changed = onnx.ModelProto.FromString(model.SerializeToString())
        try:
            edit(changed)
        except LookupError:
            continue
        del changed.graph.value_info[:]  # what the exporter knew of the shapes would tell an edit by itself
        yield name, changed
