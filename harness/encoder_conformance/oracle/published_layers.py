"""Which published layers a layer is that was read: those that choose what it chooses, whatever their sizes."""

from contextlib import suppress

from encoder_conformance.oracle.layer_differences import OF_MASKS, differences
from encoder_conformance.spec.at_sizes import at_sizes_of
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import published_layers


def published_as(read: Layer) -> tuple[str, ...]:
    """The ids of the layers of `specs/layers/published` that the layer is, at its own sizes; of a stack, those that
    each of its layers is."""
    found, read = [], read.with_decimal_epsilon
    for name, layer in published_layers().items():
        with suppress(ValueError):  # its choices cannot be had at these sizes
            stated = at_sizes_of(layer, read).with_decimal_epsilon
            if all(key in OF_MASKS for key, _, _ in differences(read, stated)):
                found.append(name)
    return tuple(found)
