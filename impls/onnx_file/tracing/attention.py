"""Products of two values that both depend on x: attention's scores and its context, from two nodes or from one."""

from math import prod

import numpy as np
import onnx

from encoder_conformance.impls.onnx_file.tracing.attention_products import context_product, score_product
from encoder_conformance.impls.onnx_file.tracing.expressions import (
    Array,
    Context,
    NotUnderstood,
    Scores,
    Value,
    View,
    Weights,
)
from encoder_conformance.impls.onnx_file.tracing.matrix_products import Product, attributes, named, product_of
from encoder_conformance.impls.onnx_file.tracing.value_table import Known


def of_two(known: Known, node: onnx.NodeProto, one: View, two: View) -> View:
    """Scores, or the context that weights make of values."""
    product, a, b = product_of(node, one.index, two.index)
    alpha = float(attributes(node).get("alpha", 1.0))  # type: ignore[arg-type]
    if isinstance(two.root, Weights):
        product, a, b, one, two = product.swapped(), b, a, two, one
    if isinstance(one.root, Weights):
        return _context(known, node.output[0], product, one, a, two, b, alpha)
    return _scores(known, node.output[0], product, one, a, two, b, alpha)


def _scores(known: Known, name: str, product: Product, one: View, a: Array, two: View, b: Array, alpha: float) -> View:
    if isinstance(one.root, Scores | Weights) or isinstance(two.root, Scores | Weights):
        raise NotUnderstood("a product of attention's scores")
    widths = one.root.shape[-1], two.root.shape[-1]
    index, heads_one, heads_two = score_product(product, a, b, widths, known.B, known.S)
    shape = known.B, len(heads_one), known.S, known.S
    root = known.add(Scores(shape, name, one, two, heads_one, heads_two))
    return View(root, index, one.factor * two.factor * alpha)


def _context(known: Known, name: str, product: Product, one: View, a: Array, two: View, b: Array, alpha: float) -> View:
    if isinstance(two.root, Scores | Weights):
        raise NotUnderstood("a product of attention's weights with each other")
    assert isinstance(one.root, Weights)
    index, heads = context_product(product, a, b, one.root.shape, two.root.shape[-1])
    root = known.add(Context((known.B * known.S, heads.size), name, one.root, two, heads))
    return View(root, index, one.factor * two.factor * alpha)


def attention(known: Known, node: onnx.NodeProto) -> list[Value]:
    """The operator of opset 23 and 24: both products, and what stands between them."""
    said = attributes(node)
    query, key, value = (known.closed(name) for name in node.input[:3])
    if len(node.input) > 4 and any(node.input[4:6]):
        raise NotUnderstood("Attention with a cache of keys and values")
    if said.get("softcap"):
        raise NotUnderstood(f"Attention with softcap = {said['softcap']}")
    heads = [said.get("q_num_heads"), said.get("kv_num_heads"), said.get("kv_num_heads")]
    if query.index.ndim == 4 and query.index.shape[1] != key.index.shape[1]:
        heads = [query.index.shape[1], key.index.shape[1], value.index.shape[1]]
    if heads[0] != heads[1]:
        raise NotUnderstood(f"{heads[0]} heads of query that share {heads[1]} of key and value")
    q, k, v = (_by_heads(view.index, count) for view, count in zip((query, key, value), heads, strict=True))
    scores = _scores(known, node.output[0], Product("bhid", "bhjd", "bhij"), query, q, key, k, 1.0)
    assert isinstance(scores.root, Scores)
    scale = float(said.get("scale", 0.0) or q.shape[-1] ** -0.5) * scores.factor  # type: ignore[arg-type]
    constant = None
    if said.get("is_causal"):
        constant = np.where(np.tri(known.S, dtype=np.bool_), 0.0, -np.inf) * np.ones(scores.root.shape)
    scores.root.attention = {"node": named(node), "fused": True}
    weights = known.add(Weights(scores.root.shape, node.output[0], scores.root, scale, True, constant))
    label = np.arange(prod(weights.shape)).reshape(weights.shape)
    context = _context(
        known, node.output[0], Product("bhij", "bhjd", "bhid"), View(weights, label), label, value, v, 1.0
    )
    index = context.index
    if len(known.trace[node.output[0]].shape) == 3:
        index = index.transpose(0, 2, 1, 3).reshape(known.B, known.S, -1)
    return [View(context.root, index, context.factor)]


def _by_heads(index: Array, num_heads: object) -> Array:
    """[B, S, H · d] as [B, H, S, d]; what has four axes as it is."""
    if index.ndim == 4:
        return index
    if not isinstance(num_heads, int) or index.shape[-1] % num_heads:
        raise NotUnderstood("Attention of three axes that does not say into how many heads they go")
    return index.reshape(*index.shape[:2], num_heads, -1).transpose(0, 2, 1, 3)
