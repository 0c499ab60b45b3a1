"""Lowers ONNX Runtime's fused attention to the products that it computes: Attention, MultiHeadAttention, QAttention.

The operators are those of com.microsoft, as `docs/ContribOperators.md` of microsoft/onnxruntime has them. What is
causal, has a cache of keys, or packs its inputs, stays as it is.
"""

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from encoder_conformance.impls.onnx_file.graph.nodes import attributes_of, input_at
from encoder_conformance.impls.onnx_file.graph.parts import Parts

FILTER = -10000.0
"""What is added to a hidden score, where the node does not say (`mask_filter_value`)."""
_UNKNOWN = ("do_rotary", "past_present_share_buffer", "unidirectional")


@dataclass(frozen=True)
class Heads:
    """The names of query, key and value [B, S, H · d], the number of heads, and what is added to the scores."""

    parts: tuple[str, ...]
    count: int
    mask: str
    bias: str


@dataclass(frozen=True)
class FusedInput:
    """x [B, S, D], one weight [D, 3 · D] and bias [3 · D] of query, key and value, and what is added to the scores."""

    x: str
    weight: str
    bias: str
    mask: str
    added: str


def attention(node: onnx.NodeProto, parts: Parts) -> list[onnx.NodeProto] | None:
    """Attention: one fused weight [D, 3 · D] and bias [3 · D]. None where it is not lowered."""
    x, weight, bias, mask, past, added = (input_at(node, place) for place in range(6))
    return None if past else _projected(node, parts, FusedInput(x, weight, bias, mask, added))


def quantised_attention(node: onnx.NodeProto, parts: Parts) -> list[onnx.NodeProto] | None:
    """QAttention: input and weight are integers, each with its scale and zero point; the bias is real."""
    x, weight = f"{node.output[0]}/x", f"{node.output[0]}/weight"
    by = [[node.input[3], input_at(node, 6)], [node.input[4], input_at(node, 7)]]
    real = [
        helper.make_node("DequantizeLinear", [name for name in (node.input[0], *by[0]) if name], [x]),
        helper.make_node("DequantizeLinear", [name for name in (node.input[1], *by[1]) if name], [weight], axis=1),
    ]
    parts.dims[weight] = parts.dims.get(node.input[1], ())
    if input_at(node, 8):
        return None
    nodes = _projected(node, parts, FusedInput(x, weight, node.input[2], input_at(node, 5), ""))
    return None if nodes is None else [*real, *nodes]


def multi_head_attention(node: onnx.NodeProto, parts: Parts) -> list[onnx.NodeProto] | None:
    """MultiHeadAttention: query, key and value are projected already; one bias [3 · D] may be added to them."""
    query, key, value = (input_at(node, place) for place in range(3))
    if not (query and key and value) or any(input_at(node, place) for place in (6, 7)) or _is_unknown(node):
        return None
    nodes: list[onnx.NodeProto] = []
    names = [query, key, value]
    if bias := input_at(node, 3):
        size = parts.dims.get(bias, (0,))[0] // 3
        if not size:
            return None
        for place, part in enumerate(("query", "key", "value")):
            own, taken = f"{node.output[0]}/{part}", f"{node.output[0]}/{part}/bias"
            at = parts.constant(f"{taken}/at", np.arange(place * size, (place + 1) * size))
            nodes.append(helper.make_node("Gather", [bias, at], [taken], axis=0))
            nodes.append(helper.make_node("Add", [names[place], taken], [own]))
            names[place] = own
    heads = Heads(tuple(names), _heads(node), input_at(node, 4), input_at(node, 5))
    products = _products(node, parts, heads)
    return None if products is None else [*nodes, *products]


def _heads(node: onnx.NodeProto) -> int:
    return int(attributes_of(node)["num_heads"])


def _is_unknown(node: onnx.NodeProto) -> bool:
    attributes = attributes_of(node)
    return any(attributes.get(name) for name in _UNKNOWN)


def _projected(node: onnx.NodeProto, parts: Parts, given: FusedInput) -> list[onnx.NodeProto] | None:
    dims = parts.dims.get(given.weight, ())
    if len(dims) != 2 or _is_unknown(node):
        return None
    sizes = attributes_of(node).get("qkv_hidden_sizes") or [dims[1] // 3] * 3
    nodes, names, start = [], [], 0
    for part, size in zip(("query", "key", "value"), sizes, strict=True):
        own = f"{node.output[0]}/{part}"
        at = parts.constant(f"{own}/at", np.arange(start, start + size))
        nodes.append(helper.make_node("Gather", [given.weight, at], [f"{own}/weight"], axis=1))
        product = f"{own}/product" if given.bias else own
        nodes.append(helper.make_node("MatMul", [given.x, f"{own}/weight"], [product]))
        if given.bias:
            nodes.append(helper.make_node("Gather", [given.bias, at], [f"{own}/bias"], axis=0))
            nodes.append(helper.make_node("Add", [product, f"{own}/bias"], [own]))
        names.append(own)
        start += size
    products = _products(node, parts, Heads(tuple(names), _heads(node), given.mask, given.added))
    return None if products is None else [*nodes, *products]


def _products(node: onnx.NodeProto, parts: Parts, heads: Heads) -> list[onnx.NodeProto] | None:
    """Both products and the softmax between them; None where the mask is of a kind that is not known."""
    out, H = node.output[0], heads.count
    nodes = []
    split = parts.constant(f"{out}/split", np.array([0, 0, H, -1]))
    turned = {"query": [0, 2, 1, 3], "key": [0, 2, 3, 1], "value": [0, 2, 1, 3]}
    for part, name in zip(turned, heads.parts, strict=True):
        nodes.append(helper.make_node("Reshape", [name, split], [f"{out}/{part}/split"]))
        nodes.append(helper.make_node("Transpose", [f"{out}/{part}/split"], [f"{out}/{part}/heads"], perm=turned[part]))
    nodes.append(helper.make_node("MatMul", [f"{out}/query/heads", f"{out}/key/heads"], [f"{out}/product"]))
    scale = float(attributes_of(node).get("scale", 0.0) or 0.0)
    scores = f"{out}/scores"
    if scale:
        nodes.append(helper.make_node("Mul", [f"{out}/product", parts.number(f"{out}/scale", scale)], [scores]))
    else:
        nodes += _over_root_of_width(parts, out, f"{out}/query/split", f"{out}/product", scores)
    if heads.mask:
        masked = _mask(node, parts, heads.mask)
        if masked is None:
            return None
        made, added = masked
        nodes += [*made, helper.make_node("Add", [scores, added], [f"{scores}/mask"])]
        scores = f"{scores}/mask"
    if heads.bias:
        nodes.append(helper.make_node("Add", [scores, heads.bias], [f"{scores}/bias"]))
        scores = f"{scores}/bias"
    nodes += [
        helper.make_node("Softmax", [scores], [f"{out}/weights"], axis=3 if parts.opset < 13 else -1),
        helper.make_node("MatMul", [f"{out}/weights", f"{out}/value/heads"], [f"{out}/context"]),
        helper.make_node("Transpose", [f"{out}/context"], [f"{out}/merged"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", [f"{out}/merged", parts.constant(f"{out}/join", np.array([0, 0, -1]))], [out]),
    ]
    return nodes


def _over_root_of_width(parts: Parts, out: str, split: str, product: str, scores: str) -> list[onnx.NodeProto]:
    """The scores over the root of a head's width, which the graph knows by its shape alone."""
    width, number, root = f"{out}/width", f"{out}/width/float", f"{out}/root"
    three = parts.constant(f"{out}/three", np.array([3]))
    return [
        helper.make_node("Shape", [split], [f"{out}/shape"]),
        helper.make_node("Gather", [f"{out}/shape", three], [width], axis=0),
        helper.make_node("Cast", [width], [number], to=parts.float_type),
        helper.make_node("Sqrt", [number], [root]),
        helper.make_node("Div", [product, root], [scores]),
    ]


def _mask(node: onnx.NodeProto, parts: Parts, name: str) -> tuple[list[onnx.NodeProto], str] | None:
    """The numbers that a mask adds to the scores: 0 where it is 1, the node's `mask_filter_value` where it is 0.

    [batch, keys], [batch, queries, keys], or [batch]: how many of the first keys are there.
    """
    out, rank = node.output[0], parts.rank(name)
    if rank not in (1, 2, 3):
        return None
    low = float(attributes_of(node).get("mask_filter_value", FILTER))
    shape = {1: [-1, 1, 1, 1], 2: [0, 1, 1, -1], 3: [0, 1, -1, 0]}[rank]
    flags, added = f"{out}/mask/flags", f"{out}/mask/added"
    nodes: list[onnx.NodeProto] = []
    if rank == 3:
        nodes.append(parts.unsqueezed(name, f"{out}/mask/wide", 1))
    else:
        at = parts.constant(f"{out}/mask/shape", np.array(shape))
        nodes.append(helper.make_node("Reshape", [name, at], [f"{out}/mask/wide"]))
    if rank == 1:
        nodes += _first_ones(parts, out, f"{out}/mask/wide", flags)
    else:
        nodes.append(helper.make_node("Cast", [f"{out}/mask/wide"], [flags], to=onnx.TensorProto.BOOL))
    zero, hidden = parts.number(f"{out}/mask/zero", 0.0), parts.number(f"{out}/mask/low", low)
    nodes.append(helper.make_node("Where", [flags, zero, hidden], [added]))
    return nodes, added


def _first_ones(parts: Parts, out: str, lengths: str, flags: str) -> list[onnx.NodeProto]:
    """True for the keys before each length [batch, 1, 1, 1]."""
    one, zero = (parts.constant(f"{out}/mask/{n}", np.array(n)) for n in (1, 0))
    last = parts.constant(f"{out}/mask/last", np.array(3))
    return [
        helper.make_node("Shape", [f"{out}/product"], [f"{out}/mask/sizes"]),
        helper.make_node("Gather", [f"{out}/mask/sizes", last], [f"{out}/mask/keys"], axis=0),
        helper.make_node("Range", [zero, f"{out}/mask/keys", one], [f"{out}/mask/places"]),
        helper.make_node("Cast", [lengths], [f"{out}/mask/lengths"], to=onnx.TensorProto.INT64),
        helper.make_node("Less", [f"{out}/mask/places", f"{out}/mask/lengths"], [flags]),
    ]
