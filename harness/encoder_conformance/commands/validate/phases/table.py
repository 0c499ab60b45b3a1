"""The table of all phases, in the order in which a file goes through them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from encoder_conformance.commands.validate.evidence import Assessment, ValidationEvidence
from encoder_conformance.commands.validate.phases import described, layer, masks, reduction, running, situations, source
from encoder_conformance.commands.validate.phases.conformance import assess_answers
from encoder_conformance.protocol.findings import Phase
from encoder_conformance.spec.situation import Situation
from encoder_conformance.subjects.cases import InputLimits


@dataclass(frozen=True)
class ValidationPhase:
    """`assess` has the findings of the harness; a worker may have found others. `situations`: those that every runtime
    is asked in; None: the phase asks nothing of its own."""

    name: Phase
    assess: Callable[[ValidationEvidence], Assessment]
    situations: Callable[[InputLimits], Iterable[Situation]] | None = None


VALIDATION_PHASES = (
    ValidationPhase("file", described.file),
    ValidationPhase("checker", described.checker),
    ValidationPhase("operators", described.operators),
    ValidationPhase("interface", described.interface),
    ValidationPhase("dimensions", described.dimensions),
    ValidationPhase("loads", running.loads),
    ValidationPhase("layer", layer.assess),
    ValidationPhase("shapes", partial(assess_answers, "shapes"), situations.sizes),
    ValidationPhase("masks", masks.assess, situations.masks),
    ValidationPhase("numbers", partial(assess_answers, "numbers"), situations.numbers),
    ValidationPhase("source", source.assess),
    ValidationPhase("levels", running.levels),
    ValidationPhase("properties", partial(assess_answers, "properties"), situations.properties),
    ValidationPhase("history", running.history),
    ValidationPhase("reduction", reduction.assess),
    ValidationPhase("cost", running.cost),
)
