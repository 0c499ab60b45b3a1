"""The JAX encoder as an ONNX model with every stage an output."""

from collections.abc import Mapping
from typing import Any

import jax
import onnx
from jax import export as jax_export

from encoder_conformance import Tensors
from encoder_conformance.impls.bases.jax_layers.exporter import exporter
from encoder_conformance.impls.bases.onnx_model.contract import input_names
from encoder_conformance.impls.bases.onnx_model.names import rename
from encoder_conformance.impls.jax_pure.adapter import nested, parameter_map
from encoder_conformance.impls.jax_pure.attention import Masks
from encoder_conformance.impls.jax_pure.building import encoder_of
from encoder_conformance.impls.jax_pure.softmax import MaskedSoftmax
from encoder_conformance.impls.jax_pure.stages import encoder_stages


def export(layer: Mapping[str, Any], parameters: Tensors, dtype: str, opset: int, *, biased: bool) -> onnx.ModelProto:
    """Its attention is written out, as it is where stages are asked for: jax.nn.dot_product_attention becomes ONNX's
    Attention, which gives a query with no key weights of 0 where JAX gives it uniform ones (onnx/onnx#8068)."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", dtype == "float64")
    held = jax.device_put(nested(parameter_map(dict(layer)).to_own(parameters, layer)))
    encoder, softmax = encoder_of(layer), MaskedSoftmax.of(layer)
    names: list[str] = []

    def staged(*given: jax.Array) -> tuple[jax.Array, ...]:
        x, mask, valid, *bias = given
        masks = Masks(mask, bias[0] if bias else None, softmax.needed(mask, valid))
        stages = encoder_stages(encoder, held, x, masks)
        names[:] = stages
        # Without a barrier jax2onnx has one name for a value, and `output` is the last stage once more; and it folds
        # two reshapes with an activation between them without asking whether what it reshapes there is an output.
        return tuple(jax.lax.optimization_barrier(list(stages.values())))

    given = example(layer, dtype, biased=biased)
    jax.eval_shape(staged, *given)
    model = exporter()(
        staged,
        given,
        opset=opset,
        enable_double_precision=dtype == "float64",
        input_names=input_names(biased=biased),
        output_names=names,
    )
    if layer["embedding"]:
        take_int64(model.graph)
    return model


def take_int64(graph: onnx.GraphProto) -> None:
    """Token ids are int32 where JAX's 64-bit numbers are not enabled: have them come as int64, and cast."""
    [ids] = [given for given in graph.input if given.name == "x"]
    if ids.type.tensor_type.elem_type == onnx.TensorProto.INT32:
        rename(graph, {"x": "x_int32"})
        ids.name, ids.type.tensor_type.elem_type = "x", onnx.TensorProto.INT64
        cast = onnx.helper.make_node("Cast", ["x"], ["x_int32"], "x_int32", to=onnx.TensorProto.INT32)
        graph.node.insert(0, cast)


def example(layer: Mapping[str, Any], dtype: str, *, biased: bool) -> tuple[jax.ShapeDtypeStruct, ...]:
    """The inputs' shapes, in symbols of one scope: those of two are never equal."""
    B, S = jax_export.symbolic_shape("batch, sequence")
    mask = (B, layer["attention"]["num_heads"], S, S)
    x = ((B, S), "int64") if layer["embedding"] else ((B, S, layer["d_model"]), dtype)
    given = [x, (mask, "bool"), ((B, S), "bool"), *([(mask, dtype)] if biased else [])]
    return tuple(jax.ShapeDtypeStruct(shape, of) for shape, of in given)
