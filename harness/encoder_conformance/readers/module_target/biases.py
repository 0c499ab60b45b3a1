"""Finds the biases that a module's graph lacks: parameters that it does not read, or none at all."""

from dataclasses import dataclass, replace

import numpy as np

from encoder_conformance.protocol.description import Fact
from encoder_conformance.readers.module_target.mapping import ElementMap
from encoder_conformance.readers.module_target.naming import SOUNDS, best_named, score
from encoder_conformance.readers.module_target.proving import shapes_of
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.parameters import without_prefix
from encoder_conformance.spec.plan import OWN_BIAS

_OUTPUT = "attention.output"
_BIASES = {**OWN_BIAS, "attention.output_bias": _OUTPUT}
"""The key of a linear map's bias → the map."""


@dataclass(frozen=True)
class SettledBiases:
    """The layer and the map with biases that are no part of the graph; what is absent still; and the own parameters
    that are not read, each with the bias that it is taken for."""

    layer: Layer
    map: ElementMap
    absent: tuple[str, ...]
    unread: tuple[tuple[str, str], ...]

    def facts(self, read: tuple[Fact, ...]) -> tuple[Fact, ...]:
        """Those of the graph that hold of this layer."""
        lacked = (None, *self.layer.lacks_bias, *(() if self.layer.attention.output_bias else (_OUTPUT,)))
        return tuple(fact for fact in read if _BIASES.get(fact.key) in lacked)


def settled(map: ElementMap, read: Layer, absent: tuple[str, ...], stated: Layer | None) -> SettledBiases:
    """A bias that the graph lacks is the own parameter that sounds like it, where that is read nowhere.

    Else the layer that was read has none; but where the stated layer has one, the module lacks that. `absent`: what
    else the graph lacks.
    """
    whole = _with_output_bias(read.lacking(()))
    lost = tuple(name for name in shapes_of(whole) if name not in shapes_of(read))
    map, absent, unread = _reclaimed(map, whole, (*absent, *lost))
    found = {_linear(name) for name in lost if name not in absent}
    due = {linear for linear in read.lacks_bias if stated is not None and stated.has_bias(linear)}
    layer = read.lacking({*read.lacks_bias} - found - due)
    layer = _with_output_bias(layer) if _OUTPUT in found else layer
    own = shapes_of(layer)
    return SettledBiases(layer, map, tuple(name for name in absent if name in own), unread)


def _with_output_bias(layer: Layer) -> Layer:
    return layer.model_copy(update={"attention": layer.attention.model_copy(update={"output_bias": True})})


def _linear(name: str) -> str:
    """The linear map that a parameter is of."""
    return without_prefix(name)[1].rpartition(".")[0]


def _reclaimed(
    map: ElementMap, layer: Layer, absent: tuple[str, ...]
) -> tuple[ElementMap, tuple[str, ...], tuple[tuple[str, str], ...]]:
    """A map with the parameters that sound like what is absent, and are read nowhere.

    Returns the map, what is absent still, and the own parameters that are not read.
    """
    shapes, unread = shapes_of(layer), {}
    sizes = {name: int(np.prod(shapes[name])) for name in absent}
    for name in absent:
        alike = [other for other in absent if sizes[other] == sizes[name]]
        idle = (each for each in map.unused() if map.own.shapes[each] == (sizes[name],))
        own = best_named(idle, name, map.own.called)
        called = "" if own is None else map.own.called(own)
        if own is not None and score(called, name) >= max(SOUNDS, *(score(called, other) for other in alike)):
            map = replace(map, elements={**map.elements, name: map.own.elements(own)})
            unread[name] = own
    still = tuple(name for name in absent if name not in unread)
    return map, still, tuple((own, name) for name, own in unread.items())
