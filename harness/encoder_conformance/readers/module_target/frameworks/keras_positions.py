"""Has Keras' TimeDistributed compute all positions at once, as a layer of features does by itself: it computes them one
by one, and puts them beside each other, which a graph shows as another function."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from keras import layers

_OF_FEATURES = (layers.Dense, layers.Activation, layers.Dropout)
"""Layers that do with the features of a position the same wherever it stands, and whatever stands beside it."""


@contextmanager
def all_positions_at_once() -> Generator[None]:
    own = layers.TimeDistributed.call

    def call(self: Any, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        if isinstance(self.layer, _OF_FEATURES):
            return self.layer(inputs)
        return own(self, inputs, training=training, mask=mask)

    layers.TimeDistributed.call = call
    try:
        yield
    finally:
        layers.TimeDistributed.call = own
