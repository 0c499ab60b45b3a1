"""Which masks a module takes in a list, as one of several: of an array it takes the first item's."""

from dataclasses import replace

from encoder_conformance.readers.module_target.as_maps import takes_rows
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.spec.axes import Array

_OF_SEVERAL = "masks"
"""The end of a name that says so; a module that has an array by it raises for a list."""


def with_masks_in_lists(module: LiveModule, x: Array) -> LiveModule:
    """The same, given those masks in a list that it takes so."""
    named = dict.fromkeys((*module.signature.masks, *module.signature.arrangement.beside))
    for name in (each for each in named if each.lower().endswith(_OF_SEVERAL)):
        known = module.signature.arrangement
        other = module.arranged(replace(known, listed=(*known.listed, name)))
        if other is not None and takes_rows(other, name, x.shape):
            module = other
    return module
