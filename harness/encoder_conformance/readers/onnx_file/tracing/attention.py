"""Attention: the products of two values that both depend on x, as two nodes or as one Attention operator."""

from dataclasses import replace
from math import prod

import numpy as np
import onnx

from encoder_conformance.readers.onnx_file.graph.nodes import attributes_of, node_label
from encoder_conformance.readers.onnx_file.tracing.attention_products import context_product, score_product
from encoder_conformance.readers.onnx_file.tracing.expressions import (
    Context,
    Scores,
    UnsupportedPattern,
    Value,
    View,
    Weights,
)
from encoder_conformance.readers.onnx_file.tracing.matrix_products import Product, product_of
from encoder_conformance.readers.onnx_file.tracing.recognition import view_of
from encoder_conformance.readers.onnx_file.tracing.value_table import ValueTable
from encoder_conformance.spec.axes import Array


def attention_product(table: ValueTable, node: onnx.NodeProto, one: View, two: View) -> View:
    """Scores (query by key), or context (weights by value)."""
    product, first, second = product_of(node, one.index, two.index)
    one, two = replace(one, index=first), replace(two, index=second)
    alpha = float(attributes_of(node).get("alpha", 1.0))
    if isinstance(two.operation, Weights):
        product, one, two = product.swapped(), two, one
    made = _context if isinstance(one.operation, Weights) else _scores
    found = made(table, node.output[0], product, one, two)
    return replace(found, factor=found.factor * alpha)


def _scores(table: ValueTable, name: str, product: Product, one: View, two: View) -> View:
    """Features by features, both indices in the axes of `product`: the scores [B, H, S, S]."""
    if isinstance(one.operation, Scores | Weights) or isinstance(two.operation, Scores | Weights):
        raise UnsupportedPattern("a product of attention's scores")
    widths = one.operation.shape[-1], two.operation.shape[-1]
    index, heads_one, heads_two = score_product(product, one.index, two.index, widths, table.B, table.S)
    shape = table.B, len(heads_one), table.S, table.S
    operation = Scores(shape, name, one, two, heads_one, heads_two)
    return View(operation, index, one.factor * two.factor)


def _context(table: ValueTable, name: str, product: Product, one: View, two: View) -> View:
    """Weights [B, H, S, S] by value, both indices in the axes of `product`: the context [N, H · d]."""
    if isinstance(two.operation, Scores | Weights):
        raise UnsupportedPattern("a product of attention's weights with each other")
    assert isinstance(one.operation, Weights)
    index, heads = context_product(product, one.index, two.index, one.operation.shape, two.operation.shape[-1])
    operation = Context((table.B * table.S, heads.size), name, one.operation, two, heads)
    return View(operation, index, one.factor * two.factor)


def attention_operator(table: ValueTable, node: onnx.NodeProto) -> list[Value]:
    """Attention of opset 23 and 24: both products and the softmax between them."""
    attributes = attributes_of(node)
    query, key, value = (view_of(table, name) for name in node.input[:3])
    if len(node.input) > 4 and any(node.input[4:6]):
        raise UnsupportedPattern("Attention with a cache of keys and values")
    if attributes.get("softcap"):
        raise UnsupportedPattern(f"Attention with softcap = {attributes['softcap']}", "softcap")
    heads = [attributes.get("q_num_heads"), attributes.get("kv_num_heads"), attributes.get("kv_num_heads")]
    if query.index.ndim == 4 and query.index.shape[1] != key.index.shape[1]:
        heads = [query.index.shape[1], key.index.shape[1], value.index.shape[1]]
    if heads[0] != heads[1]:
        message = f"{heads[0]} heads of query that share {heads[1]} of key and value"
        raise UnsupportedPattern(message, "grouped_queries")
    query, key, value = (
        replace(view, index=_by_heads(view.index, count))
        for view, count in zip((query, key, value), heads, strict=True)
    )
    scores = _scores(table, node.output[0], Product("bhid", "bhjd", "bhij"), query, key)
    assert isinstance(scores.operation, Scores)
    scale = float(attributes.get("scale", 0.0) or query.index.shape[-1] ** -0.5) * scores.factor
    constant = None
    if attributes.get("is_causal"):
        constant = np.where(np.tri(table.S, dtype=np.bool_), 0.0, -np.inf) * np.ones(scores.operation.shape)
    scores.operation.fused_in = node_label(node)
    weights = Weights(scores.operation.shape, node.output[0], scores.operation, scale, True, constant)
    label = np.arange(prod(weights.shape)).reshape(weights.shape)
    context = _context(table, node.output[0], Product("bhij", "bhjd", "bhid"), View(weights, label), value)
    index = context.index
    if len(table.computed[node.output[0]].shape) == 3:
        index = index.transpose(0, 2, 1, 3).reshape(table.B, table.S, -1)
    return [View(context.operation, index, context.factor)]


def _by_heads(index: Array, num_heads: object) -> Array:
    """[B, S, H · d] as [B, H, S, d]; four axes stay as they are."""
    if index.ndim == 4:
        return index
    if not isinstance(num_heads, int) or index.shape[-1] % num_heads:
        raise UnsupportedPattern("Attention of three axes that does not say into how many heads they go")
    return index.reshape(*index.shape[:2], num_heads, -1).transpose(0, 2, 1, 3)
