"""Which masks a module takes in a list, as one of several: of an array it takes the first item's."""

from dataclasses import replace

from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.supply_options import MASKS
from encoder_conformance.spec.axes import Array

_OF_SEVERAL = "masks"
"""The end of a name that says so; a module that has an array by it raises for a list."""


def with_masks_in_lists(module: LiveModule, x: Array) -> LiveModule:
    """The same, given those masks in a list that it takes so."""
    batch, sequence = x.shape[:2]
    shapes = (batch, sequence), (batch, sequence, sequence), (sequence, sequence), (batch, 1, sequence, sequence)
    named = dict.fromkeys((*module.signature.masks, *module.signature.arrangement.beside))
    for name in (each for each in named if each.lower().endswith(_OF_SEVERAL)):
        known = module.signature.arrangement
        other = module.arranged(replace(known, listed=(*known.listed, name)))
        if other is not None and any(other.takes_mask(name, x, shape) for shape in shapes):
            module = _supplied(other, name, x) or module
    return module


def _supplied(module: LiveModule, name: str, x: Array) -> LiveModule | None:
    """The same, given such a mask that it takes in a list where it does not do without; None where it takes none."""
    if name not in module.signature.arrangement.beside or module.takes(x):
        return module
    ways = (module.giving({name: supply}) for supply in MASKS)
    return next((each for each in ways if each is not None and each.takes(x)), None)
