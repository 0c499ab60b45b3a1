"""The choices of a layer that was read against those of the layer that it should be."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from encoder_conformance.oracle.forms.position_bias import GEOMETRIC, both_ways, exponents_of
from encoder_conformance.spec.layer import Layer, PositionBias, Rope
from encoder_conformance.spec.plain import whole
from encoder_conformance.spec.plan import OWN_BIAS

_NOT_COMPARED = {"layer", "title", "source", "clauses", "family", "dropout", "padded_rows", "padding_content"}
"""Names, and what no graph of inference shows: it has no dropout, and only runs show what padding may hold."""
OF_MASKS = ("attention.masked_score", "attention.fully_masked_row")
"""Choices that no graph shows without a mask."""
_AS_READ = 2e-4
"""Relative: a theta that was read off angles in float32."""
_ROUNDED = 2e-7
"""Relative: a number that a file holds in float32, or one over it."""


def differences(read: Layer, stated: Layer) -> Iterator[tuple[str, Any, Any]]:
    """Each choice that a layer which was read has otherwise: its key, what is stated, what was read.

    Choices that no input tells apart are no difference: the reader took one of them.
    """
    own, due = (_flat(whole(layer)) for layer in (_as_stated(read, stated), stated))
    compared = {key: expected for key, expected in due.items() if key.partition(".")[0] not in _NOT_COMPARED}
    for key, expected in compared.items():
        value = own.get(key)
        if value is None and expected is None:  # a choice of several keys that the stated layer has not
            value = {
                name.removeprefix(f"{key}."): each for name, each in own.items() if name.startswith(f"{key}.")
            } or None
        if value != expected:
            linear = OWN_BIAS.get(key)
            yield (key, stated.has_bias(linear), read.has_bias(linear)) if linear else (key, expected, value)


def _as_stated(read: Layer, stated: Layer) -> Layer:
    """The layer that was read, with the stated choices where both compute the same of any input."""
    attention, due = read.attention, stated.attention
    bias, rope = attention.position_bias, attention.rope
    if bias is not None and (meant := due.position_bias) and _same_distances(bias, meant, attention.num_heads):
        bias = meant
    if rope is not None and due.rope is not None and _same_angles(rope, due.rope, read.head_dim):
        rope = due.rope
    sizes = {"head_dim": due.head_dim} if read.head_dim == stated.head_dim else {}
    heads = ((each.kv_heads or each.num_heads) for each in (attention, due))
    sizes |= {"kv_heads": due.kv_heads} if len(set(heads)) == 1 else {}
    own = attention.model_copy(update={"position_bias": bias, "rope": rope, **sizes})
    stack = read.stack
    if stack.layers == stated.stack.layers and _same_layers(read, stated):
        stack = stack.model_copy(update={"global_layers": stated.stack.global_layers})
    near = abs(read.residual_scale / stated.residual_scale - 1) < _ROUNDED
    factor = stated.residual_scale if near else read.residual_scale
    return read.model_copy(update={"attention": own, "stack": stack, "residual_scale": factor})


def _same_layers(one: Layer, two: Layer) -> bool:
    """Whether the same layers of two stacks of equal length attend without a window (E-33), and with the same theta."""
    those = [each.stack.global_layers for each in (one, two)]
    numbers = [each and [*range(each.first, one.stack.layers, each.every)] for each in those]
    return numbers[0] == numbers[1] and len({each and each.theta for each in those}) == 1


def _same_angles(one: Rope, two: Rope, head_dim: int) -> bool:
    """Whether theta is as near as a reader can tell (E-22), or is of no account: one pair turns by the position itself,
    and has one order. What theta is to the last digit, the numbers decide."""
    if (n := one.rotated or head_dim) != (two.rotated or head_dim):
        return False
    return n == 2 or (one.pairing == two.pairing and abs(one.theta / two.theta - 1) < _AS_READ)


def _same_distances(one: PositionBias, two: PositionBias, heads: int) -> bool:
    """Whether every distance has the same bucket: from the largest of both on all share the last one (E-23); or every
    head the same slope, as where their number is a power of two (E-43)."""
    if one.buckets != two.buckets or one.distances != two.distances:
        return False
    if one.distances == "linear":
        mine, due = (exponents_of(each.slopes or GEOMETRIC, heads) for each in (one, two))
        return np.array_equal(mine, due)
    first, other = one.max_distance, two.max_distance
    if one.buckets is None or first is None or other is None or one.distances == "clipped":
        return first == other
    apart = np.arange(max(first, other) + 1)[None]
    return np.array_equal(both_ways(apart, one.buckets, first), both_ways(apart, one.buckets, other))


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
