"""Variants of evidence for what the specification leaves open: a hypothesis may be right in any of them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.oracle.edited_masks import leaves_an_empty_row
from encoder_conformance.oracle.steps.softmax import ADDED
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.size import is_large
from encoder_conformance.spec.stages import step_of


def variants_of(evidence: Evidence, deviations: Sequence[Deviation]) -> Iterator[Evidence]:
    """Yield the evidence under each choice of an implementation of which these deviations predict something else."""
    layer = evidence.observation.case.layer
    if deviations:
        yield from evidence.variants(_with_zero_padding)
    if any(deviation.patch.steps.get("masked_softmax") in ADDED for deviation in deviations):
        yield from evidence.variants(_with_sums_in_float32)
    unspecified = layer.attention.fully_masked_row == "unspecified"
    if unspecified and leaves_an_empty_row(evidence.observation.case, deviations):
        yield from evidence.variants(_with_empty_rows)


def _with_zero_padding(evidence: Evidence) -> tuple[Evidence, ...]:
    """Set padded positions of x to 0 before anything is computed (M-3), which nobody can see where no stage before the
    first sum over positions is shown. Not where that makes no difference, nor in large layers, which take long."""
    case, shown = evidence.observation.case, {step_of(name) for name in evidence.seen} & {"norm1", "value"}
    if shown or case.valid().all() or is_large(case.layer) or case.layer.embedding:
        return ()
    return (evidence.variant(padding_is_zero=True),)


def _with_sums_in_float32(evidence: Evidence) -> tuple[Evidence, ...]:
    """Round sums with a large number as float32 does (V-3). Not in other formats: in narrower ones frameworks add in a
    wider one as often as not."""
    in_float32 = evidence.dtype.roundoff == FORMATS["float32"].roundoff
    return (evidence.variant(held_in=np.float32),) if in_float32 else ()


def _with_empty_rows(evidence: Evidence) -> tuple[Evidence, ...]:
    """Let a query that a wrong mask leaves no key attend to all alike, or give NaN (M-4)."""
    case = evidence.observation.case
    attention = (case.layer.attention.model_copy(update={"fully_masked_row": row}) for row in ("uniform", "nan"))
    layers = (case.layer.model_copy(update={"attention": each}) for each in attention)
    return tuple(evidence.variant(case=replace(case, layer=layer)) for layer in layers)
