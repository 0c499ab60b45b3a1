"""What is said of a module beside its numbers: what is unusual, tied, unused, unproved, and other than stated."""

from collections.abc import Iterator, Mapping
from typing import Any

from encoder_conformance.module_check.unusual import unusual
from encoder_conformance.spec.layer import Layer
from encoder_conformance.wire.description import ModuleDescription, as_text
from encoder_conformance.wire.findings import Finding, Severity

_SOFTMAX = "a softmax does not change where all scores of a query move alike"
_NOT_COMPARED = {
    "layer",
    "title",
    "clauses",
    "family",
    "part",
    "dropout",
    "embedding",
    "padded_rows",
    "padding_content",
}
_OF_MASKS = ("attention.masked_score", "attention.fully_masked_row")


def findings_of(described: ModuleDescription, *, declared: bool = False) -> tuple[Finding, ...]:
    """`declared`: deviations were declared, and so a choice that differs is no error by itself: the numbers tell."""
    found = [
        *_of_choices(described, declared),
        *_of_parameters(described),
        *_of_inputs(described),
        *_of_reading(described),
    ]
    return tuple(found)


def _of_choices(described: ModuleDescription, declared: bool) -> Iterator[Finding]:
    read, stated = described.layer, described.stated
    if read is not None and stated is not None:
        evidence = {choice.key: choice.evidence for choice in described.facts}
        for key, expected, value in differences(read, stated):
            where = f" ({evidence[key]})" if key in evidence else ""
            message = f"{key} is {as_text(value)} in the module{where}, and {as_text(expected)} in {stated.layer}"
            hint = "judged with the deviations that are declared" if declared else ""
            yield Finding(severity="warning" if declared else "error", message=message, hint=hint)
    elif read is not None:
        for each in unusual(read):
            hint = "if it is meant, say so with --layer: nobody can read off a module what it should be"
            yield Finding(severity="warning", message=each.text, hint=hint)


def differences(read: Layer, stated: Layer) -> Iterator[tuple[str, Any, Any]]:
    """Key, what is stated, what was read. What no graph shows without a mask is not compared."""
    own, due = (_flat(layer.model_dump(mode="json", exclude=_NOT_COMPARED)) for layer in (read, stated))
    for key, expected in due.items():
        if key not in _OF_MASKS and own.get(key) != expected:
            yield key, expected, own.get(key)


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def _of_parameters(described: ModuleDescription) -> Iterator[Finding]:
    severity: Severity
    for own, place, other in described.read_twice:
        message = f"{own} is read for {place} too, and {other}, which sounds like it, is read nowhere"
        hint = f"it is judged with {other} as {place}"
        yield Finding(severity="warning", message=message, hint=hint)
    for own, place, sounds in described.misnamed:
        severity = "error" if described.stated is not None and described.searched is None else "warning"
        message = f"{own} does the work of {place}, and its name is that of {sounds}"
        hint = "are two of them swapped? Their numbers alone cannot tell"
        yield Finding(severity=severity, message=message, hint=hint)
    for name, source in described.parameters.items():
        if source.more:
            message = f"{name} is {source.own} + {source.more:g}"
            hint = f"what another has as {name} is to be loaded less {source.more:g}"
            yield Finding(severity="warning", message=message, hint=hint)
    for alias, first in described.aliases.items():
        yield Finding(severity="warning", message=f"{alias} and {first} are one tensor")
    for one, other in described.tied:
        message = f"{one} and {other} are the same numbers: {described.parameters[one].own}"
        if described.stated is not None:  # a right output proves nothing: it was given the same numbers for both
            message += f", and two parameters in {described.stated.layer}"
        severity = "error" if described.stated is not None else "warning"
        hint = "gradients by them cannot be told apart, nor judged"
        yield Finding(severity=severity, message=message, hint=hint)
    read_elsewhere = {other for _, _, other in described.read_twice}
    for own in described.unused:
        if own not in read_elsewhere:
            yield Finding(severity="warning", message=f"the parameter {own} changes nothing in the layer that was read")
    for name in described.absent:
        bare = name.rpartition("layers.")[2]
        needless = bare.endswith("attention.key.bias")
        stated = None if needless else described.stated
        severity = "note" if needless else "warning" if stated is None else "error"
        note = f" ({_SOFTMAX})" if needless else "" if stated is None else f", and {stated.layer} has"
        message = f"it has no {name}{note}"
        yield Finding(severity=severity, message=message, hint=f"it is taken for {int(name.endswith('gain'))}")
    for own, name in described.unread:
        message = f"{own} is read nowhere, and sounds like {name}, which it is judged as"
        yield Finding(severity="warning", message=message)
    if described.proof is not None:
        inert = [name for name in described.proof.inert if not name.endswith("attention.key.bias")]
        for name in inert:
            yield Finding(severity="warning", message=f"{name} changes nothing, in the module as in the oracle")


def _of_inputs(described: ModuleDescription) -> Iterator[Finding]:
    if described.always_causal:
        message = "no position sees a later one, whatever masks it is given: it is judged with a causal mask"
        yield Finding(severity="warning", message=message, hint="an encoder sees both ways; a decoder does not")
    elif described.causal:
        message = "without a mask no position sees a later one; it is judged with masks that say what is seen"
        yield Finding(severity="warning", message=message, hint="an encoder sees both ways; a decoder does not")
    if described.across_batch:
        yield Finding(severity="error", message="an item of the batch changes another: attention goes across the batch")
    if described.padded_item_is_nan:
        message = "an item that is padding alone gives NaN, and so does every gradient of its batch"
        hint = "keep such items out of the batch; their gradients are not judged"
        yield Finding(severity="warning", message=message, hint=hint)
    if not described.masks:
        yield Finding(severity="note", message="no argument of it hides a position: it is judged without masks")


def _of_reading(described: ModuleDescription) -> Iterator[Finding]:
    if described.not_read is not None:
        where = f" ({described.not_read.where})" if described.not_read.where else ""
        severity = "warning" if described.stated else "error"
        hint = "" if described.stated else "say what it should be with --layer, and it is judged as that"
        message = f"{described.not_read.problem}{where}"
        yield Finding.model_validate({"severity": severity, "message": message, "hint": hint})
    if described.stated is not None and not described.parameters:
        message = f"no map of its parameters to those of {described.stated.layer} fits, by number and shape"
        yield Finding(severity="error", message=message, hint="is it that layer, and with these sizes?")
    if described.unplaced:
        names = ", ".join(described.unplaced)
        yield Finding(severity="warning", message=f"computed from several parameters, and so not to be given: {names}")
    proof = described.proof
    if proof is not None and not proof.holds:
        wrong = f"; moved alone, these change something else: {', '.join(proof.wrong)}" if proof.wrong else ""
        message = f"the live module is not what was read off it: {proof.problem or 'see the parameters'}{wrong}"
        yield Finding(severity="warning", message=message)
    if described.searched is not None and described.searched.deviation is None:
        message = (
            f"none of {described.searched.maps} maps of its parameters, with any of {described.searched.deviations} "
            "deviations, gives its output: the map is by names and shapes alone"
        )
        yield Finding(severity="warning", message=message)
    if described.narrow_inside:
        message = "in float64 it is no more exact than in float32: something in it is cast. It is judged in float32"
        yield Finding(severity="note", message=message)
    for note in described.notes:
        yield Finding(severity="note", message=note)
