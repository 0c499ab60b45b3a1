"""The table of all phases, in the order in which a file goes through them, and the situations that each asks."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from encoder_conformance.commands.validate.evidence import Assessment, ValidationEvidence
from encoder_conformance.commands.validate.phases import described, layer, reduction, running, source, whole
from encoder_conformance.commands.validate.phases.conformance import assess_answers
from encoder_conformance.commands.validate.unasked import no_numbers, no_properties, no_sizes
from encoder_conformance.protocol.findings import Phase
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
OTHER_BATCH, OTHER_SEQUENCE = ("invariant-batch",), ("invariant-padding-length",)
"""Those that ask the file another batch, or another sequence."""
NEEDS_MASK = ("invariant-padding-content", "invariant-padding-length")


def sizes(limits: InputLimits) -> Iterator[Situation]:
    """Where one of the two is fixed, the others of the other. A file of one size is asked that in every phase."""
    asked = dict.fromkeys((limits.batch or batch, limits.sequence or sequence) for batch, sequence in SIZES)
    for batch, sequence in asked if len(asked) > 1 else ():
        size = {"situation": f"size-{batch}x{sequence}", "batch": batch, "sequence": sequence}
        yield load().situations["no-mask"].model_copy(update={**size, "checks": ("output",)})


def masks(limits: InputLimits) -> Iterator[Situation]:
    yield from (known for name in MASKS if limits.allow((known := load().situations[name]).mask))


def numbers(_limits: InputLimits) -> Iterator[Situation]:
    yield from (load().situations[name] for name in NUMBERS)


def properties(limits: InputLimits) -> Iterator[Situation]:
    """Those whose follow-ups have sizes that the file takes; without masks for a file that takes none."""
    known = load().situations
    for name in PROPERTIES:
        if (limits.batch and name in OTHER_BATCH) or (limits.sequence and name in OTHER_SEQUENCE):
            continue
        if limits.padding and not limits.counted:
            yield known[name]
        elif name not in NEEDS_MASK:
            yield known[name].model_copy(update={"mask": known["no-mask"].mask})


@dataclass(frozen=True)
class ValidationPhase:
    """`assess` has the findings of the harness; a worker may have found others. `situations`: those that every runtime
    is asked in; None: the phase asks nothing of its own."""

    name: Phase
    assess: Callable[[ValidationEvidence], Assessment]
    situations: Callable[[InputLimits], Iterator[Situation]] | None = None


VALIDATION_PHASES = (
    ValidationPhase("file", described.file),
    ValidationPhase("checker", described.checker),
    ValidationPhase("operators", described.operators),
    ValidationPhase("interface", described.interface),
    ValidationPhase("dimensions", described.dimensions),
    ValidationPhase("loads", running.loads),
    ValidationPhase("layer", layer.assess),
    ValidationPhase("shapes", partial(assess_answers, "shapes", why=no_sizes), sizes),
    ValidationPhase("masks", layer.assess_masks, masks),
    ValidationPhase("numbers", partial(assess_answers, "numbers", why=no_numbers), numbers),
    ValidationPhase("whole", whole.assess),
    ValidationPhase("source", source.assess),
    ValidationPhase("levels", running.levels),
    ValidationPhase("properties", partial(assess_answers, "properties", why=no_properties), properties),
    ValidationPhase("history", running.history),
    ValidationPhase("reduction", reduction.assess),
    ValidationPhase("cost", running.cost),
)
