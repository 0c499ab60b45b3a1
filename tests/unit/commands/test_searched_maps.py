"""The maps that are tried where no graph tells which parameter is which."""

from encoder_conformance.readers.module_target.mapping import OwnParameters
from encoder_conformance.readers.module_target.proving import shapes_of
from encoder_conformance.readers.module_target.searching import candidate_maps
from encoder_conformance.spec.load import load


def test_queries_are_not_exchanged_with_keys_of_fewer_heads() -> None:
    layer = load().layers["pre-rope-gated"]
    shapes = shapes_of(layer)
    own = OwnParameters({name: tuple(reversed(shape)) for name, shape in shapes.items()})
    maps = list(candidate_maps(own, layer))
    assert len(maps) > 1
    assert all(at.shape == shapes[name] for each in maps for name, at in each.items())
