"""The contract of a *staged* model, and how an export comes to keep it.

Inputs: `x` [batch, sequence, d_model] in the parameters' dtype, or, under that name, token ids [batch, sequence],
int64; `token_types` [batch, sequence], int64, of a layer whose tokens have types; `mask` [batch, num_heads, sequence,
sequence], bool, true where a query (third axis) may attend to a key (fourth); `valid` [batch, sequence], bool, true
where x holds data and not padding. A biased model takes `bias` too, which is added to the scores, in the shape of the
mask and the parameters' dtype.

Outputs: every stage that the exporter can show, by its name in the specification and in the order of computation,
`output` last. Batch and sequence are free, and are the symbols `batch` and `sequence`.

Initializers hold the parameters (`binding.py`). The metadata says what the model is, under keys that begin with
`encoder-conformance.`: `parameters` (the binding, JSON), `layer` (JSON), `exporter`, `opset`, `versions` (JSON) and
`specification` (the version of this package).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import onnx
import onnx.inliner

import encoder_conformance
from encoder_conformance import Tensors
from encoder_conformance.impls.bases.onnx_model.binding import bind
from encoder_conformance.impls.bases.onnx_model.inputs import takes_ids
from encoder_conformance.spec.plan import layer_sizes, with_attributes
from encoder_conformance.spec.stages import axes_of

PREFIX = "encoder-conformance."


def finish(
    exported: onnx.ModelProto,
    layer: Mapping[str, Any],
    parameters: Tensors,
    *,
    exporter: str,
    opset: int,
    versions: Mapping[str, str],
) -> onnx.ModelProto:
    """The staged model of an export whose inputs and outputs bear their names, and which holds these `parameters`.

    Raises RuntimeError for another opset than the one that was asked for, LookupError where a parameter is not found,
    and onnx.checker's or onnx.shape_inference's own where the export is no valid model.
    """
    model = onnx.inliner.inline_local_functions(exported) if exported.functions else exported
    written = {entry.domain: entry.version for entry in model.opset_import}
    if written.get("", written.get("ai.onnx")) != opset:
        raise RuntimeError(f"asked for opset {opset}, the exporter wrote {written}")
    binding = bind(model, parameters)
    _state_shapes(model.graph, layer)
    about = {
        "parameters": binding.to_json(),
        "layer": json.dumps(layer),
        "exporter": exporter,
        "opset": str(opset),
        "versions": json.dumps(versions),
        "specification": encoder_conformance.__version__,
    }
    onnx.helper.set_model_props(model, {PREFIX + key: value for key, value in about.items()})
    onnx.checker.check_model(model, full_check=True)
    return model


def metadata(model: onnx.ModelProto) -> dict[str, str]:
    """The model's metadata, without the prefix of the keys."""
    return {
        entry.key.removeprefix(PREFIX): entry.value for entry in model.metadata_props if entry.key.startswith(PREFIX)
    }


def input_names(*, biased: bool) -> list[str]:
    return ["x", "mask", "valid", *(["bias"] if biased else [])]


def order_outputs(model: onnx.ModelProto, stages: Sequence[str]) -> None:
    """Put the outputs in the order of computation: for exporters that sort them by name."""
    by_name = {tensor.name: tensor for tensor in model.graph.output}
    ordered = [by_name[stage] for stage in stages]
    del model.graph.output[:]
    model.graph.output.extend(ordered)


def _state_shapes(graph: onnx.GraphProto, layer: Mapping[str, Any]) -> None:
    """Say every input's and output's shape in the contract's symbols, and leave those between to inference."""
    del graph.value_info[:]  # an exporter's are in symbols of its own
    sizes: dict[str, int | str] = {**layer_sizes(with_attributes(layer)), "B": "batch", "S": "sequence", "T": "keys"}
    given = {"mask": "B H S S", "valid": "B S", "bias": "B H S S", "token_types": "B S"}
    given["x"] = "B S" if takes_ids(layer) else "B S D"
    for tensor in graph.input:
        _state_shape(tensor, given[tensor.name], sizes)
    for tensor in graph.output:
        _state_shape(tensor, axes_of(tensor.name, appended="appended_key" in layer["attention"]), sizes)


def _state_shape(tensor: onnx.ValueInfoProto, axes: str, sizes: Mapping[str, int | str]) -> None:
    shape = tensor.type.tensor_type.shape
    shape.Clear()
    for axis in axes.split():
        size = sizes[axis]
        shape.dim.add(**{"dim_param" if isinstance(size, str) else "dim_value": size})
