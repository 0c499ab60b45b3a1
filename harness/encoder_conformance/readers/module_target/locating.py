"""Finds the stages that submodules show: those whose input or output is, to the bit of a float, the oracle's stage."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from encoder_conformance.readers.module_target.live import Seen
from encoder_conformance.readers.module_target.proving import Bench
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.stages import kind_of

_CLOSE = {"float64": 1e-9, "float32": 1e-4}


@dataclass(frozen=True)
class Place:
    """The place where a stage is seen: a tensor of a submodule's output, or of its input. `swapped`: sequence first."""

    module: str
    side: str
    index: int
    swapped: bool

    def of(self, values: Array, shape: tuple[int, ...]) -> Array:
        """The stage [*shape] out of the values of a module."""
        turned = values.swapaxes(0, 1) if self.swapped else values
        return np.ascontiguousarray(turned).reshape(shape)


def locate(bench: Bench, layer: Layer, parameters: Mapping[str, Array]) -> dict[str, Place]:
    """Stage → where it is seen. The module has these parameters."""
    x = bench.x()
    stages = bench.oracle(layer, x, parameters)
    seen, _ = bench.module.watched(bench.feeds(x))
    places = {stage: _place_of(value, seen, bench) for stage, value in stages.items() if stage != "output"}
    found = {stage: place for stage, place in places.items() if place}
    everywhere = Counter(map(kind_of, stages))  # a layer that shows fewer stages than another answers wrong names
    shown = Counter(map(kind_of, found))
    return {stage: place for stage, place in found.items() if shown[kind_of(stage)] == everywhere[kind_of(stage)]}


def _place_of(stage: Array, seen: Seen, bench: Bench) -> Place | None:
    for (name, side, index), value in seen.items():
        for swapped in (False, True):
            if swapped:
                fits = stage.ndim == 3 and value.shape[:2] == (bench.semantics.S, bench.semantics.B)
            else:
                fits = value.shape == stage.shape or value.ndim == 2
            if not fits or value.ndim < 2 or value.size != stage.size:
                continue
            place = Place(name, side, index, swapped)
            turned = place.of(value, stage.shape).astype(np.float64)
            if np.abs(turned - stage).max() <= _CLOSE[bench.dtype] * max(1.0, float(np.abs(stage).max())):
                return place
    return None
