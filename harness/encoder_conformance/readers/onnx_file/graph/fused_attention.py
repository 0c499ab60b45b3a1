"""Lowers ONNX Runtime's fused attention to the products that it computes: Attention, MultiHeadAttention, QAttention.

The operators are those of com.microsoft, as `docs/ContribOperators.md` of microsoft/onnxruntime has them. What is
causal, has a cache of keys, or packs its inputs, stays as it is: each lowering says whether it was one.
"""

import numpy as np
import onnx

from encoder_conformance.readers.onnx_file.graph.nodes import attributes_of, input_at
from encoder_conformance.readers.onnx_file.graph.parts import Parts

FILTER = -10000.0
"""What is added to a hidden score, where the node does not say (`mask_filter_value`)."""
PARTS = ("query", "key", "value")
_UNKNOWN = ("do_rotary", "past_present_share_buffer", "unidirectional")


def attention(node: onnx.NodeProto, parts: Parts) -> bool:
    """Attention: one fused weight [D, 3 · D] and bias [3 · D]."""
    x, weight, bias, mask, past, added = (input_at(node, place) for place in range(6))
    names = None if past else _projected(node, parts, x, weight, bias)
    return names is not None and _products(node, parts, names, mask, added)


def quantised_attention(node: onnx.NodeProto, parts: Parts) -> bool:
    """QAttention: input and weight are integers, each with its scale and zero point; the bias is real."""
    integers, weight, bias, x_scale, weight_scale, mask, x_zero, weight_zero, past = (
        input_at(node, place) for place in range(9)
    )
    x = parts.node("DequantizeLinear", [integers, x_scale, x_zero], f"{node.output[0]}/x")
    real = parts.node("DequantizeLinear", [weight, weight_scale, weight_zero], f"{node.output[0]}/weight", axis=1)
    parts.dims[real] = parts.dims.get(weight, ())
    names = None if past else _projected(node, parts, x, real, bias)
    return names is not None and _products(node, parts, names, mask, "")


def multi_head_attention(node: onnx.NodeProto, parts: Parts) -> bool:
    """MultiHeadAttention: query, key and value are projected already; one bias [3 · D] may be added to them."""
    *names, bias, mask, added, past_key, past_value = (input_at(node, place) for place in range(8))
    if not all(names) or past_key or past_value or _is_unknown(node):
        return False
    if bias:
        size = parts.dims.get(bias, (0,))[0] // 3
        if not size:
            return False
        for place, part in enumerate(PARTS):
            own = f"{node.output[0]}/{part}"
            at = parts.constant(f"{own}/bias/at", np.arange(place * size, (place + 1) * size))
            taken = parts.node("Gather", [bias, at], f"{own}/bias", axis=0)
            names[place] = parts.node("Add", [names[place], taken], own)
    return _products(node, parts, names, mask, added)


def _is_unknown(node: onnx.NodeProto) -> bool:
    attributes = attributes_of(node)
    return any(attributes.get(name) for name in _UNKNOWN)


def _projected(node: onnx.NodeProto, parts: Parts, x: str, weight: str, bias: str) -> list[str] | None:
    """Query, key and value [B, S, H · d] of x [B, S, D]; None where the node computes something else beside."""
    dims = parts.dims.get(weight, ())
    if len(dims) != 2 or _is_unknown(node):
        return None
    sizes = attributes_of(node).get("qkv_hidden_sizes") or [dims[1] // 3] * 3
    names, start = [], 0
    for part, size in zip(PARTS, sizes, strict=True):
        own = f"{node.output[0]}/{part}"
        at = parts.constant(f"{own}/at", np.arange(start, start + size))
        taken = parts.node("Gather", [weight, at], f"{own}/weight", axis=1)
        product = parts.node("MatMul", [x, taken], f"{own}/product" if bias else own)
        if bias:
            parts.node("Add", [product, parts.node("Gather", [bias, at], f"{own}/bias", axis=0)], own)
        names.append(own)
        start += size
    return names


def _products(node: onnx.NodeProto, parts: Parts, names: list[str], mask: str, bias: str) -> bool:
    """Both products of query, key and value, and the softmax between them, of scores to which `mask` and `bias` are
    added; False where the mask is of a kind that is not known."""
    out = node.output[0]
    split = parts.constant(f"{out}/split", np.array([0, 0, int(attributes_of(node)["num_heads"]), -1]))
    turned = {"query": [0, 2, 1, 3], "key": [0, 2, 3, 1], "value": [0, 2, 1, 3]}
    for part, name in zip(PARTS, names, strict=True):
        apart = parts.node("Reshape", [name, split], f"{out}/{part}/split")
        parts.node("Transpose", [apart], f"{out}/{part}/heads", perm=turned[part])
    product = parts.node("MatMul", [f"{out}/query/heads", f"{out}/key/heads"], f"{out}/product")
    scale = float(attributes_of(node).get("scale", 0.0) or 0.0)
    if scale:
        scores = parts.node("Mul", [product, parts.number(f"{out}/scale", scale)], f"{out}/scores")
    else:
        scores = _over_root_of_width(parts, out)
    if mask:
        added = _mask(node, parts, mask)
        if added is None:
            return False
        scores = parts.node("Add", [scores, added], f"{scores}/mask")
    if bias:
        scores = parts.node("Add", [scores, bias], f"{scores}/bias")
    weights = parts.node("Softmax", [scores], f"{out}/weights", axis=3 if parts.opset < 13 else -1)
    context = parts.node("MatMul", [weights, f"{out}/value/heads"], f"{out}/context")
    merged = parts.node("Transpose", [context], f"{out}/merged", perm=[0, 2, 1, 3])
    parts.node("Reshape", [merged, parts.constant(f"{out}/join", np.array([0, 0, -1]))], out)
    return True


def _over_root_of_width(parts: Parts, out: str) -> str:
    """The scores over the root of a head's width, which the graph knows by its shape alone."""
    three = parts.constant(f"{out}/three", np.array([3]))
    shape = parts.node("Shape", [f"{out}/query/split"], f"{out}/shape")
    width = parts.node("Gather", [shape, three], f"{out}/width", axis=0)
    number = parts.node("Cast", [width], f"{out}/width/float", to=parts.float_type)
    root = parts.node("Sqrt", [number], f"{out}/root")
    return parts.node("Div", [f"{out}/product", root], f"{out}/scores")


def _mask(node: onnx.NodeProto, parts: Parts, name: str) -> str | None:
    """The numbers that a mask adds to the scores: 0 where it is 1, the node's `mask_filter_value` where it is 0.

    [batch, keys], [batch, queries, keys], or [batch]: how many of the first keys are there.
    """
    out, rank = node.output[0], parts.rank(name)
    if rank not in (1, 2, 3):
        return None
    low = float(attributes_of(node).get("mask_filter_value", FILTER))
    if rank == 3:
        wide = parts.along("Unsqueeze", name, f"{out}/mask/wide", 1)
    else:
        shape = parts.constant(f"{out}/mask/shape", np.array([-1, 1, 1, 1] if rank == 1 else [0, 1, 1, -1]))
        wide = parts.node("Reshape", [name, shape], f"{out}/mask/wide")
    if rank == 1:
        places = parts.places(f"{out}/product", 3, f"{out}/mask/places")
        numbers = parts.node("Cast", [wide], f"{out}/mask/lengths", to=onnx.TensorProto.INT64)
        flags = parts.node("Less", [places, numbers], f"{out}/mask/flags")
    else:
        flags = parts.node("Cast", [wide], f"{out}/mask/flags", to=onnx.TensorProto.BOOL)
    zero, hidden = parts.number(f"{out}/mask/zero", 0.0), parts.number(f"{out}/mask/low", low)
    return parts.node("Where", [flags, zero, hidden], f"{out}/mask/added")
