"""Phase `shapes`: batches and sequences other than the exporter's example."""

from collections.abc import Iterator

from encoder_conformance.spec.load import load
from encoder_conformance.spec.situation import Situation
from encoder_conformance.subjects.cases import InputLimits
from encoder_conformance.validate.evidence import Assessment, Evidence
from encoder_conformance.validate.phases.conformance import assess_answers

SIZES = ((1, 1), (1, 7), (3, 1), (2, 20), (5, 33))
"""Batch and sequence: one item, one position, and sizes that no example is likely to have."""


def situations(limits: InputLimits) -> Iterator[Situation]:
    for batch, sequence in SIZES:
        if limits.fit(batch, sequence):
            size = {"situation": f"size-{batch}x{sequence}", "batch": batch, "sequence": sequence}
            yield load().situations["no-mask"].model_copy(update={**size, "checks": ("output",)})


def assess(evidence: Evidence) -> Assessment:
    return assess_answers("shapes", evidence)
