"""Phases `layer` and `masks`: the inferred layer, its parameters and masks, against what the user states, else against
what is usual."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from encoder_conformance.commands.validate.evidence import Assessment, ExaminedFile, ValidationEvidence
from encoder_conformance.commands.validate.phases.conformance import assess_answers
from encoder_conformance.commands.validate.unasked import no_masks
from encoder_conformance.commands.validate.weights import layer_finding, shared, without_effect
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.forms import FORMS
from encoder_conformance.oracle.layer_differences import differences
from encoder_conformance.protocol.description import FileDescription, InitializerSource, decimal
from encoder_conformance.protocol.finding_kinds import FindingKind
from encoder_conformance.protocol.findings import PhaseFinding
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.published import epsilon_of, unusual
from encoder_conformance.subjects.cases import InputLimits

_ROWS = 8
"""Rows of a matrix that tell its columns apart."""
_NAMED = 3
"""Parameters that a finding on several names; the rest are counted."""
_MOST = 1.001
"""Steps: half of one for rounding, the rest where the last integer is cut off, as +8 is in int4."""
_FINE = frozenset({"int8", "uint8", "int16", "uint16", "int32"})
"""Formats fine enough to tell a factor from their own rounding."""
_SURE = 6.0
"""Standard deviations, of a factor or a shift that rounding alone may show."""
THETA = "attention.rope.theta"
"""The choice that a file whose angles are inputs does not make."""
EMPTY_ROWS = "attention.fully_masked_row"
"""The choice that the phase `masks` compares: what an item gives that is padding alone."""


def assess(evidence: ValidationEvidence) -> Assessment:
    return Assessment(_summary(evidence.description), _all_findings(evidence))


def assess_masks(evidence: ValidationEvidence) -> Assessment:
    answered, subject = assess_answers("masks", evidence, no_masks), evidence.subject
    findings = (*_empty_rows(subject), *_one_for_all(subject), *answered.findings)
    return Assessment(answered.summary, findings, answered.not_asked)


def _all_findings(evidence: ValidationEvidence) -> Iterator[PhaseFinding]:
    yield from _unlike(evidence.subject)
    yield from _unproved(evidence)
    yield from _unstated(evidence)


def _summary(description: FileDescription) -> str:
    if description.file is None or description.layer is None:
        return ""
    found = f"{len(description.parameters)} parameters and {len(description.stages)} stages found in the graph"
    proved = description.fact("proved")
    return f"{found}, proved by a run ({proved.evidence})" if proved and proved.value else found


def _unlike(subject: ExaminedFile) -> Iterator[PhaseFinding]:
    if subject.is_understood and subject.misfit and subject.request.layer:
        message = f"the file's parameters are not those of {subject.request.layer.layer}: {subject.misfit}"
        yield layer_finding("error", "parameters-unlike-layer", message, layer=subject.request.layer.layer)
    for finding in _unlike_stated(subject):
        if finding.about["key"] != EMPTY_ROWS:
            yield finding
    if subject.can_be_judged and subject.request.parameters is not None:
        yield from _compared(subject.request.parameters, subject.parameters, subject.description.parameters)


def _unproved(evidence: ValidationEvidence) -> Iterator[PhaseFinding]:
    """Say what a run did not prove, where no other phase tells by how much."""
    proved, answers = evidence.description.fact("proved"), evidence.answers
    records = [record for run in answers.in_sigma for record in run.records] if answers else []
    told = any(record.outcome in (Outcome.FAIL, Outcome.DEVIATES) for record in records)
    if proved is not None and not proved.value and not told:
        message = f"the file does not compute what was read off its graph: {proved.evidence}"
        yield layer_finding("error", "not-what-was-read", message, "compare it with what it was made from")


def _unstated(evidence: ValidationEvidence) -> Iterator[PhaseFinding]:
    """Warn of what nobody stated to be so, and is unusual."""
    subject, answers = evidence.subject, evidence.answers
    inferred = subject.description.layer
    if inferred is not None and subject.request.layer is None and subject.is_understood:
        epsilon = epsilon_of(inferred.norm.epsilon, subject.rounded)
        norm = inferred.norm.model_copy(update={"epsilon": epsilon})
        for each in unusual(inferred.model_copy(update={"norm": norm})):
            hint = "if intended, pass --layer; otherwise fix it"
            yield layer_finding("warning", "unusual-choice", str(each), hint, choice=each.choice)
    if inferred is not None and subject.request.parameters is None:
        yield from shared(subject.parameters, subject.description)
        if answers is not None and (case := answers.cases["numbers"][0]).situation.sequence > 1:
            yield from without_effect(case)


def _unlike_stated(subject: ExaminedFile) -> Iterator[PhaseFinding]:
    """One for each choice in which the file's layer differs from the stated one, its `key`."""
    stated, description = subject.request.layer, subject.description
    if stated is None or description.layer is None or subject.misfit or not subject.is_understood:
        return
    for key, expected, own in differences(description.layer, stated):
        is_free = key == EMPTY_ROWS and "unspecified" in (own, expected)
        is_given = key == THETA and description.fact("angles") is not None
        if not is_free and not is_given and not _is_rounded(subject, own, expected):
            fact = description.fact(key)
            where = f" ({fact.evidence})" if fact else ""
            yield PhaseFinding(
                phase="masks" if key == EMPTY_ROWS else "layer",
                severity="error",
                kind="choice-differs",
                message=f"{key} is {own} in the file{where}, and {expected} in {stated.layer}",
                deviation=_that_chooses(subject, key),
                about={"key": key, "found": decimal(own), "stated": decimal(expected), "layer": stated.layer},
            )


def _that_chooses(subject: ExaminedFile, key: str) -> str | None:
    """The deviation of the catalogue by which the stated layer has the file's choice; None where there is none."""
    if key != "feed_forward.activation" or subject.description.layer is None:
        return None
    own, choices = subject.description.layer.feed_forward.activation, FORMS["activation"].is_choice
    for name, deviation in catalogue().items():
        if [(step, choices.get(form, form)) for step, form in deviation.patch.steps.items()] == [("activation", own)]:
            return name
    return None


def _is_rounded(subject: ExaminedFile, own: Any, expected: Any) -> bool:
    """Whether a number is another one as the format holds it that the file computes in, or float32, in which ONNX
    keeps attributes."""
    return isinstance(expected, float) and own in (subject.rounded(expected), float(np.float32(expected)))


def _compared(
    stated: Mapping[str, Array], parameters: Mapping[str, Array], sources: Mapping[str, InitializerSource]
) -> Iterator[PhaseFinding]:
    """Parameters other than those that the file was made from. The format that a parameter is stored in rounds it,
    and nothing else may. Those that hold numbers of no known origin are one finding, as of another checkpoint."""
    others_numbers: dict[str, float] = {}
    for name, value in parameters.items():
        if name not in stated:  # a checkpoint may lack it, which the phase `source` says
            continue
        source = sources.get(name)
        if source is not None and source.step is not None:
            difference = unlike_rounding(value, stated[name], source.step, source.stored or "")
            if not difference:
                continue
            expected, step = stated[name].astype(value.dtype), source.step
        else:
            narrow = FORMATS[source.stored].numpy if source and source.stored else value.dtype
            expected, difference, step = stated[name].astype(narrow).astype(value.dtype), "", 0.0
        if not np.array_equal(expected, value):
            others = {other: theirs for other, theirs in stated.items() if other != name}
            moved = _moved(value, expected, others, step)
            if said := moved[1] if moved else difference:
                hint, message = "compare what was exported", f"{name} {said}"
                yield layer_finding(
                    "error", moved[0] if moved else "parameter-badly-rounded", message, hint, parameters=[name]
                )
            else:
                others_numbers[name] = _distance(value, expected)
    if others_numbers:
        message, hint = _far(others_numbers, len(parameters)), "compare what was exported"
        yield layer_finding("error", "parameter-values-differ", message, hint, distances=others_numbers)


def unlike_rounding(value: Array, made_from: Array, step: float, format: str) -> str:
    """How a weight differs from what it was made from, other than by rounding; "" where it does not.

    Both have one shape; `step` is the distance of the numbers that two neighbouring integers stand for. The rounding of
    n numbers is even noise of step/√12: of the mean it leaves 1/√n, and of the factor that over the numbers' spread.
    """
    due, given = made_from.astype(np.float64), value.astype(np.float64)
    if format in _FINE and (systematic := _systematic(given, due, step)):
        return systematic
    largest = float(np.abs(given - due).max())
    if largest <= _MOST * step:
        return ""
    return f"is not the {format} of what it was made from: up to {largest / step:.3g} steps away"


def _systematic(given: Array, due: Array, step: float) -> str:
    """A factor or a shift, by least squares, which leaves no more than rounding does; "" where neither is there."""
    spread, noise = float(np.std(due)), step / np.sqrt(12 * due.size)
    if not spread:
        return ""
    factor = float(np.mean((given - given.mean()) * (due - due.mean()))) / spread**2
    shift = float(given.mean() - factor * due.mean())
    if np.std(given - factor * due) > 0.5 * step * max(1.0, abs(factor)):
        return ""
    if abs(factor - 1) > _SURE * noise / spread:
        return f"is {factor:.4g} times what it was made from: a wrong {'sign' if factor < 0 else 'scale'}"
    if abs(shift) > _SURE * noise * np.hypot(1.0, due.mean() / spread):  # the factor's own error moves it, too
        return f"is shifted by {shift:.3g} from what it was made from: a wrong zero point"
    return ""


def _moved(value: Array, expected: Array, others: Mapping[str, Array], step: float) -> tuple[FindingKind, str] | None:
    """Whose numbers it holds, or how its own are arranged otherwise, of one shape, each up to `step`; None where
    neither is so."""
    if alike := [name for name, other in others.items() if _same(other, value, step)]:
        return "parameter-holds-another", f"holds {alike[0]}"
    if expected.ndim == 2 and _same(expected.T, value, step):
        return "parameter-transposed", "is transposed"
    order = _order(value, expected)
    if order is not None and _same(expected[..., order], value, step):
        what = "columns" if value.ndim == 2 else "numbers"
        return "parameter-reordered", f"holds its {what} in another order, as of other heads"
    return None


def _order(value: Array, expected: Array) -> list[int] | None:
    """The order in which `value` has the columns, or the numbers, of `expected`, as its first rows show it; None where
    they show no other order."""
    if expected.shape != value.shape:
        return None
    own, theirs = (np.atleast_2d(each)[:_ROWS].astype(np.float64) for each in (value, expected))
    order = [int(np.abs(theirs - column[:, None]).max(0).argmin()) for column in own.T]
    return order if len(set(order)) == len(order) and order != sorted(order) else None


def _distance(value: Array, expected: Array) -> float:
    return float(np.abs(expected.astype(np.float64) - value).max()) if expected.shape == value.shape else np.inf


def _far(distances: Mapping[str, float], parameters: int) -> str:
    """`distances`: of each that holds other values, from those that it was made from."""
    names, largest = list(distances), max(distances.values())
    if len(names) == 1:
        return f"{names[0]} holds other values, up to {largest:.3g} away"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    shown = f"{', '.join(names[:_NAMED])}{more}"
    return f"{len(names)} of {parameters} parameters hold other values, up to {largest:.3g} away: {shown}"


def _same(one: Array, other: Array, step: float = 0.0) -> bool:
    """Whether one is the other, no number further off than `step`."""
    if one.shape != other.shape or not step:
        return one.shape == other.shape and bool(np.array_equal(one.astype(other.dtype), other))
    return bool(np.abs(one.astype(np.float64) - other).max() <= step)


def _one_for_all(subject: ExaminedFile) -> Iterator[PhaseFinding]:
    """Say that no mask tells items apart. It is no error: padding is then never given."""
    if not subject.can_be_judged or InputLimits.of_file(subject.description).padding:
        return
    if names := list(map(repr, subject.description.mask_inputs)):
        message = f"{' and '.join(names)} is one for all items: items of different lengths cannot be padded"
        hint = "export with a mask [batch, sequence], or [batch, 1, sequence, sequence], to give it such batches"
        about = {"names": [*subject.description.mask_inputs]}
        yield PhaseFinding(
            phase="masks", severity="note", kind="mask-one-for-all", message=message, hint=hint, about=about
        )


def _empty_rows(subject: ExaminedFile) -> Iterator[PhaseFinding]:
    """The file's result for an item that is padding alone, against the stated layer, which may forbid NaN."""
    yield from (finding for finding in _unlike_stated(subject) if finding.about["key"] == EMPTY_ROWS)
    rows = {layer.attention.fully_masked_row for layer in (subject.description.layer, subject.layer) if layer}
    if subject.can_be_judged and rows == {"nan"}:
        message = "an item that is padding alone gives NaN: a softmax over -inf alone is 0/0"
        hint = "keep such items out of the batch, or export with a large negative number in the place of -inf"
        kind: FindingKind = "fully-masked-rows-undefined"
        yield PhaseFinding(phase="masks", severity="warning", kind=kind, message=message, hint=hint)
