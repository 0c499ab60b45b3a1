"""The reasons why a phase has no case that a file can be asked: its sizes are fixed, or no mask of it says it."""

from encoder_conformance.commands.validate.evidence import ValidationEvidence
from encoder_conformance.subjects.cases import InputLimits


def no_sizes(evidence: ValidationEvidence) -> str:
    return fixed_sizes(evidence) or "none of its sizes is asked"


def no_masks(evidence: ValidationEvidence) -> str:
    if not evidence.description.mask_inputs:
        return "it takes no mask that hides a position"
    return "its masks can say none of those that are asked"


def no_properties(evidence: ValidationEvidence) -> str:
    return fixed_sizes(evidence) or "none of them can be asked of it"


def no_numbers(_evidence: ValidationEvidence) -> str:
    return "none of its inputs can be asked"


def no_padding(evidence: ValidationEvidence) -> str:
    """Why the file was asked no padding."""
    description = evidence.description
    if not description.mask_inputs:
        return "it takes no mask that hides a position"
    if not InputLimits.of_file(description).padding:
        names = " and ".join(map(repr, description.mask_inputs))
        return f"{names} is one for all items of a batch, and says no padding"
    return fixed_sizes(evidence) or "none of it was asked"


def fixed_sizes(evidence: ValidationEvidence) -> str:
    """`the file fixes the batch at 1 and the sequence at 12`; "" where both are free."""
    if baked := evidence.description.baked:
        return f"the file runs at {' and '.join(f'{name} {size}' for name, size in baked.items())} alone"
    sizes = zip(("batch", "sequence"), evidence.description.sizes(), strict=True)
    fixed = [f"the {name} at {size}" for name, size in sizes if size is not None]
    return f"the file fixes {' and '.join(fixed)}" if fixed else ""
