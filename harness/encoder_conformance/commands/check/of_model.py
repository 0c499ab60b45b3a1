"""The findings on a model around its layers: what its own masks hide at its outputs."""

from collections.abc import Iterator

from encoder_conformance.protocol.arguments import MEANINGS
from encoder_conformance.protocol.finding_kinds import FindingKind
from encoder_conformance.protocol.findings import Finding, Severity, said_at, source_of
from encoder_conformance.protocol.model_masks import ModelMask, ModelMasks
from encoder_conformance.subjects.interfaces import conventional_meaning, is_of_padding

_HINT = "does the model hand it on to every one of its layers, as they take it?"
_MIXED = f"{_HINT} Is there a convolution, a mean, or whatever else mixes positions?"


def model_findings(asked: ModelMasks, *, stated: bool) -> Iterator[Finding]:
    """An error where a mask that can be nothing but one of padding, or any of a model whose layers are `stated`, hides
    nothing; a warning where another does, or is called by what it does not mean; and a note of what was found to be
    right, or could not be asked."""
    if asked.problem:
        message = f"what its masks hide at the model's outputs was not asked: {asked.problem}"
        yield Finding(severity="note", kind="mask-of-model", message=message)
    for mask in asked.masks:
        found = _of(mask, "error" if stated or is_of_padding(mask.argument) else "warning")
        usual = conventional_meaning(mask.argument, asked.framework)
        yield found
        if usual and mask.meaning and mask.meaning not in (usual, "additive"):
            means = f"{MEANINGS[mask.meaning]} in the model, and {MEANINGS[usual]} in most of what is written for"
            message = f"{mask.argument}: {means} {asked.framework}{said_at(mask.where)}"
            yield _finding("warning", "mask-name-reversed", message, of=mask)


def _of(mask: ModelMask, severity: Severity) -> Finding:
    """`severity`: of a mask that does not hide what it flags."""
    name, at = mask.argument, said_at(mask.where)
    match mask.effect:
        case "hides":
            assert mask.meaning is not None
            said = f"({MEANINGS[mask.meaning]}) hides what it flags at the model's outputs, too ({mask.form})"
            return _finding("note", "mask-of-model", f"{name} {said}", of=mask)
        case "attended":
            what = f"{mask.output} of an item is another" if mask.output else "an item gives other outputs"
            message = f"{name}: {what} than without the last positions, which it flags ({mask.form}){at}"
            if mask.output:
                hint = "what they hold changes nothing: is it set to zero, and the mean taken over all?"
                return _finding("warning", "mask-not-of-pooling", message, hint, of=mask)
            hint = "what they hold changes nothing: is it set to zero, and attended to as such?"
            return _finding(severity, "mask-not-of-scores", message, hint, of=mask)
        case "pooled":
            message = f"{name} hides what it flags from all other positions, and not from {mask.output}"
            hint = "is that a mean over all positions, or the last, or of a decoder that is not given the mask?"
            return _finding("warning", "mask-not-of-pooling", f"{message} ({mask.form}){at}", hint, of=mask)
        case "idle":
            message = f"{name} is taken, and changes nothing that the model gives ({mask.form}){at}"
            return _finding(severity, "mask-hides-nothing", message, _HINT, of=mask)
        case "elsewhere":
            reached = f"changes {mask.output}, which is of a whole item" if mask.output else "reaches other positions"
            message = f"{name} changes what the model gives, and what it flags still {reached}"
            return _finding(severity, "mask-not-of-scores", f"{message} ({mask.form}){at}", _MIXED, of=mask)
        case "refused":
            message = f"{name} is taken in no form that was tried: what it hides at the model's outputs was not asked"
            return _finding("note", "mask-of-model", message, of=mask)


def _finding(severity: Severity, kind: FindingKind, message: str, hint: str = "", *, of: ModelMask) -> Finding:
    about = {"argument": of.argument, "effect": of.effect, "form": of.form, **source_of(of.where)}
    return Finding(severity=severity, kind=kind, message=message, hint=hint, about=about)
