"""Which masks of padding have no place for the first position, as of a token that stands before what they are of."""

from dataclasses import replace

from encoder_conformance.readers.module_target.calling import may_be_mask
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.spec.axes import Array


def with_masks_past_first(module: LiveModule, x: Array) -> LiveModule:
    """The same, given those masks without the first position that it refuses as [batch, sequence], of one item, too,
    and as [sequence, batch], and takes as [batch, sequence − 1]."""
    batch, sequence = x.shape[:2]
    for name in module.signature.masks:
        known, bare = module.signature.arrangement, module.bare()
        usual = (x, (batch, sequence)), (x[:1], (1, sequence)), (x, (sequence, batch))
        if not may_be_mask(name) or name in known.beside or any(bare.takes_mask(name, *each) for each in usual):
            continue
        if any(bare.takes_mask(name, each, (len(each), sequence - 1)) for each in (x, x[:1])):
            module = module.arranged(replace(known, past_first=(*known.past_first, name))) or module
    return module
