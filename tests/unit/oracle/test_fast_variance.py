"""The scatter of E[x²] − E[x]² in float32 is that of sums in any order, and not of the one that NumPy takes."""

from collections.abc import Callable

import numpy as np
import pytest

from encoder_conformance.judging.checks.declared import patched_expectation
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.encoder import evaluate
from encoder_conformance.oracle.golden.build import compute, constants_at_once
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import constants, load
from encoder_conformance.subjects.beyond import cases_beyond


def one_after_another(x: Array) -> Array:
    return np.cumsum(x, -1, dtype=np.float32)[..., -1:]


def in_pairs(x: Array) -> Array:
    return x.sum(-1, keepdims=True, dtype=np.float32)


def in_lanes(x: Array) -> Array:
    lanes = np.cumsum(x.reshape(*x.shape[:-1], -1, 4), -2, dtype=np.float32)[..., -1, :]
    return one_after_another(lanes)


@pytest.mark.parametrize("total", [one_after_another, in_pairs, in_lanes])
@pytest.mark.parametrize("features", [16, 24, 64, 96, 128])
def test_a_norm_of_cancelled_variance_is_within_what_is_declared(
    features: int, total: Callable[[Array], Array]
) -> None:
    layer: Layer = load().layers["post-relu"].model_copy(update={"layer": f"of-{features}", "d_model": features})
    [case] = (each for each in cases_beyond(layer, ["float32"], padded=False) if "mean" in each.situation.situation)
    x = evaluate(case, Arithmetic(np.float64), None).stages["residual1"].astype(np.float32)
    gain, shift = (case.parameters()[f"norm1.{role}"].astype(np.float32) for role in ("gain", "shift"))
    mean, square = total(x) / np.float32(features), total(x * x) / np.float32(features)
    variance = np.maximum(square - mean * mean, np.float32(0)) + np.float32(layer.norm.epsilon)
    seen = (x - mean) / np.sqrt(variance) * gain + shift
    wrong = (catalogue()["norm-fast-variance"],)
    right = compute(case, constants_at_once(case))
    declared = patched_expectation(case, wrong, right, FORMATS["float32"]).tensors["norm1"]
    off = seen.reshape(-1)[declared.positions] - right.tensors["norm1"].golden
    rms = float(np.sqrt(np.mean((off / declared.condition / FORMATS["float32"].roundoff) ** 2)))
    assert rms < constants().rms_limit
