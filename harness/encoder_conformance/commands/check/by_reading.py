"""What the graph of a module shows, and the search of its map, where numbers name no cause: a parameter that is read in
another's place, a deviation that comes near, or a step that no layer has."""

from encoder_conformance.commands.check.chosen import norms_read
from encoder_conformance.judging.records import Diagnosis
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.protocol.module_description import ModuleDescription

READ_TWICE, OF_THE_GRAPH = "parameter-read-twice", "layer-not-read"
_TWICE = "{own} is read for {place} too, and {other}, which sounds like it, is read nowhere."


def by_reading(described: ModuleDescription, found: Diagnosis) -> Diagnosis:
    """The same, explained by what is read twice where that was proved to be all that is wrong, and no deviation of the
    catalogue explains it. Of one that is unknown it is said with which deviation the module's output comes near, which
    formula of a norm the graph shows, or what it has that no layer has."""
    not_read, searched = described.not_read, described.searched
    near = [searched.deviation] if searched is not None and searched.deviation else norms_read(described.facts)
    if found.confidence == "unknown" and found.of == "forward" and near:
        named = {"deviations": (near[0],), "sentences": (catalogue()[near[0]].sentence,)}
        return found.model_copy(update={"confidence": "closest", **named})
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
