"""Modules on JAX with dropout on: gradients of the mask that the output shows, and of another; and nothing dropped."""

import runpy
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import numpy as np
import pytest
from flax import nnx

from encoder_conformance.protocol.way_back import WayBackAnswer
from encoder_conformance.readers.module_target.frameworks import framework_of
from encoder_conformance.readers.module_target.training import drops_nothing, with_dropout

BARE: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("bare_jax.py")))
X = np.random.default_rng(0).normal(size=(3, 5, BARE["D"]))
COTANGENT = np.random.default_rng(1).normal(size=X.shape)


def kept(x: jax.Array, key: jax.Array) -> jax.Array:
    return x * (jax.random.uniform(key, x.shape) > 0.1) / 0.9


@jax.custom_vjp
def drop(x: jax.Array, key: jax.Array) -> jax.Array:
    """Its way back draws from another key."""
    return kept(x, key)


drop.defvjp(lambda x, key: (kept(x, key), key), lambda key, g: (kept(g, jax.random.fold_in(key, 1)), None))


class NnxDrawsAgain(BARE["Nnx"]):  # type: ignore[misc]
    def first(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return x + (y if self.dropout.deterministic else drop(y, self.dropout.rngs()))


class LinenDrawsAgain(BARE["Linen"]):  # type: ignore[misc]
    @nn.compact
    def __call__(self, x: jax.Array, mask: jax.Array | None = None, train: bool = True) -> jax.Array:
        y = nn.MultiHeadDotProductAttention(2, deterministic=True)(x, x, mask=mask)
        x = nn.LayerNorm()(x + (drop(y, self.make_rng("dropout")) if train else y))
        return nn.LayerNorm()(x + nn.Dense(self.d)(nn.relu(nn.Dense(self.f)(x))))


class NothingDropped(nnx.Module):
    def __init__(self) -> None:
        self.map = nnx.Linear(BARE["D"], BARE["D"], rngs=nnx.Rngs(0))

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.map(x)


def answer(module: Any) -> WayBackAnswer:
    framework = framework_of(module)
    assert framework is not None
    return with_dropout(framework.live(module).in_dtype("float64"), {"x": X}, COTANGENT, "float64")


@pytest.mark.release
@pytest.mark.parametrize("name", ["Linen", "Nnx", "Equinox"])
def test_gradients_of_the_mask_that_was_drawn_pass(name: str) -> None:
    found = answer(BARE[name]())
    assert found.outcome == "pass", found.message


@pytest.mark.parametrize("made", [NnxDrawsAgain, pytest.param(LinenDrawsAgain, marks=pytest.mark.release)])
def test_gradients_of_another_mask_fail(made: Any) -> None:
    found = answer(made())
    assert found.outcome == "fail"
    assert found.message.startswith("with dropout on, the gradient is not that of the mask that the output shows: ")


@pytest.mark.parametrize("module", [NothingDropped(), BARE["function"]])
def test_where_nothing_is_drawn_nothing_is_asked_or_said(module: Any) -> None:
    found = answer(module)
    assert (found.outcome, found.message) == ("not-asked", "")


class NnxDropsNothing(BARE["Nnx"]):  # type: ignore[misc]
    def __call__(self, x: jax.Array, mask: jax.Array | None = None) -> jax.Array:
        x = x + self.attention(self.norm1(x), mask=mask, deterministic=True)
        return x + self.down(self.activation(self.up(self.norm2(x))))


@pytest.mark.parametrize(
    "made",
    [NnxDropsNothing, *(pytest.param(BARE[name], marks=pytest.mark.release) for name in ("Nnx", "Linen", "Equinox"))],
)
def test_a_rate_of_which_nothing_is_dropped_is_named(made: Any) -> None:
    framework = framework_of(module := made())
    assert framework is not None
    live = framework.live(module).in_dtype("float64")
    found = drops_nothing(live, {"x": X}, live.call({"x": X}), "float64")
    if made is not NnxDropsNothing:
        assert found is None
        return
    assert found is not None
    assert found.outcome == "unusual", "an argument of another name may turn it on"
    assert (
        found.message
        == "in training it drops nothing, and it has MultiHeadAttention.dropout_rate = 0.1 and Dropout = 0.1"
    )
