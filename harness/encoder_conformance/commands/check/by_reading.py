"""What the graph of a module shows, and the search of its map, where numbers name no cause: a parameter that is read in
another's place, a deviation that comes near, or a step that no layer has."""

from encoder_conformance.commands.check.chosen import norms_read
from encoder_conformance.judging.records import Diagnosis
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.protocol.module_description import ModuleDescription

READ_TWICE, OF_THE_GRAPH = "parameter-read-twice", "layer-not-read"
_TWICE = "{own} is read for {place} too, and {other}, of the same size, is read nowhere."


def by_reading(described: ModuleDescription, found: Diagnosis) -> Diagnosis:
    """The same, explained by what is read twice where that was proved to be all that is wrong, and no deviation of the
    catalogue explains it. Of one that is unknown it is said with which deviation the module's output comes near, or
    what the graph has that no layer has."""
    not_read, searched = described.not_read, described.searched
    if searched is not None and searched.deviation and (near := _near(found, searched.deviation)) is not found:
        return near
    if found.confidence == "unknown" and found.of == "forward" and not_read is not None and not_read.sentence:
        return found.model_copy(update={"cause": OF_THE_GRAPH, "sentences": (not_read.sentence,)})
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


def by_norm(described: ModuleDescription, found: Diagnosis) -> Diagnosis:
    """The same; of one that is still unknown it is said which formula of a norm the graph shows."""
    read = norms_read(described.facts)
    return _near(found, read[0]) if read else found


def _near(found: Diagnosis, deviation: str) -> Diagnosis:
    """The same, with a deviation as the closest cause where none is known."""
    if found.confidence != "unknown" or found.of != "forward":
        return found
    named = {"deviations": (deviation,), "sentences": (catalogue()[deviation].sentence,)}
    return found.model_copy(update={"confidence": "closest", **named})
