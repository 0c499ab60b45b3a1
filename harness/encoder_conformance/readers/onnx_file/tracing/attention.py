"""Attention: the products of two values that both depend on x, as two nodes or as one Attention operator."""

from dataclasses import replace
from math import prod

import numpy as np
import onnx

from encoder_conformance.readers.onnx_file.graph.nodes import attributes_of, node_label
from encoder_conformance.readers.onnx_file.tracing.expressions import (
    Appended,
    Context,
    Operation,
    Scores,
    UnsupportedPattern,
    Value,
    View,
    Weights,
)
from encoder_conformance.readers.onnx_file.tracing.features import Feature
from encoder_conformance.readers.onnx_file.tracing.matrix_products import (
    Product,
    as_blocks,
    constant_along,
    for_each_sharing,
    product_of,
)
from encoder_conformance.readers.onnx_file.tracing.recognition import view_of
from encoder_conformance.readers.onnx_file.tracing.softmax import biases_positions, hides
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
    """Features by features, both indices in the axes of `product`: the scores [B, H, S, S], or of one key more."""
    if isinstance(one.operation, Scores | Weights) or isinstance(two.operation, Scores | Weights):
        both = isinstance(one.operation, Scores | Weights) and isinstance(two.operation, Scores | Weights)
        raise UnsupportedPattern("scores are multiplied as they are", None if both else "no_softmax")
    B = table.B
    if _is_of_one_position(product, one) and _is_of_one_position(product.swapped(), two):
        raise UnsupportedPattern("scores of the heads of one position", "heads_beside")
    product, second = for_each_sharing(product, one.index, two.index, one.index // one.operation.shape[-1])
    other, first = for_each_sharing(product.swapped(), second, one.index, second // two.operation.shape[-1])
    a, b, spread_out = as_blocks(other.swapped(), first, second)  # [P, R, d]
    (Q, K), (F, G) = (tuple(side.operation.shape[at] for side in (one, two)) for at in (0, -1))
    Q, K = Q // B, K // B
    place_a, item_a, features_a = _side(a, F, Q, 0)
    place_b, item_b, features_b = _side(b, G, K, 1)
    if not np.array_equal(item_a, item_b):
        raise UnsupportedPattern(
            "a product of the positions of one item with those of another: attention across the batch"
        )
    head, heads_a, heads_b = _heads(features_a, features_b)
    H = len(heads_a)
    if len(a) != B * H or a.shape[1] != Q or b.shape[1] != K:
        fewer = a.shape[1] < Q or b.shape[1] < K
        if not fewer and len(a) > B * H:
            raise UnsupportedPattern(
                f"{len(a) // B} heads have the scores of {H}, as where a key that several share takes the query's place"
            )
        raise UnsupportedPattern("scores of some of the positions alone", _of_fewer(a, b) if fewer else None)
    label = (((item_a * H + head)[:, None, None] * Q + place_a[:, :, None]) * K) + place_b[:, None, :]
    scores = Scores((B, H, Q, K), name, one, two, heads_a, heads_b)
    return View(scores, spread_out(label), one.factor * two.factor)


def _of_fewer(queries: Array, keys: Array) -> Feature:
    """What scores are of fewer of these [P, R, d] than there are positions."""
    if queries.shape[1] > 1:
        return "blocks"
    return "one_key" if keys.shape[1] == 1 else "one_query"


def _is_of_one_position(product: Product, one: View) -> bool:
    """Whether those rows of the first operand that a row of the second meets are all of one position."""
    _, own, _, _ = product.groups()
    axes = tuple(product.first.index(letter) for letter in own)
    place = one.index // one.operation.shape[-1]
    rows = prod(one.index.shape[axis] for axis in axes)
    return rows > 1 and bool((place == place.min(axes, keepdims=True)).all())


def _side(index: Array, F: int, S: int, number: int) -> tuple[Array, Array, Array]:
    """The place in the sequence [P, R], the item [P] and the features [P, d] of one operand [P, R, d], which is the
    first or second of its product by `number`."""
    features = index % F
    if _varies(index // F) and not _varies(index // F % S):
        raise UnsupportedPattern("a product that sums over items", "tied_items")
    if _varies(index // F) and _varies(features):
        raise UnsupportedPattern(
            "a product's rows are each of several positions and features", "heads_cut", arranged=number
        )
    position = constant_along(index // F, 2, "a product that sums over positions")
    if not (features == features[:, :1]).all():
        raise UnsupportedPattern("a product's features differ from row to row", "heads_cut", arranged=number)
    item = constant_along(position // S, 1, "a product that goes from one item of the batch to another")
    return position % S, item, features[:, 0]


def _varies(numbers: Array) -> bool:
    """Whether they differ along the last axis."""
    return bool((numbers != numbers[..., :1]).any())


def _heads(first: Array, second: Array) -> tuple[Array, Array, Array]:
    """The head of each of P blocks, numbered as they come, and the features [H, d] of each head on both sides, out of
    those of each block [P, d]."""
    numbers: dict[bytes, int] = {}
    head = np.array(
        [numbers.setdefault(a.tobytes() + b.tobytes(), len(numbers)) for a, b in zip(first, second, strict=True)]
    )
    at = np.array([np.flatnonzero(head == h)[0] for h in range(len(numbers))])
    a, b = first[at], second[at]
    if (shared := len(np.unique(a, axis=0)) < len(a)) or len(np.unique(b, axis=0)) < len(b):
        order = np.argsort((b if shared else a)[:, 0], kind="stable")  # as the heads of queries stand in their map
        head, a, b = np.argsort(order)[head], a[order], b[order]
    return head, a, b


def _context(table: ValueTable, name: str, product: Product, one: View, two: View) -> View:
    """Weights [B, H, Q, K] by value, both indices in the axes of `product`: the context [N, H · d], head by head."""
    if isinstance(two.operation, Scores | Weights):
        raise UnsupportedPattern("a product of attention's weights with each other")
    weights = one.operation
    assert isinstance(weights, Weights)
    B, H, S, K = weights.shape
    product, value = for_each_sharing(product, one.index, two.index, one.index // K % S)
    two = replace(two, index=value)
    w, v, spread_out = as_blocks(product, one.index, two.index)  # [P, Q, K], [P, d, K]
    item_head = constant_along(
        constant_along(w // (S * K), 2, "weights of several heads in one sum"), 1, "weights of several heads"
    )
    item, head = item_head // H, item_head % H
    query = w // K % S
    if not (query == query[:, :, :1]).all():
        raise UnsupportedPattern(f"at {weights.name!r}", "softmax_over_queries")
    key = constant_along(w % K, 1, "weights whose keys differ from one query to the next")
    F = two.operation.shape[-1]
    position = constant_along(v // F, 1, "values of several positions in one sum")  # [P, K]
    if _leads(weights.of.appended) != _leads(two.operation):
        raise UnsupportedPattern(f"at {name!r} the key stands at one end, and the value at the other", "own_keys")
    if not np.array_equal(position, item[:, None] * K + key):
        others = "attention weights that meet the values of other positions than those of their keys"
        raise UnsupportedPattern(others, arranged=1)
    features = constant_along(v % F, 2, "features of value that differ from one position to the next")  # [P, d]
    if len(w) != B * H:
        raise UnsupportedPattern("some of the heads alone")
    own = features[[int(np.flatnonzero(head == h)[0]) for h in range(H)]]  # [H, d]
    if not np.array_equal(features, own[head]):
        raise UnsupportedPattern("heads whose features of value differ from one item to the next")
    d = own.shape[1]
    label = (item[:, None] * S + query[:, :, 0])[:, :, None] * (H * d) + head[:, None, None] * d + np.arange(d)
    context = Context((B * S, own.size), name, weights, two, own)
    return View(context, spread_out(label), one.factor * two.factor)


def _leads(keys: Operation | None) -> bool:
    """Whether a key, or a value, that no position has stands before those of the positions."""
    return isinstance(keys, Appended) and keys.leads


def attention_operator(table: ValueTable, node: onnx.NodeProto) -> list[Value]:
    """Attention of opset 23 and 24: both products and the softmax between them."""
    attributes = attributes_of(node)
    query, key, value = (view_of(table, name) for name in node.input[:3])
    if len(node.input) > 4 and any(node.input[4:6]):
        raise UnsupportedPattern("Attention with a cache of keys and values")
    if len(node.input) > 6 and node.input[6]:
        raise UnsupportedPattern("Attention that is told how many keys of each item are there (nonpad_kv_seqlen)")
    heads = [attributes.get("q_num_heads"), attributes.get("kv_num_heads"), attributes.get("kv_num_heads")]
    if query.index.ndim == 4 and query.index.shape[1] != key.index.shape[1]:
        heads = [query.index.shape[1], key.index.shape[1], value.index.shape[1]]
    query, key, value = (
        replace(view, index=_by_heads(view.index, count))
        for view, count in zip((query, key, value), heads, strict=True)
    )
    times = query.index.shape[1] // key.index.shape[1]
    key, value = (replace(view, index=np.repeat(view.index, times, axis=1)) for view in (key, value))
    scores = _scores(table, node.output[0], Product("bhid", "bhjd", "bhij"), query, key)
    assert isinstance(scores.operation, Scores)
    if scores.operation.appended is not None:
        raise UnsupportedPattern(f"Attention of them, {node_label(node)}", "own_keys")
    scale = float(attributes.get("scale", 0.0) or query.index.shape[-1] ** -0.5) * scores.factor
    scores.operation.fused_in = node_label(node)
    weights = _fused(table, node, scores.operation, scale)
    label = np.arange(prod(weights.shape)).reshape(weights.shape)
    context = _context(table, node.output[0], Product("bhij", "bhjd", "bhid"), View(weights, label), value)
    index = context.index
    if len(table.computed[node.output[0]].shape) == 3:
        index = index.transpose(0, 2, 1, 3).reshape(table.B, table.S, -1)
    return [View(context.operation, index, context.factor)]


def _fused(table: ValueTable, node: onnx.NodeProto, scores: Scores, scale: float) -> Weights:
    """What an Attention node does between its products: its mask, its causal mask, its window and its cap."""
    attributes, shape, mask = attributes_of(node), scores.shape, (*node.input, "", "")[3]
    if mask in table.values:
        raise UnsupportedPattern("Attention whose mask depends on x")
    hidden = np.zeros(shape, np.bool_)
    added = np.zeros(shape)
    if mask:
        given = table.number(mask)
        hidden |= ~given if given.dtype == np.bool_ else hides(given)
        added += 0.0 if given.dtype == np.bool_ else np.where(hides(given), 0.0, given.astype(np.float64))
    near = tuple(int(attributes.get(f"{side}_window_size", -1)) for side in ("left", "right"))
    apart = np.arange(table.S) - np.arange(table.S)[:, None]
    hidden |= (apart > 0) & bool(attributes.get("is_causal"))
    hidden |= ((-apart > near[0]) & (near[0] >= 0)) | ((apart > near[1]) & (near[1] >= 0))
    constant = np.where(hidden, -np.inf, added) if hidden.any() or added.any() else None
    prefers = constant is not None and biases_positions(constant)
    cap = float(attributes.get("softcap", 0.0))
    if cap and prefers:
        raise UnsupportedPattern("Attention that adds numbers of the file's own to capped scores", "position_bias")
    names, made = (mask,) if prefers else (), node.output[0]
    return Weights(shape, made, scores, scale, True, constant, made, cap, names, mask, near)  # type: ignore[arg-type]


def _by_heads(index: Array, num_heads: object) -> Array:
    """[B, S, H · d] as [B, H, S, d]; four axes stay as they are."""
    if index.ndim == 4:
        return index
    if not isinstance(num_heads, int) or index.shape[-1] % num_heads:
        raise UnsupportedPattern("Attention of three axes that does not say into how many heads they go")
    return index.reshape(*index.shape[:2], num_heads, -1).transpose(0, 2, 1, 3)
