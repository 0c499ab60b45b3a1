"""What is deployed of a staged model: the output alone, and one mask of padding for all of its masks."""

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
    constants = {"mask_axes": [1, 2], "mask_lead": [1, num_heads], "mask_tail": [1]}
    for name, value in constants.items():
        graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), name))
    prefix = [
        helper.make_node("Unsqueeze", ["mask", "mask_axes"], ["mask_of_keys"], "mask_of_keys"),
        helper.make_node("Shape", ["mask"], ["mask_sequence"], "mask_sequence", start=1, end=2),
        helper.make_node("Concat", ["mask_lead", "mask_sequence", "mask_tail"], ["mask_shape"], "mask_shape", axis=0),
        helper.make_node("Expand", ["mask_of_keys", "mask_shape"], ["mask_of_heads"], "mask_of_heads"),
    ]
    nodes = [*prefix, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.checker.check_model(cut, full_check=True)
    return cut
