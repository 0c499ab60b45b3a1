"""Phase `masks`: padding, causal and drawn masks, and items that are padding alone."""

from collections.abc import Iterator, Sequence

from encoder_conformance.commands.validate.evidence import Assessment, ExaminedFile, ValidationEvidence
from encoder_conformance.commands.validate.phases.conformance import assess_answers
from encoder_conformance.commands.validate.phases.layer import EMPTY_ROWS, unlike_stated
from encoder_conformance.protocol.findings import PhaseFinding
from encoder_conformance.subjects.cases import InputLimits


def assess(evidence: ValidationEvidence) -> Assessment:
    answered = assess_answers("masks", evidence)
    return Assessment(
        answered.summary, (*_empty_rows(evidence.subject), *_one_for_all(evidence.subject), *answered.findings)
    )


def declared(evidence: ValidationEvidence, findings: Sequence[PhaseFinding]) -> list[PhaseFinding]:
    """The findings, in which a deviation that the user stated is a note."""
    stated = evidence.subject.request.deviations
    return [
        each.model_copy(update={"severity": "note", "hint": "as stated"}) if each.deviation in stated else each
        for each in findings
    ]


def _one_for_all(subject: ExaminedFile) -> Iterator[PhaseFinding]:
    """Say that no mask tells items apart. It is no error: padding is then never given."""
    if not subject.can_be_judged or InputLimits.of_file(subject.description).padding:
        return
    if names := list(map(repr, subject.description.mask_inputs)):
        message = f"{' and '.join(names)} is one for all items: items of different lengths cannot be padded"
        hint = "export with a mask [batch, sequence], or [batch, 1, sequence, sequence], to give it such batches"
        yield PhaseFinding(phase="masks", severity="note", message=message, hint=hint)


def _empty_rows(subject: ExaminedFile) -> Iterator[PhaseFinding]:
    """The file's result for an item that is padding alone, against the stated layer, which may forbid NaN."""
    if message := unlike_stated(subject).get(EMPTY_ROWS):
        yield PhaseFinding(phase="masks", severity="error", message=message)
    rows = {layer.attention.fully_masked_row for layer in (subject.description.layer, subject.layer) if layer}
    if subject.can_be_judged and rows == {"nan"}:
        message = "an item that is padding alone gives NaN: a softmax over -inf alone is 0/0"
        hint = "keep such items out of the batch, or export with a large negative number in the place of -inf"
        yield PhaseFinding(phase="masks", severity="warning", message=message, hint=hint)
