"""Cuts a staged model down to the one that is deployed: the output alone, one mask of padding for all of its masks."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.utils
from onnx import helper, numpy_helper

from encoder_conformance.impls.bases.onnx_model.names import rename


def deployed(staged: onnx.ModelProto) -> onnx.ModelProto:
    """The model with `output` as its only output, which leaves a runtime free to fuse what comes before."""
    extractor = onnx.utils.Extractor(staged)
    model: onnx.ModelProto = extractor.extract_model([given.name for given in staged.graph.input], ["output"])
    model.producer_name, model.producer_version = staged.producer_name, staged.producer_version
    del model.metadata_props[:]
    model.metadata_props.extend(staged.metadata_props)
    onnx.checker.check_model(model, full_check=True)
    return model


def padded(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with one `mask` [batch, sequence], bool, true where x holds data, in place of `mask` and `valid`.

    Every query then attends to every key that is no padding, whichever its head.
    """
    cut = onnx.ModelProto()
    cut.CopyFrom(model)
    graph = cut.graph
    rename(graph, {"mask": "mask_of_heads", "valid": "mask"})
    [whole] = [given for given in graph.input if given.name == "mask_of_heads"]
    num_heads = whole.type.tensor_type.shape.dim[1].dim_value
    graph.input.remove(whole)
    constants = {"mask_axes": [1, 2], "mask_one": [1], "mask_heads": [num_heads]}
    for name, value in constants.items():
        graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), name))
    prefix = [
        helper.make_node("Unsqueeze", ["mask", "mask_axes"], ["mask_of_keys"], "mask_of_keys"),
        helper.make_node("Shape", ["mask"], ["mask_batch"], "mask_batch", start=0, end=1),
        helper.make_node("Shape", ["mask"], ["mask_sequence"], "mask_sequence", start=1, end=2),
        _concat(("mask_one", "mask_heads", "mask_sequence", "mask_one"), "mask_shape"),
    ]
    fixed = {each.name: each for each in graph.initializer}
    nodes = [*prefix, *_of_keys_alone(graph.node, fixed)]
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.checker.check_model(cut, full_check=True)
    return cut


def _of_keys_alone(nodes: Sequence[onnx.NodeProto], fixed: Mapping[str, onnx.TensorProto]) -> Iterator[onnx.NodeProto]:
    """The nodes, with `mask_of_heads` made of `mask_of_keys`, [B, 1, 1, S], where it is needed.

    What depends on the mask alone is computed on [B, 1, 1, S], and not on [B, H, S, S], which takes ONNX Runtime a
    seventh of a pass over 512 positions. A Where broadcasts it to the scores; for all else it is expanded. A model with
    graphs within its graph, which may read any name, gets it expanded for all.
    """
    within = any(attribute.type == onnx.AttributeProto.GRAPH for node in nodes for attribute in node.attribute)
    computed = {name for node in nodes if node.op_type != "Constant" for name in node.output}
    of_keys, expanded = {"mask_of_heads": "mask_of_keys"}, set[str]()
    for node in nodes:
        masks = [name for name in node.input if name in of_keys]
        made = onnx.NodeProto()
        made.CopyFrom(node)
        if masks and not within and _is_alike_for_heads(node, fixed):
            of_keys[node.output[0]] = f"{node.output[0]}_of_keys"
            made.input[0], made.output[0] = of_keys[node.input[0]], of_keys[node.output[0]]
        elif node.op_type == "Where" and masks == [node.input[0]] and not within and computed & {*node.input[1:]}:
            made.input[0] = of_keys[node.input[0]]
        elif node.op_type == "Shape" and masks == ["mask_of_heads"]:
            made = _concat(_SHAPE[_attributes(node).get("start", 0) : _attributes(node).get("end")], node.output[0])
        else:
            for name in dict.fromkeys(masks):
                if name not in expanded:
                    yield helper.make_node("Expand", [of_keys[name], "mask_shape"], [name], f"expand_{name}")
                    expanded.add(name)
        yield made


def _is_alike_for_heads(node: onnx.NodeProto, fixed: Mapping[str, onnx.TensorProto]) -> bool:
    """Whether it computes, of what is the same for every head and query, the same for every head and query."""
    if node.op_type != "ReduceMax":
        return node.op_type in ("Cast", "Not")
    axes = _attributes(node).get("axes")
    if axes is None and len(node.input) > 1 and node.input[1] in fixed:
        axes = numpy_helper.to_array(fixed[node.input[1]]).tolist()
    return axes in ([-1], [3]) and _attributes(node).get("keepdims", 1) == 1


_SHAPE = "mask_batch", "mask_heads", "mask_sequence", "mask_sequence"
"""The sizes of `mask_of_heads`."""


def _concat(names: Sequence[str], output: str) -> onnx.NodeProto:
    return helper.make_node("Concat", list(names), [output], output, axis=0)


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {each.name: helper.get_attribute_value(each) for each in node.attribute}
