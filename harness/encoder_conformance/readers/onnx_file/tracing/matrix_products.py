"""Matrix products in Einstein notation: MatMul, Gemm and Einsum, and their effect on numbered elements."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from string import ascii_letters

import numpy as np
import onnx

from encoder_conformance.readers.onnx_file.graph.nodes import attributes_of
from encoder_conformance.readers.onnx_file.tracing.expressions import UnsupportedPattern, WeightSource
from encoder_conformance.readers.onnx_file.tracing.features import Feature
from encoder_conformance.spec.axes import Array

_NEAR = 2e-2
"""The error of a square of sine and cosine in bfloat16."""


@dataclass(frozen=True)
class Product:
    """`first`, `second` → `out`, a letter an axis. A letter that an operand repeats along it does not have."""

    first: str
    second: str
    out: str

    def swapped(self) -> "Product":
        return Product(self.second, self.first, self.out)

    def groups(self) -> tuple[str, str, str, str]:
        """The letters by where they stand: in both operands and the result, in `first` and the result, in `second` and
        the result, and in both operands alone: those are summed."""
        a, b, out = self.first, self.second, self.out
        if any(c not in b + out for c in a) or any(c not in a + out for c in b):
            raise UnsupportedPattern("a product that also sums one of its operands")
        return (
            "".join(c for c in out if c in a and c in b),
            "".join(c for c in a if c not in b),
            "".join(c for c in b if c not in a),
            "".join(c for c in a if c in b and c not in out),
        )


def product_of(node: onnx.NodeProto, first: Array, second: Array) -> tuple[Product, Array, Array]:
    """The product, and both operands [*letters] without the axes of 1 that are repeated along the other's."""
    a, b, out = _letters(node, first.ndim, second.ndim)
    sizes: dict[str, int] = {}
    for letters, operand in ((a, first), (b, second)):
        for letter, size in zip(letters, operand.shape, strict=True):
            sizes[letter] = max(size, sizes.get(letter, 1))
    a, first = _without_repeated(a, first, sizes)
    b, second = _without_repeated(b, second, sizes)
    return Product(a, b, out), first, second


def _without_repeated(letters: str, operand: Array, sizes: dict[str, int]) -> tuple[str, Array]:
    """The operand [*letters] without its axes of 1 that are longer elsewhere."""
    repeated = [axis for axis, letter in enumerate(letters) if operand.shape[axis] == 1 != sizes[letter]]
    return "".join(c for i, c in enumerate(letters) if i not in repeated), operand.squeeze(tuple(repeated))


def _letters(node: onnx.NodeProto, first: int, second: int) -> tuple[str, str, str]:
    """The letters of both operands, of `first` and `second` axes, and of the result."""
    attributes = attributes_of(node)
    if node.op_type == "Gemm":
        return ("ki" if attributes.get("transA") else "ik"), ("jk" if attributes.get("transB") else "kj"), "ij"
    if node.op_type == "Einsum":
        return _einsum(bytes(attributes["equation"]).decode(), (first, second))
    if attributes.get("transBatchA") or attributes.get("transBatchB"):
        raise UnsupportedPattern(f"{node.op_type} with transposed batches")
    batch = ascii_letters[20 : 20 + max(first, second, 2) - 2]
    a = "k" if first == 1 else batch[len(batch) - (first - 2) :] + ("ki" if attributes.get("transA") else "ik")
    b = "k" if second == 1 else batch[len(batch) - (second - 2) :] + ("jk" if attributes.get("transB") else "kj")
    return a, b, batch + ("i" if first > 1 else "") + ("j" if second > 1 else "")


def _einsum(equation: str, ranks: tuple[int, int]) -> tuple[str, str, str]:
    left, arrow, out = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != 2:
        raise UnsupportedPattern(f"Einsum of {len(terms)} operands")
    free = [c for c in ascii_letters if c not in equation]
    spread = [
        rank - len(term.replace("...", "")) if "..." in term else 0 for term, rank in zip(terms, ranks, strict=True)
    ]
    dots = "".join(free[: max(spread)])
    if not arrow:
        once = sorted(c for c in set(left) - set(",.") if left.count(c) == 1)
        out = ("..." if dots else "") + "".join(once)
    a, b = (term.replace("...", dots[len(dots) - n :]) for term, n in zip(terms, spread, strict=True))
    out = out.replace("...", dots)
    for letters, rank in ((a, ranks[0]), (b, ranks[1])):
        if len(set(letters)) != len(letters) or len(letters) != rank:
            raise UnsupportedPattern(f"Einsum {equation!r}, which takes a diagonal")
    return a, b, out


def arranged(operand: Array, letters: str, *groups: str) -> Array:
    """The operand [*letters] with one axis for each group of letters, in the order of the groups."""
    order = [letters.index(letter) for group in groups for letter in group]
    sizes = [prod(operand.shape[letters.index(letter)] for letter in group) for group in groups]
    return operand.transpose(order).reshape(sizes)


def spread_out(result: Array, sizes: dict[str, int], out: str, *groups: str) -> Array:
    """The way back: a result [*groups], an axis for each, as the product gives it [*out]."""
    letters = "".join(groups)
    return result.reshape([sizes[letter] for letter in letters]).transpose([letters.index(letter) for letter in out])


def sizes_of(product: Product, first: Array, second: Array) -> dict[str, int]:
    """Letter → size, of operands [*first] and [*second]."""
    return dict(zip(product.first, first.shape, strict=True)) | dict(zip(product.second, second.shape, strict=True))


def as_blocks(product: Product, first: Array, second: Array) -> tuple[Array, Array, Callable[[Array], Array]]:
    """Both operands as [P, R, K] and [P, C, K], in P blocks of what they share and K summed; and the way back of a
    result [P, R, C]."""
    (shared, own, others, summed), sizes = product.groups(), sizes_of(product, first, second)
    a = arranged(first, product.first, shared, own, summed)
    b = arranged(second, product.second, shared, others, summed)
    return a, b, lambda made: spread_out(made, sizes, product.out, shared, own, others)


def for_each_sharing(product: Product, first: Array, second: Array, place: Array) -> tuple[Product, Array]:
    """The product with its second operand [*second] repeated for each of several heads of `first` [*first] that share
    one of its own (E-28): along the letters of the first alone in which `place`, that of its elements, stays."""
    for axis, letter in enumerate(product.first):
        if letter not in product.second and letter in product.out and (place == place.take([0], axis)).all():
            second = np.broadcast_to(second, (first.shape[axis], *second.shape))
            product = Product(product.first, letter + product.second, product.out)
    return product, second


def constant_along(values: Array, axis: int, what: str) -> Array:
    """`values` [..., n, ...] with this axis gone, along which they have to be equal."""
    head = values.take([0], axis)
    if not (values == head).all():
        raise UnsupportedPattern(what)
    return head.squeeze(axis)


def _of_one_matrix(product: Product, source: WeightSource) -> tuple[Product, WeightSource]:
    """The same product, without the axes along which the constant is repeated, as once more for each item."""
    for letter in product.groups()[0]:
        axis = product.second.index(letter)
        if (source.value == source.value.take([0], axis)).all():
            source = source.arranged(partial(np.take, indices=0, axis=axis))
            product = Product(product.first, product.second.replace(letter, ""), product.out)
    return product, source


def linear_map(
    product: Product, index: Array, source: WeightSource, F: int, *, mixing: str, of_a_part: bool = False
) -> tuple[Array, WeightSource, int, int]:
    """Features times a constant: the result's index, the weight [in, out], by how many heads it is shared, and out.

    `index` is the operand's, of features [N, F]; `source` the constant operand, `product` with the data first.
    `mixing`: what it is where it sums over positions. `of_a_part`: it may take some of the features alone.
    """
    product, source = _of_one_matrix(product, source)
    (shared, own, others, summed), sizes = product.groups(), sizes_of(product, index, source.value)
    if prod(sizes[c] for c in shared) > 1:
        raise UnsupportedPattern(f"weights {list(source.value.shape)}", "grouped_map")
    data = arranged(index, product.first, own + shared, summed)  # [R, K]
    features = data % F
    if data.shape[1] > 1 and (features == features[:, :1]).all() and (np.diff(data // F) == 1).all():
        raise UnsupportedPattern(mixing, "map_of_positions")
    positions = constant_along(data // F, 1, mixing)
    heads = 1
    if not (features == features[:1]).all():
        features, block, heads = _by_heads(features, F, of_heads=len(np.unique(positions)) < len(positions))
    elif not np.array_equal(np.sort(features[0]), np.unique(features[0]) if of_a_part else np.arange(F)):
        raise UnsupportedPattern("a linear map of some of the features alone", "grouped_map")
    else:
        features, block = features[0], np.zeros(len(data), np.int64)
    weight = source.arranged(lambda values: arranged(values, product.second, summed, others))
    if (np.diff(features) < 0).any():
        weight = weight.take(np.argsort(features))
    out = weight.value.shape[1]
    labels = positions[:, None] * (out * heads) + block[:, None] * out + np.arange(out)
    spread = spread_out(labels, sizes, product.out, own + shared, others)
    return spread, weight, heads, out * heads


def is_part_of_a_rotation(product: Product, constant: Array) -> bool:
    """Whether a constant [*second] turns features that are multiplied with it: by a matrix of each position's own, or
    as the map of (x, y) to (−y, x) that sine and cosine are then put to.

    Both are how people write rotary positions as matrix products (Su et al., 2021, arXiv 2104.09864, equation 15). A
    weight that was learnt is no signed permutation.
    """
    shared, _, others, summed = product.groups()
    matrices = arranged(constant, product.second, shared, others, summed)
    K = matrices.shape[-1]
    if K < 2 or matrices.shape[1] != K:
        return False
    gram = matrices @ matrices.swapaxes(-1, -2)
    orthogonal = np.abs(gram - np.eye(K)).max() <= _NEAR
    if (matrices != matrices[:1]).any():
        return bool(orthogonal)
    return bool(orthogonal and np.isin(matrices, (-1, 0, 1)).all() and (matrices < 0).any())


def _by_heads(features: Array, F: int, *, of_heads: bool) -> tuple[Array, Array, int]:
    """The order of features [R, K], which differ from row to row, in a block of K, and each row's block. `of_heads`: a
    position has several rows."""
    K = features.shape[1]
    inside, block = features % K, features // K
    if F % K or not (inside == inside[:1]).all() or not (block == block[:, :1]).all():
        one = "head" if of_heads else "position"
        feature: Feature | None = "map_of_heads" if of_heads else None
        raise UnsupportedPattern(f"a linear map of other features at one {one} than at the next", feature)
    if not np.array_equal(np.sort(inside[0]), np.arange(K)):
        raise UnsupportedPattern("a linear map that takes a feature twice")
    return inside[0], block[:, 0], F // K
