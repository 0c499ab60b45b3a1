"""Gradients with dropout on, of layers of Keras: those of the mask that the output shows, and of another."""

import runpy
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from encoder_conformance.protocol.way_back import WayBackAnswer
from encoder_conformance.readers.module_target.frameworks import framework_of
from encoder_conformance.readers.module_target.training import drops_nothing, with_dropout

BARE: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("bare_keras.py")))


def kept(x: Any, seed: Any) -> Any:
    return x * tf.cast(tf.random.stateless_uniform(tf.shape(x), tf.cast(seed, tf.int32)) > 0.1, x.dtype) / 0.9


@tf.custom_gradient
def drop(x: Any, seed: Any) -> Any:
    """Its way back draws from another seed."""
    return kept(x, seed), lambda g: (kept(g, seed + 1), None)


class DrawsAgain(BARE["Block"]):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.seeds = keras.random.SeedGenerator(3)

    def call(self, x: Any, mask: Any = None, training: bool | None = None) -> Any:
        y = super().call(x, mask)
        return x + drop(y, self.seeds.next()) if training else x + y


def answer(layer: Any) -> WayBackAnswer:
    framework = framework_of(layer)
    assert framework is not None
    x, cotangent = (np.random.default_rng(seed).normal(size=(3, 5, BARE["D"])).astype(np.float32) for seed in (0, 1))
    return with_dropout(framework.live(layer), {"x": x}, cotangent, "float32")


@pytest.mark.parametrize("name", ["Block", "functional"])
def test_gradients_of_the_mask_that_was_drawn_pass(name: str) -> None:
    found = answer(BARE[name]())
    assert found.outcome == "pass", found.message


def test_gradients_of_another_mask_fail() -> None:
    found = answer(DrawsAgain())
    assert found.outcome == "fail"
    assert found.message.startswith("with dropout on, the gradient is not that of the mask that the output shows: ")


class DropsNothing(BARE["Block"]):  # type: ignore[misc]
    def call(self, x: Any, mask: Any = None, training: bool | None = None) -> Any:
        return super().call(x, mask, training=False)


@pytest.mark.parametrize("made", [DropsNothing, pytest.param(BARE["Block"], marks=pytest.mark.release)])
def test_a_rate_of_which_nothing_is_dropped_is_named(made: Any) -> None:
    framework = framework_of(layer := made())
    assert framework is not None
    live, x = framework.live(layer), np.random.default_rng(0).normal(size=(3, 5, BARE["D"])).astype(np.float32)
    found = drops_nothing(live, {"x": x}, live.call({"x": x}), "float32")
    assert (found is None) == (made is not DropsNothing)
    assert found is None or found.message.startswith("in training it drops nothing, and it has ")
