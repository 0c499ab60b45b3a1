"""impls/jax_pure's encoder layer against Flax's two interfaces, Linen and NNX, each under jax.jit."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from benchmarks.performance.layers.contest import (
    OURS,
    SEQUENCES,
    THREADS,
    Contest,
    Subject,
    both_ways,
    check_alike,
    forward,
    subject,
)
from encoder_conformance.impls.flax_linen.adapter import FlaxLinen
from encoder_conformance.impls.flax_nnx.adapter import FlaxNNX
from encoder_conformance.impls.jax_pure import adapter as pure
from encoder_conformance.impls.jax_pure.attention import NO_MASKS

FLAX = {
    "Flax Linen, jit": (FlaxLinen, "given"),
    "Flax NNX, jit": (FlaxNNX, "given"),
    "Flax Linen with its fast variance, jit": (FlaxLinen, "own"),
}
"""Contender → its adapter, and whether it has Flax's own defaults: of these epsilon, 1e-6, changes no time, and on
inputs of variance 1 no output either."""


def made(of: Subject) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Contender → its way forward, and its way forward and back."""
    ours = pure.JaxPure()
    ours.start("cpu", THREADS)
    ours.build(of.layer, of.parameters, "float32")
    x, cotangent = jax.device_put(of.x), jax.device_put(of.cotangent)
    found: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        f"{OURS}jit": (
            partial(pure.forward, ours.encoder, ours.params, x, NO_MASKS),
            partial(pure.backward, ours.encoder, False, ours.params, (x, NO_MASKS, None), cotangent),
        )
    }
    for name, (kind, defaults) in FLAX.items():
        flax = kind()
        flax.choices = {"defaults": defaults}
        flax.start("cpu", THREADS)
        flax.build(of.layer, of.parameters, "float32")
        found[name] = (
            partial(flax.forward, flax.params, x, None, None),
            partial(flax.backward, False, flax.params, (x, None, None), cotangent),
        )
    return found


def waited(call: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: jax.block_until_ready(call())


def main() -> None:
    contest = Contest()
    for sequence in SEQUENCES:
        contenders = made(subject(sequence))
        passes = {name: waited(one_way) for name, (one_way, _) in contenders.items()}
        check_alike({name: np.asarray(call()) for name, call in passes.items()})
        contest.row(forward(sequence), passes, sequence)
        contest.row(both_ways(sequence), {name: waited(both) for name, (_, both) in contenders.items()}, sequence)
    contest.show()


if __name__ == "__main__":
    main()
