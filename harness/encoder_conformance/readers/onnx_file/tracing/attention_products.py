"""The two products of attention on numbered elements: query by key, and weights by value."""

import numpy as np

from encoder_conformance.readers.onnx_file.tracing.expressions import UnsupportedPattern
from encoder_conformance.readers.onnx_file.tracing.matrix_products import (
    Groups,
    Product,
    arranged,
    constant_along,
    sizes_of,
    spread_out,
)
from encoder_conformance.spec.axes import Array


def score_product(
    product: Product, first: Array, second: Array, widths: tuple[int, int], B: int, S: int
) -> tuple[Array, Array, Array]:
    """Features by features: the scores' index [B, H, S, S], and the features of each head on either side, [H, d].

    `widths` are the numbers of features of the operations of both operands.
    """
    groups, sizes = Groups.of(product), sizes_of(product, first, second)
    a = arranged(first, product.first, groups.shared, groups.first, groups.summed)  # [P, R, d]
    b = arranged(second, product.second, groups.shared, groups.second, groups.summed)
    place_a, item_a, features_a = _side(a, widths[0], S)
    place_b, item_b, features_b = _side(b, widths[1], S)
    if not np.array_equal(item_a, item_b):
        raise UnsupportedPattern(
            "a product of the positions of one item with those of another: attention across the batch"
        )
    head, heads_a, heads_b = _heads(features_a, features_b)
    H = len(heads_a)
    if len(a) != B * H or a.shape[1] != S or b.shape[1] != S:
        raise UnsupportedPattern("scores of some of the positions alone")
    label = (((item_a * H + head)[:, None, None] * S + place_a[:, :, None]) * S) + place_b[:, None, :]
    return spread_out(label, sizes, product.out, groups.shared, groups.first, groups.second), heads_a, heads_b


def _side(index: Array, F: int, S: int) -> tuple[Array, Array, Array]:
    """The place in the sequence [P, R], the item [P] and the features [P, d] of one operand [P, R, d]."""
    position = constant_along(index // F, 2, "a product that sums over positions")
    features = constant_along(index % F, 1, "a product whose features differ from one position to the next")
    item = constant_along(position // S, 1, "a product that goes from one item of the batch to another")
    return position % S, item, features


def _heads(first: Array, second: Array) -> tuple[Array, Array, Array]:
    """The head of each of P blocks, numbered as they come, and the features [H, d] of each head on both sides, out of
    those of each block [P, d]."""
    numbers: dict[bytes, int] = {}
    head = np.array(
        [numbers.setdefault(a.tobytes() + b.tobytes(), len(numbers)) for a, b in zip(first, second, strict=True)]
    )
    at = [int(np.flatnonzero(head == h)[0]) for h in range(len(numbers))]
    return head, first[at], second[at]


def context_product(
    product: Product, weights: Array, value: Array, shape: tuple[int, ...], F: int
) -> tuple[Array, Array]:
    """The context's index, its features counted head by head, and the features of value of each head, [H, d].

    The weights, `product`'s first operand, are of an operation of `shape` [B, H, S, S], `value` of one of F features.
    """
    _, H, S, _ = shape
    groups, sizes = Groups.of(product), sizes_of(product, weights, value)
    w = arranged(weights, product.first, groups.shared, groups.first, groups.summed)  # [P, Q, K]
    v = arranged(value, product.second, groups.shared, groups.second, groups.summed)  # [P, d, K]
    item_head = constant_along(
        constant_along(w // (S * S), 2, "weights of several heads in one sum"), 1, "weights of several heads"
    )
    query = w // S % S
    if not (query == query[:, :, :1]).all():
        raise UnsupportedPattern("attention weights that are summed over the queries and not over the keys")
    key = constant_along(w % S, 1, "weights whose keys differ from one query to the next")
    position = constant_along(v // F, 1, "values of several positions in one sum")  # [P, K]
    if not np.array_equal(position % S, key) or not np.array_equal(
        position // S, np.broadcast_to((item_head // H)[:, None], key.shape)
    ):
        raise UnsupportedPattern("attention weights that meet the values of other positions than those of their keys")
    features = constant_along(v % F, 2, "features of value that differ from one position to the next")  # [P, d]
    d = features.shape[1]
    if len(w) != shape[0] * H:
        raise UnsupportedPattern("some of the heads alone")
    at = [int(np.flatnonzero(item_head % H == h)[0]) for h in range(H)]
    if not all(np.array_equal(features[p], features[at[h]]) for p, h in enumerate(item_head % H)):
        raise UnsupportedPattern("heads whose features of value differ from one item to the next")
    row = (item_head // H)[:, None] * S + query[:, :, 0]
    label = row[:, :, None] * (H * d) + (item_head % H)[:, None, None] * d + np.arange(d)
    return spread_out(label, sizes, product.out, groups.shared, groups.first, groups.second), features[at]
