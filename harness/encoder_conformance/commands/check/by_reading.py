"""The cause that the graph of a module shows, where numbers name none: a parameter that is read in another's place."""

from encoder_conformance.judging.records import Diagnosis
from encoder_conformance.protocol.module_description import ModuleDescription

READ_TWICE = "parameter-read-twice"
_TWICE = "{own} is read for {place} too, and {other}, which sounds like it, is read nowhere."


def by_reading(described: ModuleDescription, found: Diagnosis) -> Diagnosis:
    """The same, explained by what is read twice where that was proved to be all that is wrong, and no deviation of the
    catalogue explains it."""
    if not described.wrong_by_that_alone or found.of != "forward" or found.confidence not in ("closest", "unknown"):
        return found
    sentences = (_TWICE.format(own=own, place=place, other=other) for own, place, other in described.read_twice)
    return Diagnosis(
        implementation=found.implementation,
        dtype=found.dtype,
        confidence="explained",
        cause=READ_TWICE,
        sentences=tuple(sentences),
        first_stage=found.first_stage,
        cases=found.cases,
    )
