"""What a layer that was read has otherwise than it should: every choice, and nothing that no input tells apart."""

from typing import Any

import numpy as np
import pytest

from encoder_conformance.oracle.layer_differences import differences
from encoder_conformance.spec.layer import GlobalLayers, Layer, PositionBias, Rope
from encoder_conformance.spec.load import load


def having(**chosen: Any) -> Layer:
    layer = load().layers["pre-gelu"]
    return layer.model_copy(update={"attention": layer.attention.model_copy(update=chosen)})


def keys(read: Layer, stated: Layer) -> list[str]:
    return [key for key, _, _ in differences(read, stated)]


ROPE, BUCKETS = Rope(theta=1e4, pairing="halves"), PositionBias(buckets=8, max_distance=24)


@pytest.mark.parametrize(("key", "value"), [("rope", ROPE), ("position_bias", BUCKETS)])
def test_what_one_alone_has_is_a_difference(key: str, value: Any) -> None:
    assert keys(having(**{key: value}), having()) == [f"attention.{key}"]
    assert {found.rpartition(".")[0] for found in keys(having(), having(**{key: value}))} == {f"attention.{key}"}


@pytest.mark.parametrize(("distance", "found"), [(19, []), (23, []), (16, ["attention.position_bias.max_distance"])])
def test_largest_distances_with_the_same_buckets_are_alike(distance: int, found: list[str]) -> None:
    """Of 8 buckets the last begins where the logarithm says, which is at one distance for several largest ones."""
    other = PositionBias(buckets=8, max_distance=distance)
    assert keys(having(position_bias=other), having(position_bias=BUCKETS)) == found


def test_theta_is_as_exact_as_it_can_be_read() -> None:
    near, far = (having(rope=Rope(theta=theta, pairing="halves")) for theta in (10001.0, 10100.0))
    assert keys(having(rope=ROPE), near) == []
    assert keys(having(rope=ROPE), far) == ["attention.rope.theta"]


def test_one_pair_has_no_theta_and_no_order() -> None:
    one = having(rope=Rope(theta=1e4, pairing="halves", rotated=2))
    assert keys(one, having(rope=Rope(theta=500.0, pairing="interleaved", rotated=2))) == []
    assert keys(one, having(rope=Rope(theta=1e4, pairing="halves", rotated=4))) == ["attention.rope.rotated"]


def test_a_size_that_is_written_down_is_what_it_would_be_without() -> None:
    layer = having()
    written = having(head_dim=layer.head_dim, kv_heads=layer.attention.num_heads)
    assert keys(layer, written) == []
    assert keys(layer, having(head_dim=layer.head_dim + 2)) == ["attention.head_dim"]
    assert keys(having(kv_heads=1), written) == ["attention.kv_heads"]


def test_layers_without_a_window_are_the_same_whatever_would_come_next() -> None:
    def stack(first: int, every: int, theta: float | None = None) -> Layer:
        those = GlobalLayers(first=first, every=every, theta=theta)
        return having().model_copy(
            update={"stack": having().stack.model_copy(update={"layers": 4, "global_layers": those})}
        )

    assert keys(stack(1, 3), stack(1, 7)) == []
    assert keys(stack(0, 2), stack(0, 3)) == ["stack.global_layers.every"]
    assert keys(stack(0, 4), stack(0, 5, 500.0)) != []


def test_a_factor_is_as_exact_as_a_file_holds_it() -> None:
    """A file may multiply by it, or divide by one over it, each rounded to float32."""
    factor = (36 / 30) ** 0.5
    stated, read, other = (
        having().model_copy(update={"residual_scale": value})
        for value in (factor, 1 / float(np.float32(1 / factor)), factor * (1 + 1e-6))
    )
    assert keys(read, stated) == []
    assert keys(other, stated) == ["residual_scale"]
