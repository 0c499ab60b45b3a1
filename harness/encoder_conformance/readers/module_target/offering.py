"""Gives a module its arguments, one by one: what its masks mean, which are none, and what else changes its output."""

from collections.abc import Mapping
from dataclasses import dataclass

from encoder_conformance.protocol.arguments import MaskForm, UngivenArgument, UnusableMask
from encoder_conformance.readers.module_target.calling import may_have_any_name
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.masking import forms_taken, with_masks
from encoder_conformance.readers.module_target.ungiven import FIXED, ungiven_arguments
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics


@dataclass(frozen=True)
class OfferedArguments:
    """`semantics`: of x and the masks that are used; `forms`: those in which each of these is taken; `unusable`: masks
    by which none can be given; `ungiven`: the other arguments that take arrays."""

    semantics: InputSemantics
    forms: Mapping[str, tuple[MaskForm, ...]]
    unusable: tuple[UnusableMask, ...]
    ungiven: tuple[UngivenArgument, ...]


def offered(module: LiveModule, found: InputSemantics, num_heads: int, *, far: int = 0) -> OfferedArguments:
    """`found`: the semantics of x alone. What hides what it flags is a mask, whatever its name. `far`: positions beyond
    the layer's window; 0 without one."""
    semantics, unusable = with_masks(module, found, num_heads, far=far)
    given = _offered(module, semantics, unusable, num_heads)
    hiding = tuple(each.argument for each in given.ungiven if each.changes and may_have_any_name(each.argument))
    if not hiding:
        return given
    semantics, unusable = with_masks(module, found, num_heads, hiding, far=far)
    if {mask.name for mask in semantics.masks}.isdisjoint(hiding):
        return given
    return _offered(module, semantics, unusable, num_heads)


def _offered(
    module: LiveModule, semantics: InputSemantics, unusable: tuple[UnusableMask, ...], num_heads: int
) -> OfferedArguments:
    known = {*(mask.name for mask in semantics.masks), *(each.argument for each in unusable)}
    beside = module.signature.arrangement.beside
    left = [name for name in (*module.signature.masks, *module.signature.arrays) if name not in {*known, *beside}]
    unsaid = (*FIXED, "none")  # what it takes None for may hide, too
    left += [name for name, supply in beside.items() if supply.kind in unsaid and name not in known]
    ungiven = ungiven_arguments(module, semantics, num_heads, left)
    return OfferedArguments(semantics, forms_taken(module, semantics, num_heads), unusable, ungiven)
