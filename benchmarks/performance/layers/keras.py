"""impls/keras_tf's EncoderLayer against Keras' MultiHeadAttention, LayerNormalization and Dense, under tf.function."""

from collections.abc import Callable
from functools import partial
from typing import Any

from encoder_conformance.impls.keras_tf.adapter import KerasTensorFlow  # first: it chooses Keras' backend

import numpy as np  # isort: skip
import tensorflow as tf

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
from encoder_conformance.impls.bases.keras_layers.block import Block
from encoder_conformance.impls.keras_mha.adapter import PARAMETERS

Layer = Callable[[Any], Any]
Passes = dict[str, Callable[[], Any]]


def made(of: Subject) -> dict[str, tuple[Layer, list[Any]]]:
    """Contender → how it is called, and what it holds."""
    ours = KerasTensorFlow()
    ours.build(of.layer, of.parameters, "float32")
    block = Block(of.layer, "float32", own_epsilon=False)
    for name, value in PARAMETERS.to_own(of.parameters, of.layer).items():
        block.held[name].assign(value)
    return {
        f"{OURS}tf.function": (ours.encoder, list(ours.held.values())),
        "MultiHeadAttention, tf.function": (lambda x: block(x, None, False), list(block.held.values())),
    }


def both(layer: Layer, weights: list[Any], x: Any, cotangent: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        output = layer(x)
    return tape.gradient(output, [x, *(weight.value for weight in weights)], output_gradients=cotangent)


def waited(call: Callable[[], Any]) -> Callable[[], Any]:
    """TensorFlow on a CPU computes before it returns; reading the last number makes sure of it."""

    def done() -> Any:
        found = call()
        tf.nest.flatten(found)[-1].numpy()
        return found

    return done


def contenders(sequence: int) -> tuple[Passes, Passes]:
    """Contender → its way forward, and contender → its way forward and back."""
    of = subject(sequence)
    x, cotangent = tf.constant(of.x), tf.constant(of.cotangent)
    one_way: Passes = {}
    two_ways: Passes = {}
    for name, (layer, weights) in made(of).items():
        for jit, ending in ((False, ""), (True, " with jit_compile")):
            forth = tf.function(layer, jit_compile=jit)
            back = tf.function(partial(both, layer, weights), jit_compile=jit)
            one_way[name + ending] = waited(partial(forth, x))
            two_ways[name + ending] = waited(partial(back, x, cotangent))
    return one_way, two_ways


def main() -> None:
    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    tf.config.threading.set_inter_op_parallelism_threads(THREADS)
    contest = Contest()
    for sequence in SEQUENCES:
        one_way, two_ways = contenders(sequence)
        check_alike({name: np.asarray(call()) for name, call in one_way.items()})
        contest.row(forward(sequence), one_way, sequence)
        contest.row(both_ways(sequence), two_ways, sequence)
    contest.show()


if __name__ == "__main__":
    main()
