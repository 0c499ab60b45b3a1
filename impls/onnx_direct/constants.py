"""The numbers, axes and shapes that the operators of an encoder are given, as initializers."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from encoder_conformance import Array
from encoder_conformance.impls.bases.choices import slope_exponents
from encoder_conformance.spec.plan import head_dim, scaled_by, with_attributes

if TYPE_CHECKING:
    from encoder_conformance.spec.layer import Layer


def constants_of(layer: Mapping[str, Any], dtype: np.dtype) -> dict[str, Array]:
    """By name: numbers in the layer's dtype, axes and shapes."""
    D, attention, described = layer["d_model"], layer["attention"], with_attributes(layer)
    d, filled = head_dim(described), attention["masked_score"]
    least = max(float(ml_dtypes.finfo(dtype).min), float(np.finfo(np.float32).min))
    rates = np.exp(-math.log(10000) / D * np.arange(0, D, 2))
    numbers = {
        "root": math.sqrt(scaled_by(described)),
        "filled": least if filled == "minus_infinity" else max(filled, least),
        # To be added, where a number near the lowest would reach minus infinity, and ONNX Runtime's Attention takes the
        # lowest for it.
        "filled_added": max(-1e30 if filled == "minus_infinity" else filled, least / 2),
        "infinite": -math.inf,
        "undefined": math.nan,
        "epsilon": layer["norm"]["epsilon"],
        "nought": 0,
        "half": 0.5,
        "one": 1,
        "root_two": math.sqrt(2),
        "cubic": 0.044715,
        "slope": 1.702,
        "root_two_by_pi": math.sqrt(2 / math.pi),
        "rates": rates,
        "root_of_width": math.sqrt(D),
        "weight_of_branch": layer.get("residual_scale") or 1.0,
        "cap": attention.get("softcap") or 1.0,
    }
    if (bias := attention.get("position_bias")) and bias.get("distances") == "linear":
        numbers["slopes"] = [[[2.0**each]] for each in slope_exponents(bias.get("slopes"), attention["num_heads"])]
    integers = {**_shapes(described), **_of_positions(layer), **_of_shared_heads(attention, d)}
    return {
        **{name: np.array(value, dtype) for name, value in numbers.items()},
        **{name: np.array(value, np.int64) for name, value in integers.items()},
        **_frequencies(described, d, dtype),
    }


def _shapes(described: "Layer") -> dict[str, Any]:
    D, H, d = described.d_model, described.attention.num_heads, head_dim(described)
    return {
        "last_axis": [-1],
        "inner_axes": [1, 2, 3],
        "second_axis": [1],
        "split": [0, 0, H, d],
        "merged": [0, 0, H * d],
        "heads_of_one": [described.attention.kv_heads or H, 1, d],
        "pairs": [0, -1],
        "column_shape": [-1, 1],
        "nothing": [0],
        "width": [D],
        "first": 0,
        "next": 1,
    }


def _of_shared_heads(attention: Mapping[str, Any], d: int) -> dict[str, Any]:
    """What K heads of keys and values are split into, and which of them each of H heads takes (E-28)."""
    H, K = attention["num_heads"], attention.get("kv_heads") or attention["num_heads"]
    return {"split_shared": [0, 0, K, d], "shared_heads": np.repeat(np.arange(K), H // K)}


def _of_positions(layer: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes of what is rotated (E-22), the ends of the window (E-26), the first distance of each bucket but the first
    (E-23), or the last ones (E-42), and the row of position 0 (E-37)."""
    attention, found = layer["attention"], dict[str, Any]()
    if rope := attention.get("rope"):
        d = head_dim(with_attributes(layer))
        n = rope.get("rotated") or d
        found |= {"rotated_sizes": [n, d - n], "half_sizes": [n // 2, n // 2], "pair_sizes": [1, 1]}
        found |= {"pairs_of_neighbours": [0, 0, 0, n // 2, 2], "features_of_heads": [0, 0, 0, n]}
    if window := attention.get("window"):
        found |= {"keys_before": -window["left"], "keys_after": window["right"]}
    bias = attention.get("position_bias")
    if bias and bias.get("distances") == "clipped":
        found |= {"farthest_before": -bias["max_distance"], "farthest_after": bias["max_distance"]}
    elif bias and bias.get("distances") != "linear":
        half, distances = bias["buckets"] // 2, np.arange(bias["max_distance"] + 1)
        bucket = _bucket(distances, half, bias["max_distance"])
        found |= {"half_of_buckets": half, "bucket_starts": [int(np.argmax(bucket >= n)) for n in range(1, half)]}
    if table := (layer["embedding"] or {}).get("position_table"):
        found |= {"first_row": table["first"]}
    return found


def _bucket(distance: Array, half: int, max_distance: int) -> Array:
    """The bucket of each distance to one side: one for each near one, and farther ones by their logarithm."""
    exact = half // 2
    beyond = np.log(np.maximum(distance, 1) / exact) / math.log(max_distance / exact)
    far = np.minimum(exact + (beyond * (half - exact)).astype(np.int64), half - 1)
    return np.where(distance < exact, distance, far)


def _frequencies(described: "Layer", d: int, dtype: np.dtype) -> dict[str, Array]:
    """theta^(-2i / n) of each pair i (E-22), at least in float32; also of layers that have a theta of their own."""
    if (rope := described.attention.rope) is None:
        return {}
    n, those = rope.rotated or d, described.stack.global_layers
    thetas = {"rates_of_heads": rope.theta, "rates_of_global_heads": (those and those.theta) or rope.theta}
    wide = np.float64 if dtype == np.float64 else np.float32
    return {name: (theta ** (-np.arange(0, n, 2) / n)).astype(wide) for name, theta in thetas.items()}
