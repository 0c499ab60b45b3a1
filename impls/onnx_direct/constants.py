"""The numbers, axes and shapes that the operators of an encoder are given, as initializers."""

import math
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from encoder_conformance import Array


def constants_of(layer: Mapping[str, Any], dtype: np.dtype) -> dict[str, Array]:
    """By name: numbers in the layer's dtype, axes and shapes."""
    D, attention = layer["d_model"], layer["attention"]
    H, filled = attention["num_heads"], attention["masked_score"]
    least = max(float(ml_dtypes.finfo(dtype).min), float(np.finfo(np.float32).min))
    rates = np.exp(-math.log(10000) / D * np.arange(0, D, 2))
    numbers = {
        "root": math.sqrt(D if attention["scale"] == "d_model" else D // H),
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
    }
    shapes = {
        "last_axis": [-1],
        "inner_axes": [1, 2, 3],
        "second_axis": [1],
        "split": [0, 0, H, D // H],
        "merged": [0, 0, D],
        "pairs": [0, -1],
        "column_shape": [-1, 1],
        "nothing": [0],
        "width": [D],
    }
    scalars = {"first": 0, "next": 1}
    return {
        **{name: np.array(value, dtype) for name, value in numbers.items()},
        **{name: np.array(value, np.int64) for name, value in {**shapes, **scalars}.items()},
    }
