"""Phase `properties`: metamorphic relations, which need no expected result."""

from collections.abc import Iterator

from encoder_conformance.spec.load import load
from encoder_conformance.spec.situation import Situation
from encoder_conformance.subjects.cases import InputLimits
from encoder_conformance.validate.evidence import Assessment, Evidence
from encoder_conformance.validate.phases.conformance import assess_answers

PROPERTIES = (
    "invariant-determinism",
    "invariant-batch",
    "invariant-permutation",
    "invariant-padding-content",
    "invariant-padding-length",
)
NEEDS_MASK = ("invariant-padding-content", "invariant-padding-length")


def situations(limits: InputLimits) -> Iterator[Situation]:
    """None for a file of fixed sizes; without masks for a file that takes none."""
    known = load().situations
    if limits.batch or limits.sequence:
        return
    for name in PROPERTIES:
        if limits.padding and not limits.counted:
            yield known[name]
        elif name not in NEEDS_MASK:
            yield known[name].model_copy(update={"mask": known["no-mask"].mask})


def assess(evidence: Evidence) -> Assessment:
    return assess_answers("properties", evidence)
