"""The situations that a validation asks a file in, by phase: those of them that its masks and sizes allow."""

from collections.abc import Iterator

from encoder_conformance.spec.load import load
from encoder_conformance.spec.situation import Situation
from encoder_conformance.subjects.cases import InputLimits

SIZES = ((1, 1), (1, 7), (3, 1), (2, 20), (5, 33))
"""Batch and sequence: one item, one position, and sizes that no example of an exporter is likely to have."""
MASKS = (
    "padding-right", "padding-left", "padding-holes", "padded-item",
    "causal", "causal-padding-left", "mask-per-item", "mask-per-head",
)  # fmt: skip
NUMBERS = ("no-mask", "low-variance", "large-mean")
PROPERTIES = (
    "invariant-determinism", "invariant-batch", "invariant-permutation",
    "invariant-padding-content", "invariant-padding-length",
)  # fmt: skip
"""Metamorphic relations, which need no expected result."""
NEEDS_MASK = ("invariant-padding-content", "invariant-padding-length")


def sizes(limits: InputLimits) -> Iterator[Situation]:
    for batch, sequence in SIZES:
        if limits.fit(batch, sequence):
            size = {"situation": f"size-{batch}x{sequence}", "batch": batch, "sequence": sequence}
            yield load().situations["no-mask"].model_copy(update={**size, "checks": ("output",)})


def masks(limits: InputLimits) -> Iterator[Situation]:
    yield from (known for name in MASKS if limits.allow((known := load().situations[name]).mask))


def numbers(_limits: InputLimits) -> Iterator[Situation]:
    yield from (load().situations[name] for name in NUMBERS)


def properties(limits: InputLimits) -> Iterator[Situation]:
    """None for a file of fixed sizes; without masks for a file that takes none."""
    known = load().situations
    if limits.batch or limits.sequence:
        return
    for name in PROPERTIES:
        if limits.padding and not limits.counted:
            yield known[name]
        elif name not in NEEDS_MASK:
            yield known[name].model_copy(update={"mask": known["no-mask"].mask})
