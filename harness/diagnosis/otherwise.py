"""One observation under what nobody specifies: a hypothesis may be right of it in any of these ways."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.judge.observation import is_large
from encoder_conformance.oracle.edited_masks import leaves_an_empty_row
from encoder_conformance.oracle.steps.softmax import ADDED
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.stages import step_of


def otherwise(evidence: Evidence, deviations: Sequence[Deviation]) -> Iterator[Evidence]:
    """The ways in which these deviations predict something else; nothing where there are none."""
    layer = evidence.observation.case.layer
    if deviations:
        yield from evidence.once(_with_zero_padding)
    if any(deviation.patch.steps.get("masked_softmax") in ADDED for deviation in deviations):
        yield from evidence.once(_with_sums)
    unspecified = layer.attention.fully_masked_row == "unspecified"
    if unspecified and leaves_an_empty_row(evidence.observation.case, deviations):
        yield from evidence.once(_with_rows)


def _with_zero_padding(evidence: Evidence) -> tuple[Evidence, ...]:
    """Where the implementation set padded positions of x to 0 before it computed anything (M-3), which nobody can see
    where it shows no stage before the first sum over positions. Not where that makes no difference, and not of large
    layers, where each play takes long."""
    case, shown = evidence.observation.case, {step_of(name) for name in evidence.seen} & {"norm1", "value"}
    if shown or case.valid().all() or is_large(case.layer) or case.layer.embedding:
        return ()
    return (evidence.having(padding_is_zero=True),)


def _with_sums(evidence: Evidence) -> tuple[Evidence, ...]:
    """Where sums with a large number are as float32 holds them (V-3). Not in other formats: in narrower ones frameworks
    add in a wider one as often as not."""
    in_float32 = evidence.dtype.roundoff == FORMATS["float32"].roundoff
    return (evidence.having(held_in=np.float32),) if in_float32 else ()


def _with_rows(evidence: Evidence) -> tuple[Evidence, ...]:
    """Where a query that a wrong mask leaves no key attends to all alike, or gives NaN (M-4)."""
    case = evidence.observation.case
    attention = (case.layer.attention.model_copy(update={"fully_masked_row": row}) for row in ("uniform", "nan"))
    layers = (case.layer.model_copy(update={"attention": each}) for each in attention)
    return tuple(evidence.having(case=replace(case, layer=layer)) for layer in layers)
